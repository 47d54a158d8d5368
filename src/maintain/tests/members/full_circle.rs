//! Jobs that run to their end.

use super::*;
use crate::maintain::evacuate::Evacuate;
use crate::maintain::plan::Refusal;
use crate::maintain::rebalance::Rebalance;
use crate::pool::PoolError;

/// Layouts, members, and how many of them may be lost in the end.
const LAYOUTS: [(&str, usize, usize); 8] = [
    ("simple", 2, 0),
    ("simple", 3, 0),
    ("mirror", 3, 1),
    ("mirror:3", 4, 2),
    ("striped-mirror", 5, 1),
    ("parity", 4, 1),
    ("parity:2", 5, 2),
    ("parity columns=2", 4, 1),
];

#[test]
fn a_member_is_emptied_and_leaves() {
    for (resiliency, members, tolerance) in LAYOUTS {
        let mut rig = Rig::new(resiliency, &vec![120; members]);
        rig.write(20, 30 * MIB);
        rig.thin_out();
        let plan = Evacuate::plan(rig.fs(), 1).expect("can be done");
        assert!(
            plan.total_bytes() > 0 && plan.capacity_after < plan.capacity_before,
            "{resiliency}: {plan:?}"
        );
        let mut job = Evacuate::new(rig.fs(), 1).expect("begins");
        assert_eq!(rig.health(1), MemberHealth::Evacuating);
        let unsaved = run(&rig, &mut job);
        assert_eq!(unsaved, [], "{resiliency}");
        drop(job);
        assert_eq!(rig.health(1), MemberHealth::Removed, "{resiliency}");
        rig.verify(resiliency);
        rig.write(4, 5 * MIB);
        assert!(rig.sim.disks[1].list_slabs().expect("lists").is_empty(), "{resiliency}: it is empty");
        rig.sim.disks[1].fail_all();
        rig.prove_redundancy(tolerance, resiliency);
    }
}

#[test]
fn a_member_is_replaced() {
    for (resiliency, members, tolerance) in LAYOUTS {
        let mut rig = Rig::new(resiliency, &vec![120; members]);
        rig.write(12, 20 * MIB);
        let new = rig.add(120);
        let mut job = Evacuate::replace(rig.fs(), 0, new).expect("begins");
        assert_eq!(run(&rig, &mut job), []);
        drop(job);
        assert_eq!((rig.health(0), rig.health(new)), (MemberHealth::Removed, MemberHealth::Online));
        rig.verify(resiliency);
        rig.write(4, 5 * MIB);
        rig.prove_redundancy(tolerance, resiliency);
    }
}

/// The usable capacity is then within 1 % of what a pool made new from the same members has.
#[test]
fn after_adding_and_evening_out_the_pool_is_as_large_as_a_new_one() {
    for (resiliency, slabs, more) in [
        ("parity", &[200, 200, 200][..], 200),
        ("mirror", &[150, 150][..], 150),
        ("parity:2", &[150, 150, 150, 150][..], 300),
        ("mirror", &[100, 200, 200][..], 300),
        ("simple", &[150, 150][..], 300),
    ] {
        let what = format!("{resiliency} on {slabs:?} and {more}");
        let mut rig = Rig::new(resiliency, slabs);
        let room = rig.pool().space(&rig.pool().default_resiliency()).available;
        rig.write(30, room / 10 * 6);
        rig.add(more);
        let mut job = Rebalance::new(rig.fs());
        run(&rig, &mut job);
        drop(job);
        (0..3).for_each(|_| rig.fs().store().checkpoint().expect("takes a checkpoint"));
        rig.verify(&what);
        let own = rig.pool().default_resiliency();
        let (now, best) = rig.pool().capacity_of_sets(&own);
        assert!(now * 100 >= best * 99, "{what}: {now} of {best} bytes");
        let again = Rebalance::plan(rig.fs());
        assert!(again.total_bytes() <= 16 * MIB, "{what}: nothing much more to do: {again:?}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_before_it_begins() {
    let mut rig = Rig::new("mirror", &[60, 60]);
    rig.write(4, 10 * MIB);
    let refused = |rig: &Rig, member| match Evacuate::new(rig.fs(), member).expect_err("refused") {
        JobError::Refused(refusal) => refusal,
        error => panic!("{error}"),
    };
    assert!(matches!(refused(&rig, 1), Refusal::TooFewMembers { needed: 2, left: 1, .. }));
    assert_eq!(rig.health(1), MemberHealth::Online, "nothing was begun");
    let third = rig.add(20);
    let room = rig.pool().space(&rig.pool().default_resiliency()).available;
    rig.write(8, room / 10 * 9);
    assert!(matches!(refused(&rig, 0), Refusal::NoRoom { .. }));
    let small = Evacuate::replace(rig.fs(), 0, third).expect_err("too small");
    assert!(matches!(small, JobError::Refused(Refusal::ReplacementTooSmall { .. })), "{small}");
    let nobody = Evacuate::new(rig.fs(), 9).expect_err("there is none");
    assert!(matches!(nobody, JobError::Pool(PoolError::NoSuchMember { member: 9 })), "{nobody}");
}

/// A job that is given up leaves a member that takes part as before.
#[test]
fn an_evacuation_that_is_given_up_leaves_all_as_it_was() {
    let mut rig = Rig::new("mirror", &[80, 80, 80]);
    rig.write(10, 20 * MIB);
    let mut job = Evacuate::new(rig.fs(), 2).expect("begins");
    for _ in 0..3 {
        job.step(rig.fs(), MIB).expect("goes on");
    }
    drop(job);
    assert_eq!(rig.health(2), MemberHealth::Online);
    rig.verify("given up");
    let used = rig.pool().members()[2].slab_counts().1;
    rig.write(10, 20 * MIB);
    assert!(rig.pool().members()[2].slab_counts().1 > used, "it takes new sets again");
    rig.prove_redundancy(1, "given up");
}
