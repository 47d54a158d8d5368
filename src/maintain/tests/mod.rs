//! Jobs over simulated disks.

mod members;
