//! `poolctl what-if`.

use std::process::ExitCode;

use poolfs::control::protocol::{Answer, Request};
use poolfs::maintain::places::WhatIf;
use poolfs::units::format_size;
use serde::Serialize;

use super::error::Result;
use super::output::{count, json};
use super::perform::member;
use super::session::{Access, Session};
use super::status::{exit_code, state_word};

/// Show what would still be readable without some members. Nothing is changed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pool.
    pool: String,
    /// Members to do without: path, UUID or number.
    #[arg(long, required = true, num_args = 1.., value_name = "MEMBER")]
    lose: Vec<String>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    found: WhatIf,
}

/// Shows it. Exit code 3 when redundancy would be missing, 4 when data could not be read.
///
/// # Errors
/// When the pool is not mounted, or a member is not known.
pub fn run(args: &Args) -> Result<ExitCode> {
    let session = Session::open(&args.pool, Access::Read)?;
    let lose: Vec<String> = args.lose.iter().map(|text| member(text)).collect::<Result<_>>()?;
    let found = match session.ask(&Request::WhatIf { lose })? {
        Answer::WhatIf(found) => *found,
        other => return Err(session.unexpected(&other)),
    };
    let code = ExitCode::from(exit_code(found.health));
    if args.json {
        json(Shown { found })?;
    } else {
        print(session.name(), &found);
    }
    Ok(code)
}

fn print(name: &str, found: &WhatIf) {
    say!("without {}, {name} would be {}", found.lost.join(" and "), state_word(found.health).to_uppercase());
    say!(
        "sets: {}, {} without full redundancy, {} that could not be read",
        found.sets,
        found.sets_degraded,
        found.sets_unreadable
    );
    if found.sets_unreadable == 0 {
        say!("everything could still be read");
        return;
    }
    if found.metadata_lost {
        say!("metadata would be among what could not be read: the pool could not be mounted");
    }
    say!(
        "{} of data in {} could not be read",
        format_size(found.bytes_unreadable),
        count(found.files_unreadable as usize, "file")
    );
    for path in found.examples.iter().take(20) {
        say!("  {path}");
    }
    let shown = found.examples.len().min(20) as u64;
    if found.files_unreadable > shown {
        say!("  and {} more", found.files_unreadable - shown);
    }
}
