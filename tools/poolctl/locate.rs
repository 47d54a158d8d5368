//! `poolctl locate`.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;

use poolfs::control::find::{KnownPool, known_pools};
use poolfs::control::protocol::{Answer, Request};
use poolfs::maintain::places::Located;
use poolfs::units::format_size;
use serde::Serialize;

use super::error::{Result, ToolError};
use super::output::{json, print_table, table};
use super::session::{Access, Session};

/// Show which members and slabs hold a file of a mounted pool.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file.
    path: PathBuf,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown {
    path: String,
    pool: String,
    #[serde(flatten)]
    located: Located,
}

/// Shows it.
///
/// # Errors
/// When the path lies in no mounted pool.
pub fn run(args: &Args) -> Result<ExitCode> {
    let shown = args.path.display().to_string();
    let path = args.path.canonicalize().map_err(ToolError::system(shown.clone()))?;
    let pool = pool_of(&path).ok_or(ToolError::NotInPool { path: shown.clone() })??;
    let ino = path.metadata().map_err(ToolError::system(shown.clone()))?.ino();
    let session = Session::of(pool, Access::Read)?;
    let located = match session.ask(&Request::Locate { ino })? {
        Answer::Located(located) => *located,
        other => return Err(session.unexpected(&other)),
    };
    if args.json {
        json(Shown { path: shown, pool: session.name().to_owned(), located })?;
    } else {
        print(&shown, &located);
    }
    Ok(ExitCode::SUCCESS)
}

/// The mounted pool that holds a path: of several below each other, the one mounted deepest.
fn pool_of(path: &std::path::Path) -> Option<Result<KnownPool>> {
    let pools = match known_pools() {
        Ok(pools) => pools,
        Err(error) => return Some(Err(error.into())),
    };
    let place = |pool: &KnownPool| pool.mounted.as_ref().map(|mounted| PathBuf::from(&mounted.mountpoint));
    let holds = pools.into_iter().filter(|pool| place(pool).is_some_and(|place| path.starts_with(place)));
    holds.max_by_key(|pool| place(pool).map_or(0, |place| place.as_os_str().len())).map(Ok)
}

fn print(path: &str, located: &Located) {
    say!("{path}: inode {}, {}, kept as {}", located.ino, format_size(located.size), located.resiliency);
    if located.inline {
        say!("  its first bytes are in the metadata, which is on several members");
    }
    if located.parts.is_empty() {
        return;
    }
    let mut shown = table(&["OFFSET", "BYTES", "SET", "KEPT AS", "MEMBER:SLAB"], usize::MAX);
    for part in &located.parts {
        let slabs: Vec<String> =
            part.slabs.iter().map(|(_, place, slab)| format!("{place}:{slab}")).collect();
        shown.add_row(vec![
            part.offset.to_string(),
            format_size(part.len),
            part.set.map_or_else(|| "reserved".to_owned(), |set| set.to_string()),
            part.resiliency.map(|resiliency| resiliency.to_string()).unwrap_or_default(),
            slabs.join(" "),
        ]);
    }
    print_table(&shown);
    if located.more {
        say!("  and more");
    }
}
