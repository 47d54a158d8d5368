//! A pool on simulated disks, for tests: power cuts, dead disks, everything repeatable from a seed.

use super::{AssembleOptions, Found, Pool, Result, create_on};
use crate::layout::Resiliency;
use crate::member::open::MemberSpec;
use crate::member::sim::{SimDisk, SimWorld};
use crate::member::superblock::read_superblock;
use crate::member::{Dimensions, Disk};
use crate::sync::Arc;
use crate::units::MIB;

/// Simulated disks that carry one pool.
#[derive(Debug)]
pub struct SimPool {
    /// The power supply of all of them.
    pub world: SimWorld,
    /// The disks, by member number.
    pub disks: Vec<Arc<SimDisk>>,
}

impl SimPool {
    /// A new pool over disks with room for as many slabs of 1 MiB as `slabs` says, one number for each disk.
    ///
    /// # Errors
    /// Those of [`create_on`].
    pub fn create(seed: u64, slabs: &[u64], resiliency: Resiliency) -> Result<Self> {
        let dimensions = Dimensions { slab_bytes: MIB, ring_bytes: 8 * MIB };
        let world = SimWorld::with_dimensions(seed, dimensions);
        let disks: Vec<_> = slabs
            .iter()
            .enumerate()
            .map(|(index, slabs)| world.disk(&format!("disk{index}"), *slabs))
            .collect();
        let members =
            disks.iter().map(|disk| (Arc::clone(disk) as Arc<dyn Disk>, MemberSpec::new("sim"))).collect();
        create_on(members, "test", resiliency, dimensions)?;
        Ok(Self { world, disks })
    }

    /// Puts the pool together without the members in `lost`, as a mount does.
    ///
    /// # Errors
    /// Those of [`Pool::assemble_disks`].
    pub fn assemble(&self, lost: &[usize], options: &AssembleOptions) -> Result<Arc<Pool>> {
        let mut found = Vec::new();
        for (index, disk) in self.disks.iter().enumerate().filter(|(index, _)| !lost.contains(index)) {
            match read_superblock(&**disk) {
                Ok(superblock) => found.push(Found { disk: Arc::clone(disk) as Arc<dyn Disk>, superblock }),
                Err(error) => log::debug!("disk {index}: {error}"),
            }
        }
        Pool::assemble_disks(found, options)
    }

    /// [`SimPool::assemble`] read-write, with everything on the caller's thread.
    ///
    /// # Errors
    /// Those of [`Pool::assemble_disks`].
    pub fn open(&self, lost: &[usize]) -> Result<Arc<Pool>> {
        self.assemble(lost, &self.options())
    }

    /// Read-write, with everything on the caller's thread, and in the disks' time.
    pub fn options(&self) -> AssembleOptions {
        AssembleOptions {
            threads: false,
            degraded: super::Degraded::Yes,
            clock: self.world.clock(),
            ..AssembleOptions::default()
        }
    }
}
