//! Making a pool. Everything is checked before anything is written.

use uuid::Uuid;

use super::error::{PoolError, Result};
use crate::layout::{Kind, Resiliency, choose};
use crate::limits::{MEMBERS_MAX, POOL_NAME_MAX_BYTES};
use crate::member::open::{self, Clash, Identity, MemberSpec};
use crate::member::superblock::{Epoch, MemberId, MemberRecord, MemberState, Superblock, write_superblock};
use crate::member::{Dimensions, Disk};
use crate::sync::{Arc, random_u64};

/// What to make a pool from.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// Its name.
    pub name: String,
    /// Its members.
    pub members: Vec<MemberSpec>,
    /// Resiliency of the root directory.
    pub resiliency: Resiliency,
    /// Payload bytes of a slab; chosen from the members' sizes if not given.
    pub slab_bytes: Option<u64>,
    /// Take members that were used before.
    pub force: bool,
}

/// What a pool made with some options would be.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Sizes that are the same on every member.
    pub dimensions: Dimensions,
    /// Slabs that each member offers.
    pub slabs: Vec<u64>,
}

/// Checks everything that can be checked without writing.
///
/// # Errors
/// Each thing that is wrong with the members, the name, the layout or the sizes.
pub fn plan(options: &CreateOptions) -> Result<Plan> {
    check_name(&options.name)?;
    check_count(options.members.len(), &options.resiliency)?;
    let identities = options
        .members
        .iter()
        .map(|spec| open::identity(&spec.path))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    for (index, one) in identities.iter().enumerate() {
        for other in &identities[..index] {
            refuse_clash(one, other, &options.members[index])?;
        }
    }
    for spec in &options.members {
        open::check(spec, options.force)?;
    }
    let capacities = open::capacities(&options.members)?;
    let dimensions = open::choose_dimensions(&capacities, options.slab_bytes, options.resiliency.interleave)?;
    let slabs: Vec<u64> = capacities.iter().map(|&bytes| open::slabs_in(bytes, &dimensions)).collect();
    check_room(&slabs, &options.resiliency, &dimensions)?;
    Ok(Plan { dimensions, slabs })
}

/// Makes a pool and gives its UUID.
///
/// # Errors
/// As [`plan`]; and those of the members while they are written. Then no member has a superblock of the pool
/// that could be mounted by mistake: superblocks come last.
pub fn create(options: &CreateOptions) -> Result<Uuid> {
    let plan = plan(options)?;
    let disks = options
        .members
        .iter()
        .map(|spec| Ok((open::create(spec, plan.dimensions, options.force)?, spec.clone())))
        .collect::<Result<Vec<_>>>()?;
    create_on(disks, &options.name, options.resiliency, plan.dimensions)
}

/// The last step of making a pool: superblocks on disks that are prepared already.
///
/// # Errors
/// Those of the members; [`PoolError::TooFewMembers`] and its kin.
pub fn create_on(
    disks: Vec<(Arc<dyn Disk>, MemberSpec)>,
    name: &str,
    resiliency: Resiliency,
    dimensions: Dimensions,
) -> Result<Uuid> {
    check_name(name)?;
    check_count(disks.len(), &resiliency)?;
    let mut members = Vec::new();
    for (disk, spec) in &disks {
        members.push(MemberRecord {
            uuid: Uuid::new_v4(),
            kind: disk.kind(),
            path: disk.path(),
            limit_bytes: spec.bounds.limit_bytes,
            reserve_bytes: spec.bounds.reserve_bytes,
            slabs: disk.room().map(|room| room.slabs.min(room.below.unwrap_or(u64::MAX)))?,
            state: MemberState::Active,
            ring_from: None,
        });
    }
    let first = Epoch {
        counter: 1,
        id: random_u64(),
        first_seq: 1,
        members: (0..members.len() as MemberId).collect(),
        ring_holders: Vec::new(),
    };
    let superblock = Superblock {
        pool: Uuid::new_v4(),
        name: name.to_owned(),
        features: 0,
        member: 0,
        sequence: 1,
        dimensions,
        resiliency,
        refuse_short_writes: false,
        members,
        epochs: vec![first],
        root: None,
        clean: true,
        healthy: true,
        meta_sets: Vec::new(),
        out_since: None,
    };
    for (id, (disk, _)) in disks.iter().enumerate() {
        write_superblock(&**disk, &Superblock { member: id as MemberId, ..superblock.clone() })?;
    }
    Ok(superblock.pool)
}

fn refuse_clash(one: &Identity, other: &Identity, spec: &MemberSpec) -> Result<()> {
    let name = |identity: &Identity| identity.canonical.display().to_string();
    match one.clash(other) {
        None => Ok(()),
        Some(Clash::Same) => {
            Err(PoolError::SameMember { first: name(other), second: spec.path.display().to_string() })
        }
        Some(Clash::Inside) => Err(PoolError::Nested { inner: name(one), outer: name(other) }),
        Some(Clash::Around) => Err(PoolError::Nested { inner: name(other), outer: name(one) }),
    }
}

fn check_name(name: &str) -> Result<()> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > POOL_NAME_MAX_BYTES {
        "it is longer than 64 bytes"
    } else if name.starts_with(['-', '.']) {
        "it begins with - or ."
    } else if !name.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c)) {
        "use letters, digits, -, _ and . only"
    } else {
        return Ok(());
    };
    Err(PoolError::BadName { name: name.to_owned(), why })
}

fn check_count(given: usize, resiliency: &Resiliency) -> Result<()> {
    if given == 0 {
        return Err(PoolError::NoMembers);
    }
    if given > MEMBERS_MAX {
        return Err(PoolError::TooManyMembers { given, most: MEMBERS_MAX });
    }
    // Parity over one data column is a mirror in disguise: a new pool should not begin as one.
    let narrowest = match resiliency.kind {
        Kind::Parity => 2 + usize::from(resiliency.parity),
        Kind::StripedMirror => 2 * usize::from(resiliency.copies),
        Kind::Simple | Kind::Mirror => resiliency.min_members(),
    };
    let needed = resiliency.wanted_members().max(if resiliency.columns.is_some() { 0 } else { narrowest });
    if given < needed {
        return Err(PoolError::TooFewMembers { resiliency: *resiliency, needed, given });
    }
    Ok(())
}

/// One set of data and one of metadata must fit beside the reserve.
fn check_room(slabs: &[u64], resiliency: &Resiliency, dimensions: &Dimensions) -> Result<()> {
    let free: Vec<u64> = slabs.iter().map(|slabs| slabs.saturating_sub((slabs / 50).max(2) + 1)).collect();
    if choose(&free, resiliency).is_none_or(|(width, _)| width.short) {
        let bytes = slabs.iter().sum::<u64>() * dimensions.slab_bytes;
        return Err(PoolError::TooSmall {
            bytes,
            slab_bytes: dimensions.slab_bytes,
            resiliency: *resiliency,
        });
    }
    Ok(())
}
