//! Putting a pool together from the members that are here: which superblock counts, who is current, stale,
//! diverged or missing, and what must not be mounted.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::epochs::SuperState;
use super::error::{PoolError, Result};
use super::roster::Member;
use super::sets::{Set, SetTable};
use super::{Pool, PoolParts};
use crate::member::guard::GuardOptions;
use crate::member::guard::within;
use crate::member::superblock::{Epoch, MemberId, MemberState, Purpose, SetRecord, Superblock};
use crate::member::{Disk, MemberError, guard, lock_pool, open, ring, runtime_dir};
use crate::sync::{Arc, Clock};

/// What to do when members are missing at mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Degraded {
    /// Mount if everything can be read; read-only where newer data may be on the missing members.
    Auto,
    /// Mount if everything can be read.
    Yes,
    /// Only with every member.
    No,
    /// Read-only, what can be read.
    Partial,
}

/// How to put a pool together.
#[derive(Debug, Clone)]
pub struct AssembleOptions {
    /// Write nothing.
    pub read_only: bool,
    /// How long to wait for members that are not there yet.
    pub wait: Duration,
    /// What to do when members are missing.
    pub degraded: Degraded,
    /// Go on although acknowledged records or newer members are lost.
    pub force: bool,
    /// Override of the pool's own setting.
    pub refuse_short_writes: Option<bool>,
    /// Mount a diverged member by itself (with `read_only`).
    pub diverged: bool,
    /// Do members' I/O on threads of its own. Simulated runs do without, to be repeatable.
    pub threads: bool,
    /// Longest wait for an answer of a member.
    pub deadline: Duration,
    /// What the times of members' I/O are taken from.
    pub clock: Clock,
}

impl Default for AssembleOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            wait: Duration::from_secs(30),
            degraded: Degraded::Auto,
            force: false,
            refuse_short_writes: None,
            diverged: false,
            threads: true,
            deadline: guard::DEADLINE,
            clock: Clock::system(),
        }
    }
}

impl AssembleOptions {
    /// How members' disks are guarded.
    pub(super) fn guard(&self) -> GuardOptions {
        GuardOptions { deadline: self.deadline, clock: self.clock.clone(), threads: self.threads }
    }
}

/// A member that was found and opened.
#[derive(Debug)]
pub struct Found {
    /// Its disk.
    pub disk: Arc<dyn Disk>,
    /// What it says.
    pub superblock: Superblock,
}

/// How a found member stands to the freshest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its history is part of the freshest one's.
    Known,
    /// It has a history of its own.
    Diverged,
}

impl Pool {
    /// Finds, locks and opens the members (those named, and the others where the pool last saw them), picks
    /// the freshest superblock, and refuses with names and numbers what must not be mounted.
    ///
    /// # Errors
    /// Any of [`PoolError`] that speaks of members.
    pub fn assemble(paths: &[PathBuf], options: &AssembleOptions) -> Result<Arc<Self>> {
        let mut found = open_named(paths, options)?;
        let pool = found[0].superblock.pool;
        let guard = if options.read_only && options.diverged {
            None
        } else {
            Some(lock_pool(&runtime_dir()?, pool)?)
        };
        let clock = Clock::system();
        let deadline = clock.elapsed() + options.wait;
        loop {
            open_known(&mut found, options)?;
            let missing = missing_paths(&found);
            if missing.is_empty() || clock.elapsed() >= deadline || options.diverged {
                break;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let mut pool = Self::from_found(found, options)?;
        pool.guard = guard;
        Ok(Arc::new(pool))
    }

    /// The same from disks that are open already: for tests, and for programs that bring their own.
    ///
    /// # Errors
    /// As [`Pool::assemble`].
    pub fn assemble_disks(found: Vec<Found>, options: &AssembleOptions) -> Result<Arc<Self>> {
        Ok(Arc::new(Self::from_found(found, options)?))
    }

    fn from_found(found: Vec<Found>, options: &AssembleOptions) -> Result<Self> {
        let mut freshest = freshest(&found)?.clone();
        // No member may hold a superblock of a higher number than the next one that is published.
        freshest.sequence = found.iter().map(|found| found.superblock.sequence).max().unwrap_or(0);
        if let (Some(epoch), false) = (freshest.out_since, options.force) {
            return Err(PoolError::OnlyLeavers { epoch });
        }
        let mut disks: Vec<Option<Arc<dyn Disk>>> = vec![None; freshest.members.len()];
        let mut notes: Vec<Option<String>> = vec![None; freshest.members.len()];
        for Found { disk, superblock } in found {
            let id = usize::from(superblock.member);
            // An attempt to add a member that came to nothing may have left one that the others do not know.
            let uuid = superblock.members.get(id).map(|own| own.uuid);
            let Some(record) = freshest.members.get(id).filter(|record| Some(record.uuid) == uuid) else {
                log::warn!("{} is not among the pool's members; it is left alone", disk.path());
                continue;
            };
            match record.state {
                MemberState::Active => {}
                MemberState::Removed => {
                    log::warn!("{} was taken out of the pool; it is left alone", disk.path());
                    continue;
                }
                MemberState::Offline if options.force => {}
                MemberState::Offline => {
                    log::warn!("{} is offline until it is brought online; it is left alone", disk.path());
                    continue;
                }
            }
            match standing(&superblock, &freshest, &*disk) {
                Standing::Known => disks[id] = Some(disk),
                Standing::Diverged => {
                    let note = format!(
                        "diverged: it was written apart from the others since epoch {}; it is left alone",
                        superblock.epochs.last().map_or(0, |epoch| epoch.counter)
                    );
                    log::error!("{}: {note}", disk.path());
                    notes[id] = Some(note);
                }
            }
        }
        let guard = options.guard();
        let members: Vec<Member> = freshest
            .members
            .iter()
            .enumerate()
            .map(|(id, record)| {
                Member::new(id as MemberId, record, disks[id].take(), notes[id].take(), &guard)
            })
            .collect();
        let read_only = check_members(&members, &freshest, options)?;
        let sets = SetTable::default();
        // Whoever mounted with force a leaver, or one that is offline, takes it back.
        freshest.out_since = None;
        for member in &members {
            if member.is_here() {
                freshest.members[usize::from(member.id)].state = MemberState::Active;
                freshest.members[usize::from(member.id)].path = member.path.clone();
            }
        }
        let pool = Self::from_parts(PoolParts {
            members,
            sets,
            read_only,
            partial: options.degraded == Degraded::Partial,
            refuse_short: options.refuse_short_writes.unwrap_or(freshest.refuse_short_writes),
            io: guard,
            state: SuperState::new(freshest.clone()),
        });
        pool.check_rings(&freshest, options)?;
        for record in &freshest.meta_sets {
            pool.load_set(record)?;
        }
        Ok(pool)
    }

    /// Takes a set of the set table into use.
    ///
    /// # Errors
    /// [`PoolError::Damaged`] when it makes no sense, or contradicts another set or the member table.
    fn load_set(&self, record: &SetRecord) -> Result<()> {
        let damaged = |what: String| PoolError::Damaged { what };
        record.validate(self.dimensions().slab_bytes).map_err(damaged)?;
        for slot in &record.slots {
            let member = self.members().get(usize::from(slot.member));
            let member =
                member.ok_or_else(|| damaged(format!("set {} names member {}", record.id, slot.member)))?;
            if !member.claim(slot.slab) {
                return Err(damaged(format!(
                    "slab {} of {} belongs to two sets, {} is one of them",
                    slot.slab, member.path, record.id
                )));
            }
        }
        let set = Arc::new(Set::new(record, false));
        if !self.sets.insert(Arc::clone(&set)) {
            return Err(damaged(format!("set {} is there twice", record.id)));
        }
        Ok(())
    }

    /// Takes sets of the set table into use, and refuses to go on when some set can't be read.
    ///
    /// # Errors
    /// As [`Pool::check_readable`], and [`PoolError::Damaged`].
    pub fn load_sets(&self, records: &[SetRecord]) -> Result<()> {
        records.iter().try_for_each(|record| self.load_set(record))?;
        self.check_readable()
    }

    /// Takes the sets into use that the root block names. The superblock's own records of the sets that the root
    /// block lies in are newer than those of the block, and stay.
    ///
    /// # Errors
    /// As [`Pool::load_sets`].
    pub fn load_metadata_sets(&self, records: &[SetRecord]) -> Result<()> {
        let mut seen = HashSet::new();
        for record in records {
            if record.purpose != Purpose::Meta || !seen.insert(record.id) {
                let what = format!("the root block names set {} wrongly", record.id);
                return Err(PoolError::Damaged { what });
            }
            if !self.has_set(record.id) {
                self.load_set(record)?;
            }
        }
        self.check_readable()
    }

    /// Refuses to go on when some set that is known so far can't be read with the members that are here.
    ///
    /// # Errors
    /// [`PoolError::TooFewLeft`] names the missing members and which would be enough.
    pub fn check_readable(&self) -> Result<()> {
        let sets = self.sets.all();
        let unreadable: Vec<&Arc<Set>> =
            sets.iter().filter(|set| !self.is_readable(set, &HashSet::new())).collect();
        if unreadable.is_empty() || self.partial {
            return Ok(());
        }
        let missing: Vec<&Arc<Member>> =
            self.members().iter().filter(|member| member.is_active() && !member.is_here()).collect();
        Err(PoolError::TooFewLeft {
            unreadable: unreadable.len(),
            sets: sets.len(),
            missing: names(missing.iter().map(|member| &***member)),
            helps: self.what_helps(&unreadable, &missing),
        })
    }

    /// Which missing members would be enough.
    fn what_helps(&self, unreadable: &[&Arc<Set>], missing: &[&Arc<Member>]) -> String {
        let enough = |back: &HashSet<MemberId>| unreadable.iter().all(|set| self.is_readable(set, back));
        let single: Vec<&Member> = missing
            .iter()
            .filter(|member| enough(&HashSet::from([member.id])))
            .map(|member| &***member)
            .collect();
        match single.len() {
            0 => format!("All of {} are needed", names(missing.iter().map(|member| &***member))),
            1 => format!("{} would be enough", names(single.into_iter())),
            _ => format!("Any one of {} would be enough", names(single.into_iter())),
        }
    }

    /// Whether every byte of a set can be read with the members that are here, and with those in `back`.
    pub(super) fn is_readable(&self, set: &Set, back: &HashSet<MemberId>) -> bool {
        Self::is_readable_with(set, |member| self.member(member).is_here() || back.contains(&member))
    }

    /// Whether every byte of a set can be read with the members that are `here`.
    pub(super) fn is_readable_with(set: &Set, here: impl Fn(MemberId) -> bool) -> bool {
        let here = |slot: usize| here(set.slots[slot].member);
        match set.geometry.redundancy {
            crate::layout::Redundancy::Parity(_) => {
                (0..set.slots.len()).filter(|&slot| here(slot)).count() >= set.geometry.needed()
            }
            // Rotation moves columns over the slots together, so checking each column at offset 0 of every
            // rotation is checking all of them.
            crate::layout::Redundancy::Copies(_) => {
                let step = set.geometry.rotation_bytes();
                (0..set.geometry.slab_bytes.div_ceil(step)).take(set.slots.len()).all(|turn| {
                    (0..usize::from(set.geometry.columns))
                        .all(|column| set.geometry.copies_of(column, turn * step).any(&here))
                })
            }
        }
    }

    fn check_rings(&self, freshest: &Superblock, options: &AssembleOptions) -> Result<()> {
        if freshest.clean || options.force || freshest.root.is_none() || !self.rings().is_empty() {
            return Ok(());
        }
        let holders = freshest.epochs.last().map_or(&[][..], |epoch| &epoch.ring_holders);
        Err(PoolError::NoRing { holders: names(holders.iter().map(|&id| self.member(id))) })
    }
}

fn names<'a>(members: impl Iterator<Item = &'a Member>) -> String {
    members.map(|member| format!("{} (member {})", member.path, member.id)).collect::<Vec<_>>().join(", ")
}

/// Applies the policy on missing members. True: mount read-only.
fn check_members(members: &[Member], freshest: &Superblock, options: &AssembleOptions) -> Result<bool> {
    let active = members.iter().filter(|member| member.is_active());
    let missing: Vec<&Member> = active.clone().filter(|member| !member.is_here()).collect();
    if missing.is_empty() {
        return Ok(options.read_only);
    }
    let missing_names = names(missing.iter().copied());
    if options.degraded == Degraded::No {
        return Err(PoolError::Incomplete { missing: missing_names });
    }
    let half = missing.len() * 2 >= active.count();
    if freshest.healthy && half && options.degraded == Degraded::Auto && !options.read_only {
        log::warn!(
            "mounted read-only: half of the members or more are missing ({missing_names}), and newer data may be on them. -o degraded=yes mounts read-write"
        );
        return Ok(true);
    }
    log::warn!("mounted degraded, without {missing_names}");
    Ok(options.read_only || options.degraded == Degraded::Partial)
}

/// The superblock that counts: of the latest epoch, and there the one published last.
fn freshest(found: &[Found]) -> Result<&Superblock> {
    found
        .iter()
        .map(|found| &found.superblock)
        .max_by_key(|superblock| {
            let last = superblock.epochs.last();
            // Where an attempt to add a member broke off, its epoch has a rival: that of all others counts.
            let same = found.iter().filter(|other| other.superblock.epochs.last() == last).count();
            (last.map_or(0, |epoch| epoch.counter), superblock.sequence, same)
        })
        .ok_or(PoolError::NoMembers)
}

/// Whether a member's own history is part of the freshest one, or another.
pub(super) fn standing(own: &Superblock, freshest: &Superblock, disk: &dyn Disk) -> Standing {
    let Some(last) = own.epochs.last() else { return Standing::Known };
    let same = |epoch: &&Epoch| epoch.counter == last.counter && epoch.id == last.id;
    if freshest.epochs.iter().any(|epoch| same(&epoch)) {
        return Standing::Known;
    }
    // An epoch that was begun and never used is no history of its own.
    let root = own.root.as_ref();
    let used = root.is_some_and(|root| root.included >= last.first_seq)
        || last.ring_holders.contains(&own.member) && has_record_of(disk, own, last);
    if used { Standing::Diverged } else { Standing::Known }
}

fn has_record_of(disk: &dyn Disk, own: &Superblock, epoch: &Epoch) -> bool {
    let Some(root) = &own.root else { return false };
    let mut reader = ring::RingReader::new(disk, own.dimensions.ring_bytes);
    let mut position = root.tail_position;
    let mut seq = root.tail_seq;
    while let Some((at, header, payload)) = reader.record_at(position) {
        if header.seq != seq {
            return false;
        }
        if header.epoch == epoch.counter && header.epoch_id == epoch.id {
            return true;
        }
        position = at + ring::record_bytes(payload.len());
        seq += 1;
    }
    false
}

fn open_named(paths: &[PathBuf], options: &AssembleOptions) -> Result<Vec<Found>> {
    let mut found: Vec<Found> = Vec::new();
    let mut trouble = None;
    for path in paths {
        match open_one(path, options) {
            Ok(one) => add(&mut found, one)?,
            // A member that is named but not there is missing, as long as another one is there.
            Err(PoolError::Member(
                error @ (MemberError::NoSuperblock { .. }
                | MemberError::Unsuitable { .. }
                | MemberError::DamagedSuperblock { .. }
                | MemberError::Access { .. }
                | MemberError::OpenTimeout { .. }
                | MemberError::Io { .. }),
            )) => {
                log::warn!("{error}");
                trouble = Some(PoolError::Member(error));
            }
            Err(error) => return Err(error),
        }
    }
    if found.is_empty() {
        return Err(trouble.unwrap_or(PoolError::NoMembers));
    }
    Ok(found)
}

fn open_one(path: &Path, options: &AssembleOptions) -> Result<Found> {
    let (disk, superblock) = if options.threads {
        let (opened, read_only) = (path.to_owned(), options.read_only);
        within(path, options.deadline, move || open::open(&opened, None, read_only))?
    } else {
        open::open(path, None, options.read_only)?
    };
    Ok(Found { disk, superblock })
}

/// Whether there is something at `path`. Even that may hang, on a dead network file system.
fn is_there(path: &Path, options: &AssembleOptions) -> bool {
    let asked = path.to_owned();
    if options.threads {
        within(path, options.deadline, move || Ok(asked.exists())).unwrap_or(false)
    } else {
        asked.exists()
    }
}

fn add(found: &mut Vec<Found>, one: Found) -> Result<()> {
    if let Some(first) = found.first()
        && first.superblock.pool != one.superblock.pool
    {
        return Err(PoolError::OtherPool {
            path: one.disk.path(),
            other: one.superblock.pool,
            pool: first.superblock.pool,
        });
    }
    if let Some(twin) = found.iter().find(|other| other.superblock.member == one.superblock.member) {
        return Err(PoolError::Cloned {
            first: twin.disk.path(),
            second: one.disk.path(),
            member: one.superblock.member,
        });
    }
    found.push(one);
    Ok(())
}

/// Opens the other members where the pool last saw them.
fn open_known(found: &mut Vec<Found>, options: &AssembleOptions) -> Result<()> {
    if options.diverged {
        return Ok(());
    }
    let pool = found[0].superblock.pool;
    for (id, path) in missing_paths(found) {
        if !is_there(Path::new(&path), options) {
            continue;
        }
        match open_one(Path::new(&path), options) {
            Ok(one) if one.superblock.pool == pool && one.superblock.member == id => found.push(one),
            Ok(_) => log::warn!("{path} now holds another member; it is not taken for member {id}"),
            Err(error @ PoolError::Member(MemberError::InUse { .. } | MemberError::NewerFormat { .. })) => {
                return Err(error);
            }
            Err(error) => log::debug!("{error}"),
        }
    }
    Ok(())
}

/// Members that belong to the pool and are not found yet, with where they were last seen.
fn missing_paths(found: &[Found]) -> Vec<(MemberId, String)> {
    let Ok(freshest) = freshest(found) else { return Vec::new() };
    freshest
        .members
        .iter()
        .enumerate()
        .map(|(id, record)| (id as MemberId, record))
        .filter(|(_, record)| record.state == MemberState::Active)
        .filter(|(id, _)| !found.iter().any(|found| found.superblock.member == *id))
        .map(|(id, record)| (id, record.path.clone()))
        .collect()
}
