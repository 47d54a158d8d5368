use std::collections::HashMap;

use super::*;

const LAYOUTS: [&str; 14] = [
    "simple",
    "simple columns=2",
    "mirror",
    "mirror:3",
    "striped-mirror",
    "striped-mirror columns=2",
    "striped-mirror:3",
    "parity",
    "parity columns=1",
    "parity columns=2",
    "parity:2",
    "parity:2 columns=2",
    "parity:3",
    "parity columns=4",
];

/// Payload, in slabs, of placing sets until only short ones are possible.
fn placed(free: &[u64], resiliency: &Resiliency) -> u64 {
    let (mut free, mut payload) = (free.to_vec(), 0);
    while let Some((width, members)) = choose(&free, resiliency).filter(|(width, _)| !width.short) {
        assert_eq!(members.len(), width.slots());
        assert!(members.is_sorted_by(|a, b| a < b));
        members.iter().for_each(|&member| free[member] -= 1);
        payload += u64::from(width.columns);
    }
    payload
}

/// The best payload of all placements there are, tried one by one. `free` is sorted descending.
fn exhaustive(free: Vec<u64>, r: &Resiliency, known: &mut HashMap<Vec<u64>, u64>) -> u64 {
    if let Some(&best) = known.get(&free) {
        return best;
    }
    let mut best = 0;
    for members in 1_u32..1 << free.len() {
        let taken = members.count_ones() as usize;
        let columns = match r.parity {
            0 if !taken.is_multiple_of(usize::from(r.copies)) => continue,
            0 => taken / usize::from(r.copies),
            parity => taken.saturating_sub(usize::from(parity)),
        };
        let most = if r.kind == crate::layout::Kind::Mirror { 1 } else { r.columns.unwrap_or(8) };
        let possible = (0..free.len()).all(|i| members >> i & 1 == 0 || free[i] > 0);
        if columns == 0 || columns > usize::from(most) || !possible {
            continue;
        }
        let rest = free.iter().enumerate().map(|(i, &free)| free - u64::from(members >> i & 1));
        best = best.max(columns as u64 + exhaustive(descending(&rest.collect::<Vec<_>>()), r, known));
    }
    known.insert(free, best);
    best
}

#[test]
fn no_placement_is_better_than_ours() {
    let mixes: [&[u64]; 12] = [
        &[],
        &[5],
        &[2, 2],
        &[7, 1],
        &[3, 3, 3],
        &[6, 2, 1],
        &[5, 5, 5, 5],
        &[8, 4, 2, 2, 1],
        &[1, 2, 3, 4, 5],
        &[6, 1, 1, 1, 1, 1],
        &[2, 2, 2, 2, 2, 2],
        &[4, 4, 4, 1, 1],
    ];
    for layout in LAYOUTS {
        let r = Resiliency::parse(layout).unwrap();
        let mut known = HashMap::new();
        for free in mixes {
            let best = exhaustive(descending(free), &r, &mut known);
            assert_eq!(placed(free, &r), best, "{layout} over {free:?}");
            assert_eq!(usable_bytes(free, &r, 1 << 20), best << 20, "{layout} over {free:?}");
        }
    }
}

#[test]
fn what_is_promised_is_what_is_placed() {
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for round in 0..60 {
        let members = random(14) + 1;
        let most = [3, 40, 150][round % 3];
        let mut free: Vec<u64> = (0..members).map(|_| random(most)).collect();
        if round % 4 == 0 {
            free[0] *= 5;
        }
        for layout in LAYOUTS {
            let r = Resiliency::parse(layout).unwrap();
            assert_eq!(placed(&free, &r), usable_bytes(&free, &r, 1), "{layout} over {free:?}");
        }
    }
}

#[test]
fn mixed_sizes_hold_what_can_be_computed_by_hand() {
    let free = [10, 20, 20, 40, 80];
    for (layout, payload) in [
        ("simple", 170),
        ("mirror", 85),
        ("striped-mirror", 85),
        ("striped-mirror columns=2", 85),
        ("mirror:3", 45),
        ("parity", 90),
        ("parity columns=2", 90),
        ("parity:2", 50),
        ("parity:3", 30),
    ] {
        let r = Resiliency::parse(layout).unwrap();
        assert_eq!(usable_bytes(&free, &r, 1), payload, "{layout}");
        assert_eq!(placed(&free, &r), payload, "{layout}");
    }
}

#[test]
fn equal_members_are_taken_in_turn_at_full_width() {
    let r = Resiliency::parse("parity columns=2").unwrap();
    let mut free = [100_u64; 5];
    for expected in [[0, 1, 2], [0, 3, 4], [1, 2, 3], [0, 1, 4], [2, 3, 4]] {
        let (width, members) = choose(&free, &r).unwrap();
        assert_eq!((width.columns, width.short, members.as_slice()), (2, false, expected.as_slice()));
        members.iter().for_each(|&member| free[member] -= 1);
    }
    assert_eq!(free, [97; 5]);
}

#[test]
fn a_striped_mirror_goes_narrow_only_to_use_up_a_large_member() {
    let r = Resiliency::parse("striped-mirror").unwrap();
    let columns = |free: &[u64]| choose(free, &r).map(|(width, members)| (width.columns, members));
    assert_eq!(columns(&[9, 9, 9, 9]), Some((2, vec![0, 1, 2, 3])));
    assert_eq!(columns(&[80, 40, 20, 20, 10]), Some((2, vec![0, 1, 2, 3])));
    assert_eq!(columns(&[80, 20, 20, 20, 10]), Some((1, vec![0, 1])));
}

#[test]
fn too_few_members_make_a_short_set_and_are_not_counted_as_usable() {
    let r = Resiliency::parse("mirror").unwrap();
    let (width, members) = choose(&[0, 6, 0], &r).unwrap();
    assert!(width.short && width.redundancy == Redundancy::Copies(1) && members == [1]);
    assert_eq!(usable_bytes(&[0, 6, 0], &r, 1), 0);
    assert_eq!(choose(&[0, 0], &r), None);
    let r = Resiliency::parse("parity:2").unwrap();
    let (width, members) = choose(&[5, 9], &r).unwrap();
    assert!(width.short && width.redundancy == Redundancy::Parity(1) && members == [0, 1]);
}

#[test]
fn huge_counts_do_not_overflow() {
    for layout in LAYOUTS {
        let r = Resiliency::parse(layout).unwrap();
        assert!(usable_bytes(&[u64::MAX; 6], &r, u64::MAX) > 0);
        assert!(choose(&[u64::MAX; 6], &r).is_some());
    }
}
