//! `poolctl examine`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use poolfs::control::find::KnownPool;
use poolfs::member::superblock::{MemberState, Superblock};
use poolfs::member::{MemberError, open};
use poolfs::units::format_size;
use serde::Serialize;
use uuid::Uuid;

use super::error::Result;
use super::output::{json, print_table, table};
use super::survey::{Standing, standing, survey};

/// Show what a member says of itself: pool, generation, stale or not. Nothing is changed, and the member may be in
/// use.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory, device or image.
    member: PathBuf,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    path: String,
    pool: Uuid,
    name: String,
    member: u16,
    uuid: Option<Uuid>,
    sequence: u64,
    epoch: u64,
    clean: bool,
    healthy: bool,
    out_since: Option<u64>,
    resiliency: String,
    slab_bytes: u64,
    ring_bytes: u64,
    copies: [String; 2],
    /// Beside the freshest of the members that can be reached.
    standing: Standing,
    freshest_epoch: u64,
    members: Vec<MemberLine>,
}

#[derive(Serialize)]
struct MemberLine {
    member: u16,
    uuid: Uuid,
    path: String,
    state: &'static str,
    slabs: u64,
    holds_ring: bool,
}

/// Shows it. A member with one damaged copy is shown with a warning; with two, it can't be.
///
/// # Errors
/// Those of the member.
pub fn run(args: &Args) -> Result<ExitCode> {
    let copies = open::copies(&args.member)?;
    let superblock = open::peek(&args.member)?;
    let report = report(&args.member, &superblock, copies.map(|copy| copy_word(&copy)));
    if args.json {
        json(report)?;
    } else {
        print(&report);
    }
    Ok(ExitCode::SUCCESS)
}

fn copy_word(copy: &std::result::Result<Superblock, MemberError>) -> String {
    match copy {
        Ok(superblock) => format!("valid, sequence {}", superblock.sequence),
        Err(MemberError::NoSuperblock { .. }) => "never written".to_owned(),
        Err(MemberError::DamagedSuperblock { why, .. }) => format!("DAMAGED: {why}"),
        Err(error) => format!("UNREADABLE: {error}"),
    }
}

fn report(path: &Path, own: &Superblock, copies: [String; 2]) -> Report {
    let pool = KnownPool {
        uuid: own.pool,
        name: own.name.clone(),
        mountpoint: None,
        members: std::iter::once(path.to_owned())
            .chain(own.members.iter().map(|r| PathBuf::from(&r.path)))
            .collect(),
        registered: false,
        mounted: None,
    };
    let freshest = survey(&pool).0.map_or_else(|| own.clone(), |survey| survey.freshest);
    let epoch = |superblock: &Superblock| superblock.epochs.last().map_or(0, |epoch| epoch.counter);
    Report {
        path: path.display().to_string(),
        pool: own.pool,
        name: own.name.clone(),
        member: own.member,
        uuid: own.members.get(usize::from(own.member)).map(|record| record.uuid),
        sequence: own.sequence,
        epoch: epoch(own),
        clean: own.clean,
        healthy: own.healthy,
        out_since: own.out_since,
        resiliency: own.resiliency.to_string(),
        slab_bytes: own.dimensions.slab_bytes,
        ring_bytes: own.dimensions.ring_bytes,
        copies,
        standing: standing(own, &freshest),
        freshest_epoch: epoch(&freshest),
        members: lines(own),
    }
}

fn lines(own: &Superblock) -> Vec<MemberLine> {
    let records = own.members.iter().enumerate();
    records
        .map(|(id, record)| MemberLine {
            member: id as u16,
            uuid: record.uuid,
            path: record.path.clone(),
            state: match record.state {
                MemberState::Active => "active",
                MemberState::Removed => "removed",
                MemberState::Offline => "offline",
            },
            slabs: record.slabs,
            holds_ring: record.ring_from.is_some(),
        })
        .collect()
}

fn print(report: &Report) {
    say!("  member: {} ({}), number {} of its pool", report.path, show(report.uuid), report.member);
    say!("    pool: {}  {}", report.name, report.pool);
    say!("   state: {}", meaning(report));
    say!(
        "  layout: {}, slabs of {}, a journal of {}",
        report.resiliency,
        format_size(report.slab_bytes),
        format_size(report.ring_bytes)
    );
    say!("   epoch: {}, superblock {}", report.epoch, report.sequence);
    say!(
        "  closed: {}",
        if report.clean { "in order" } else { "no: it is mounted, or was not unmounted in order" }
    );
    for (name, copy) in ["copy A", "copy B"].iter().zip(&report.copies) {
        say!("  {name}: {copy}");
    }
    say!();
    let mut shown = table(&["NUMBER", "MEMBER", "STATE", "JOURNAL", "SLABS", "UUID"], usize::MAX);
    for line in &report.members {
        shown.add_row(vec![
            line.member.to_string(),
            line.path.clone(),
            line.state.to_owned(),
            if line.holds_ring { "yes" } else { "no" }.to_owned(),
            line.slabs.to_string(),
            line.uuid.to_string(),
        ]);
    }
    print_table(&shown);
}

fn show(uuid: Option<Uuid>) -> String {
    uuid.map_or_else(|| "not in its own table".to_owned(), |uuid| uuid.to_string())
}

fn meaning(report: &Report) -> String {
    let freshest = report.freshest_epoch;
    match report.standing {
        Standing::Current => "current, beside the members that can be reached".to_owned(),
        Standing::Stale => {
            format!("STALE: the pool is at epoch {freshest}; what this member lacks is on the others")
        }
        Standing::Apart => "DIVERGED, or set out to be: the others do not know its last epoch".to_owned(),
        Standing::Left => "taken out of the pool".to_owned(),
    }
}
