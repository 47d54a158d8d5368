//! Checking all tables against each other.
//!
//! Nothing is repaired, and what is wrong is a [`Finding`], not an error: the check goes on with what it can.
//! Memory stays bounded however large the pool is: tables in the same order are read side by side, and where
//! the order differs ([`names`]: who links to an inode; [`extents`]: who refers to an extent) one part of
//! the key space is held at a time, and the other table read once for each part.
//!
//! Nobody may change anything meanwhile: check a pool that is assembled read-only, or in a quiet moment.

mod extents;
mod files;
mod names;
mod rows;

use serde::Serialize;

use super::Fs;
use super::error::Result;
use crate::member::superblock::SetId;
use crate::store::StoreError;

/// Findings that are kept; more are only counted.
const FINDINGS_MAX: usize = 1000;

/// What to check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// Read every sector that is alive, and compare it with its checksum.
    pub data: bool,
}

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Area {
    /// Directories, names and links.
    Names,
    /// Inodes, and what belongs to one: map, attributes, small content.
    Files,
    /// Extents, who refers to them, and where they lie.
    Extents,
    /// Sets and their live bytes.
    Sets,
    /// The trees that hold the tables.
    Trees,
    /// File data.
    Data,
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub area: Area,
    /// What is wrong, for people.
    pub what: String,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Inodes looked at.
    pub inodes: u64,
    /// Names looked at.
    pub names: u64,
    /// Extents looked at.
    pub extents: u64,
    /// Sets of file data looked at.
    pub sets: u64,
    /// Nodes of the trees looked at.
    pub tree_nodes: u64,
    /// Bytes of file data that were read and compared.
    pub data_bytes: u64,
    /// Everything that is wrong, at most a thousand things.
    pub findings: Vec<Finding>,
    /// How many more there are.
    pub more_findings: u64,
}

impl CheckReport {
    fn add(&mut self, area: Area, what: impl Into<String>) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { area, what: what.into() });
        } else {
            self.more_findings += 1;
        }
    }
}

/// A check under way.
struct Check<'a> {
    fs: &'a Fs,
    options: CheckOptions,
    report: CheckReport,
}

impl Fs {
    /// Checks everything that the tables say. See the module for when.
    ///
    /// # Errors
    /// Those of reading the tables. What is wrong in them is in the report.
    pub fn check(&self, options: CheckOptions) -> Result<CheckReport> {
        let mut check = Check { fs: self, options, report: CheckReport::default() };
        check.trees()?;
        check.sets();
        check.files()?;
        check.directories()?;
        check.links()?;
        check.references()?;
        check.places()?;
        Ok(check.report)
    }
}

impl Check<'_> {
    /// The nodes of the trees, and the live bytes of the sets that hold them.
    fn trees(&mut self) -> Result<()> {
        match self.fs.store.check_trees() {
            Ok(counts) => self.report.tree_nodes = counts.nodes,
            Err(StoreError::Damaged { what }) => self.report.add(Area::Trees, what),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// No two sets share a slab.
    fn sets(&mut self) {
        for (slot, first, second) in self.fs.pool.shared_slabs() {
            let what =
                format!("sets {first} and {second} both have slab {} of member {}", slot.slab, slot.member);
            self.report.add(Area::Sets, what);
        }
    }

    /// Compares the bytes alive in one set with what its record says.
    fn live_of_set(&mut self, set: SetId, live: u64) {
        self.report.sets += 1;
        match self.fs.pool.set_usage(set) {
            Some(usage) if usage.live == live as i64 => {}
            Some(usage) => {
                let what = format!("set {set} counts {} bytes alive, and {live} are", usage.live);
                self.report.add(Area::Sets, what);
            }
            None => self.report.add(Area::Sets, format!("extents lie in set {set}, which does not exist")),
        }
    }
}
