//! Which members the next set takes, and what all the sets to come will hold.
//!
//! # Why the widest set is not always the best
//!
//! Members of 80, 40, 20, 20 and 10 free slabs as a striped mirror: sets over four of them take one slab of the
//! large member and three of the others, whose 90 are gone after 30 sets. 50 slabs of the large one are
//! then left over with nobody to mirror them. Pairs of the large one with one other use it all.
//!
//! # The bound
//!
//! What the best possible placement holds can be said in closed form. `N` sets take at most `min(free, N)` slabs
//! of each member, since a set never takes two of one; and at most `n` slabs each, `n` being the widest
//! set. With `m` of each set's slabs spent on parity they hold
//!
//! ```text
//! payload(N) = min(sum of min(free, N), n N) - m N      slabs
//! ```
//!
//! and the best is the largest of these. Each is reached by some placement (slabs can be dealt to `N` sets
//! of about equal size exactly if no member gives one set two: the Gale-Ryser theorem), and the largest by
//! one with no set narrower than `1 + m`. With `c` copies, a set of `k` columns is as good as `k` sets of
//! one, and the best is the largest `N` with `c N <= sum of min(free, N)`.
//!
//! # The rule
//!
//! A set takes the members with the most free slabs, and is as wide as it can be **without lowering that bound**
//! by more than what it holds itself. There always is such a width: any set of a best placement can trade members
//! with the others until it has the ones with the most free, and what remains is best for what remains. So
//! placement reaches the bound exactly, and [`usable_bytes`] need not simulate it.

use std::cmp::Reverse;

use super::geometry::Redundancy;
use super::resiliency::Resiliency;
use super::width::{Width, width_for};
use crate::limits::AUTO_COLUMNS_MAX;

/// Payload, in bytes, that sets with full redundancy can still give: what repeated [`choose`] will place,
/// exactly, as long as it gives sets that are not short. `free_slabs` holds the free slabs of each member.
pub fn usable_bytes(free_slabs: &[u64], resiliency: &Resiliency, slab_bytes: u64) -> u64 {
    best_payload(&descending(free_slabs), resiliency).saturating_mul(slab_bytes)
}

/// Shape and members of the next set: indices into `free_slabs`, ascending. `None` when no member has a
/// free slab.
///
/// The members are those with the most free slabs, the lower index first among equals. The set is
/// [`Width::short`] when no set with full redundancy is possible any more: whether to write such a
/// one is for the caller to say.
pub fn choose(free_slabs: &[u64], resiliency: &Resiliency) -> Option<(Width, Vec<usize>)> {
    let mut order: Vec<usize> = (0..free_slabs.len()).filter(|&i| free_slabs[i] > 0).collect();
    order.sort_by_key(|&i| (Reverse(free_slabs[i]), i));
    let widest = width_for(resiliency, order.len())?;
    let free: Vec<u64> = order.iter().map(|&i| free_slabs[i]).collect();
    let width = if widest.short { widest } else { widest_without_loss(&free, resiliency, widest) };
    order.truncate(width.slots());
    // Equal members then form the same groups in every set, and fewer pairs of losses do harm to mirrors.
    order.sort_unstable();
    Some((width, order))
}

/// The widest shape, at most `widest`, that keeps the best payload of what remains within reach. `free` is
/// sorted descending.
fn widest_without_loss(free: &[u64], resiliency: &Resiliency, widest: Width) -> Width {
    let best = best_payload(free, resiliency);
    let keeps_best = |width: &Width| {
        let mut rest = free.to_vec();
        rest.iter_mut().take(width.slots()).for_each(|free| *free = free.saturating_sub(1));
        rest.sort_unstable_by_key(|&free| Reverse(free));
        best_payload(&rest, resiliency).saturating_add(u64::from(width.columns)) >= best
    };
    (1..=widest.columns).rev().map(|columns| Width { columns, ..widest }).find(keeps_best).unwrap_or(widest)
}

fn descending(free_slabs: &[u64]) -> Vec<u64> {
    let mut free = free_slabs.to_vec();
    free.sort_unstable_by_key(|&free| Reverse(free));
    free
}

/// The most payload, in slabs, that any placement with full redundancy gives. `free` is sorted descending.
fn best_payload(free: &[u64], resiliency: &Resiliency) -> u64 {
    let columns = resiliency.columns.unwrap_or(AUTO_COLUMNS_MAX);
    let (slots, parity) = match resiliency.parity {
        // A column with its copies is what counts: sets of several can be taken apart into sets of one.
        0 if resiliency.copies > 1 => (usize::from(resiliency.copies), 0),
        0 => return free.iter().fold(0, |sum, &free| sum.saturating_add(free)),
        parity => (Redundancy::Parity(parity).slots(columns), parity),
    };
    let (slots, parity) = (slots as u128, u128::from(parity));
    let payload = |sets: u64| {
        let sets = u128::from(sets);
        let given: u128 = free.iter().map(|&free| u128::from(free).min(sets)).sum();
        match parity {
            0 if given < slots * sets => 0,
            0 => sets,
            _ => given.min(slots * sets).saturating_sub(parity * sets),
        }
    };
    u64::try_from(payload(best_set_count(free, slots, parity))).unwrap_or(u64::MAX)
}

/// The number of sets of the best placement. The payload rises with every set that all members' slabs can
/// make at full width, then by what the members that have slabs for one more set give beyond its parity.
fn best_set_count(free: &[u64], slots: u128, parity: u128) -> u64 {
    let pays = |sets: u64| {
        let n = u128::from(sets);
        let given: u128 = free.iter().map(|&free| u128::from(free).min(n)).sum();
        if given >= slots * n {
            return true;
        }
        // Not all sets are at full width: the last one must still give more than its parity costs.
        let before: u128 = free.iter().map(|&free| u128::from(free).min(n - 1)).sum();
        parity > 0 && given > before.min(slots * (n - 1)) + parity
    };
    // `pays` holds up to some number of sets and not beyond: look for the last by halving.
    let (mut low, mut high) = (0, free.iter().fold(0, |sum: u64, &free| sum.saturating_add(free)));
    while low < high {
        let middle = high - (high - low) / 2;
        if pays(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

#[cfg(test)]
mod tests;
