//! Long jobs of a mounted pool.
//!
//! | file | what it does |
//! | --- | --- |
//! | [`job`] | what a job is: one bounded step after the other |
//! | [`plan`] | what a job would do, in numbers, and why it can't |
//! | [`evacuate`] | empties a member and takes it out; also in favour of another one |
//! | [`repair`] | rebuilds slots on members that are not here, and sets that were written short |
//! | [`rebalance`] | evens out use, and writes narrow sets anew |
//! | `carrier`, `load` | moves slots and rewrites sets, a bounded amount at a time; which come next |

mod carrier;
pub mod evacuate;
pub mod job;
mod load;
pub mod plan;
pub mod rebalance;
pub mod repair;
#[cfg(test)]
mod tests;
