//! `poolctl list`.

use std::process::ExitCode;

use poolfs::control::find::{KnownPool, known_pools};
use serde::Serialize;
use uuid::Uuid;

use super::error::Result;
use super::output::{json, print_table, table};
use super::status::state_word;
use super::survey::survey;

/// List the pools known here: the registered ones and the mounted ones.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Pools {
    pools: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    name: String,
    uuid: Uuid,
    mounted: bool,
    state: &'static str,
    mountpoint: Option<String>,
    members: Vec<String>,
}

/// Lists them.
///
/// # Errors
/// When the registry or the runtime directory can't be read.
pub fn run(args: &Args) -> Result<ExitCode> {
    let pools: Vec<Line> = known_pools()?.iter().map(line).collect();
    if args.json {
        json(Pools { pools })?;
        return Ok(ExitCode::SUCCESS);
    }
    if pools.is_empty() {
        say!("no pools are known here: `poolctl create NAME MEMBER...` makes one");
        return Ok(ExitCode::SUCCESS);
    }
    let mut shown = table(&["NAME", "STATE", "MOUNTED", "MOUNT POINT", "MEMBERS", "UUID"], usize::MAX);
    for pool in pools {
        shown.add_row(vec![
            pool.name,
            pool.state.to_owned(),
            if pool.mounted { "yes" } else { "no" }.to_owned(),
            pool.mountpoint.unwrap_or_else(|| "-".to_owned()),
            pool.members.len().to_string(),
            pool.uuid.to_string(),
        ]);
    }
    print_table(&shown);
    Ok(ExitCode::SUCCESS)
}

fn line(pool: &KnownPool) -> Line {
    let health = match &pool.mounted {
        Some(mounted) => Some(mounted.pool.health),
        None => survey(pool).0.map(|survey| survey.health()),
    };
    let registered = pool.mountpoint.as_ref().map(|path| path.display().to_string());
    Line {
        name: pool.name.clone(),
        uuid: pool.uuid,
        mounted: pool.mounted.is_some(),
        state: health.map_or("missing", state_word),
        mountpoint: pool.mounted.as_ref().map(|m| m.mountpoint.clone()).or(registered),
        members: pool.members.iter().map(|path| path.display().to_string()).collect(),
    }
}
