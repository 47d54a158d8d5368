//! What the members of a pool that is not mounted say, without opening the pool.

use std::path::{Path, PathBuf};

use poolfs::control::find::KnownPool;
use poolfs::member::metered::Traffic;
use poolfs::member::open;
use poolfs::member::superblock::{MemberId, MemberState, Superblock};
use poolfs::pool::status::{Health, MemberHealth, MemberStatus};
use uuid::Uuid;

/// What was found.
#[derive(Debug)]
pub struct Survey {
    /// The superblock that counts: of the latest epoch, and there the one published last.
    pub freshest: Superblock,
    /// All members that were found, with where.
    pub found: Vec<(PathBuf, Superblock)>,
    /// Why the others were not, for people.
    pub trouble: Vec<String>,
}

/// Looks at all members of `pool` where they were last seen. `None` when none is there.
pub fn survey(pool: &KnownPool) -> (Option<Survey>, Vec<String>) {
    let mut found: Vec<(PathBuf, Superblock)> = Vec::new();
    let mut trouble = Vec::new();
    let mut tried: Vec<PathBuf> = Vec::new();
    let mut to_try: Vec<PathBuf> = pool.members.clone();
    // Each superblock may tell of members that nobody knew before.
    while let Some(path) = to_try.pop() {
        let path = path.canonicalize().unwrap_or(path);
        if tried.contains(&path) {
            continue;
        }
        tried.push(path.clone());
        match open::peek(&path) {
            Ok(superblock) if superblock.pool == pool.uuid => {
                to_try.extend(superblock.members.iter().map(|record| PathBuf::from(&record.path)));
                found.push((path, superblock));
            }
            Ok(_) => trouble.push(format!("{} belongs to another pool now", path.display())),
            Err(error) => trouble.push(error.to_string()),
        }
    }
    found.sort_by_key(|(_, superblock)| superblock.member);
    let freshest = found.iter().map(|(_, superblock)| superblock).max_by_key(|s| age(s)).cloned();
    (freshest.map(|freshest| Survey { freshest, found, trouble: trouble.clone() }), trouble)
}

fn age(superblock: &Superblock) -> (u64, u64) {
    (superblock.epochs.last().map_or(0, |epoch| epoch.counter), superblock.sequence)
}

/// Where one superblock stands beside the freshest.
pub fn standing(own: &Superblock, freshest: &Superblock) -> Standing {
    let (Some(last), Some(fresh)) = (own.epochs.last(), freshest.epochs.last()) else {
        return Standing::Current;
    };
    if own.out_since.is_some() {
        Standing::Left
    } else if !freshest.epochs.iter().any(|epoch| epoch.counter == last.counter && epoch.id == last.id) {
        // The history before the oldest epoch that is remembered is not known.
        let oldest = freshest.epochs.first().map_or(0, |epoch| epoch.counter);
        if last.counter < oldest { Standing::Stale } else { Standing::Apart }
    } else if last.counter < fresh.counter {
        Standing::Stale
    } else {
        Standing::Current
    }
}

/// How a member's superblock stands beside the freshest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Of the same epoch.
    Current,
    /// Of an earlier one.
    Stale,
    /// Of one that the others do not know: written apart from them, or set out to be.
    Apart,
    /// Taken out in order.
    Left,
}

impl Survey {
    /// Health as far as superblocks tell: whether full redundancy survives what is missing.
    pub fn health(&self) -> Health {
        let missing = self.active().filter(|&id| self.path_of(id).is_none()).count();
        let behind = self.active().filter(|&id| self.is_behind(id)).count();
        let tolerance = self.freshest.resiliency.tolerance();
        match missing + behind {
            0 => Health::Online,
            lost if lost <= tolerance => Health::Degraded,
            _ => Health::Unavailable,
        }
    }

    /// Every member, as far as superblocks tell.
    pub fn members(&self) -> Vec<MemberStatus> {
        let records = self.freshest.members.iter().enumerate();
        records
            .map(|(id, record)| {
                let id = id as MemberId;
                let path = self.path_of(id).map_or_else(|| record.path.clone(), |p| p.display().to_string());
                let (health, note) = self.member_health(id, record.state);
                member(id, record.uuid, path, health, record.slabs, note)
            })
            .collect()
    }

    fn member_health(&self, id: MemberId, state: MemberState) -> (MemberHealth, Option<String>) {
        if state == MemberState::Removed {
            return (MemberHealth::Removed, None);
        }
        if state == MemberState::Offline {
            return (MemberHealth::Offline, None);
        }
        let Some((_, own)) = self.found.iter().find(|(_, superblock)| superblock.member == id) else {
            return (MemberHealth::Missing, None);
        };
        let behind = own.epochs.last().map_or(0, |epoch| epoch.counter);
        match standing(own, &self.freshest) {
            Standing::Current => (MemberHealth::Online, None),
            Standing::Stale => (MemberHealth::Online, Some(format!("stale: last written in epoch {behind}"))),
            Standing::Apart => {
                (MemberHealth::Diverged, Some(format!("has an epoch {behind} that the others do not know")))
            }
            Standing::Left => (MemberHealth::Removed, Some("was taken out".to_owned())),
        }
    }

    fn is_behind(&self, id: MemberId) -> bool {
        let own = self.found.iter().find(|(_, superblock)| superblock.member == id);
        own.is_some_and(|(_, superblock)| standing(superblock, &self.freshest) != Standing::Current)
    }

    fn active(&self) -> impl Iterator<Item = MemberId> {
        let active = |(id, record): (usize, &poolfs::member::superblock::MemberRecord)| {
            (record.state == MemberState::Active).then_some(id as MemberId)
        };
        self.freshest.members.iter().enumerate().filter_map(active)
    }

    fn path_of(&self, id: MemberId) -> Option<&Path> {
        self.found.iter().find(|(_, s)| s.member == id).map(|(path, _)| path.as_path())
    }
}

fn member(
    id: MemberId,
    uuid: Uuid,
    path: String,
    health: MemberHealth,
    slabs: u64,
    note: Option<String>,
) -> MemberStatus {
    MemberStatus {
        id,
        uuid,
        path,
        health,
        slabs,
        slabs_used: 0,
        read_errors: 0,
        write_errors: 0,
        sync_errors: 0,
        timeouts: 0,
        recent_errors: 0,
        hedged_reads: 0,
        checksum_errors: 0,
        healed: 0,
        traffic: Traffic::default(),
        note,
    }
}
