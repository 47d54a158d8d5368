//! Members that are gone, and members that can't be read everywhere.

use super::*;
use crate::maintain::evacuate::Evacuate;
use crate::maintain::repair::Repair;
use crate::member::{Area, SLAB_HEADER_BYTES};

#[test]
fn what_a_lost_member_held_is_rebuilt_into_free_space() {
    for (resiliency, members, tolerance) in
        [("mirror", 3, 1), ("mirror:3", 4, 2), ("parity columns=2", 4, 1), ("parity:2 columns=2", 5, 2)]
    {
        let mut rig = Rig::new(resiliency, &vec![120; members]);
        rig.write(15, 20 * MIB);
        rig.fs().unmount().expect("unmounts");
        rig.mount(&[0]);
        assert!(rig.pool().status().sets_degraded > 0);
        let before: Vec<_> = rig.sim.disks.iter().map(|disk| disk.counters()).collect();
        let filled = Repair::plan(rig.fs()).move_bytes;
        let mut job = Repair::new(rig.fs(), false);
        assert_eq!(run(&rig, &mut job), []);
        drop(job);
        // Only what was in use is written, and every member that is left is read.
        let written: u64 = rig
            .sim
            .disks
            .iter()
            .zip(&before)
            .map(|(disk, before)| disk.counters().written_bytes - before.written_bytes)
            .sum();
        assert!(written < filled + filled / 8 + 2 * MIB, "{resiliency}: {written} written for {filled}");
        for (index, (disk, before)) in rig.sim.disks.iter().zip(&before).enumerate().skip(1) {
            assert!(disk.counters().read_bytes > before.read_bytes, "{resiliency}: disk {index} took part");
        }
        rig.fs().store().give_up_lost(0, false).expect("nothing lies there any more");
        (0..3).for_each(|_| rig.fs().store().checkpoint().expect("takes a checkpoint"));
        assert_eq!(rig.pool().status().sets_degraded, 0, "{resiliency}");
        rig.verify(resiliency);
        rig.sim.disks[0].fail_all();
        rig.prove_redundancy(tolerance, resiliency);
    }
}

#[test]
fn a_member_that_returns_after_it_was_rebuilt_is_cleaned_and_used_again() {
    let mut rig = Rig::new("mirror", &[100; 3]);
    rig.write(10, 20 * MIB);
    rig.fs().unmount().expect("unmounts");
    rig.mount(&[1]);
    run(&rig, &mut Repair::new(rig.fs(), false));
    rig.write(5, 5 * MIB);
    assert!(!rig.sim.disks[1].list_slabs().expect("lists").is_empty());
    rig.fs().store().bring_online(rig.found(1)).expect("comes back");
    assert_eq!(rig.health(1), MemberHealth::Online);
    let used: Vec<_> = rig.pool().members()[1].used_slabs().into_iter().collect();
    assert_eq!(rig.sim.disks[1].list_slabs().expect("lists"), used);
    rig.write(5, 5 * MIB);
    rig.verify("back");
    rig.prove_redundancy(1, "back");
}

/// A sector of a lost member that rotted on the only other one: nothing is thrown away while the member may come back.
#[test]
fn what_only_a_missing_member_has_waits_for_it() {
    let mut rig = Rig::new("mirror", &[100; 3]);
    rig.write(10, 15 * MIB);
    rig.fs().unmount().expect("unmounts");
    rig.mount(&[0]);
    let slots = rig.pool().slots(|place| place.member == 0);
    let data = slots.iter().filter(|slot| slot.purpose == crate::member::superblock::Purpose::Data);
    let set = data.max_by_key(|slot| slot.fill).expect("some").set;
    let record = rig.pool().set_record(set).expect("there");
    let other = record.slots.iter().find(|place| place.member != 0).expect("a mirror");
    rig.sim.disks[usize::from(other.member)].flip(Area::Slab(other.slab), SLAB_HEADER_BYTES + 3 * 4096, 1);
    let mut job = Repair::new(rig.fs(), false);
    let mut unsaved = Vec::new();
    let why = (0..500).find_map(|_| {
        let step = job.step(rig.fs(), MIB).expect("goes on");
        unsaved.extend(job.progress().unsaved);
        if let Step::Pending(why) = step { Some(why) } else { None }
    });
    assert!(why.is_some_and(|why| why.contains("--lost")));
    assert_eq!(unsaved.iter().map(|range| (range.set, range.len)).collect::<Vec<_>>(), [(set, 4096)]);
    drop(job);
    rig.fs().store().bring_online(rig.found(0)).expect("comes back");
    rig.verify("it had it");
}

/// Somebody deleted slab files of a member: that is noticed at the next mount, and repaired.
#[test]
fn slabs_that_are_not_there_any_more_are_rebuilt() {
    let mut rig = Rig::new("mirror", &[100; 3]);
    rig.write(10, 15 * MIB);
    rig.fs().unmount().expect("unmounts");
    for slab in rig.sim.disks[0].list_slabs().expect("lists").into_iter().take(4) {
        rig.sim.disks[0].delete_slab(slab).expect("deletes");
    }
    rig.mount(&[]);
    assert_eq!(rig.pool().status().sets_degraded, 4);
    rig.verify("slabs are gone");
    assert_eq!(rig.health(0), MemberHealth::Online);
    run(&rig, &mut Repair::new(rig.fs(), false));
    (0..3).for_each(|_| rig.fs().store().checkpoint().expect("takes a checkpoint"));
    assert_eq!(rig.pool().status().sets_degraded, 0);
    rig.prove_redundancy(1, "rebuilt");
}

#[test]
fn where_no_member_is_left_for_a_slot_it_waits_or_is_written_anew() {
    let mut rig = Rig::new("parity", &[120; 4]);
    rig.write(10, 20 * MIB);
    rig.fs().unmount().expect("unmounts");
    rig.mount(&[3]);
    let mut job = Repair::new(rig.fs(), false);
    let pending = (0..50).find_map(|_| match job.step(rig.fs(), MIB).expect("goes on") {
        Step::Pending(why) => Some(why),
        _ => None,
    });
    assert!(pending.is_some_and(|why| why.contains("add one")));
    drop(job);
    run(&rig, &mut Repair::new(rig.fs(), true));
    (0..3).for_each(|_| rig.fs().store().checkpoint().expect("takes a checkpoint"));
    assert_eq!(rig.pool().status().sets_degraded, 0);
    rig.fs().store().give_up_lost(3, false).expect("nothing lies there any more");
    rig.verify("narrower");
    rig.prove_redundancy(1, "narrower");
}

#[test]
fn sets_written_short_get_their_redundancy_when_a_member_comes() {
    let mut rig = Rig::new("mirror", &[100; 2]);
    rig.write(3, 4 * MIB);
    rig.fs().unmount().expect("unmounts");
    rig.mount(&[1]);
    rig.write(8, 10 * MIB);
    let new = rig.add(100);
    run(&rig, &mut Evacuate::replace(rig.fs(), 1, new).expect("begins"));
    run(&rig, &mut Repair::new(rig.fs(), false));
    (0..3).for_each(|_| rig.fs().store().checkpoint().expect("takes a checkpoint"));
    assert_eq!(rig.pool().status().sets_degraded, 0);
    rig.verify("whole again");
    rig.prove_redundancy(1, "whole again");
}

/// Sectors that can't be read, and some that rotted, on the member that goes: the others give them back; and what
/// nobody gives back is named.
#[test]
fn a_bad_member_is_replaced_and_what_is_lost_is_named() {
    for resiliency in ["mirror", "parity", "simple"] {
        let mut rig = Rig::new(resiliency, &[100; 3]);
        rig.write(10, 12 * MIB);
        rig.fs().unmount().expect("unmounts");
        rig.mount(&[]);
        let slots = rig.pool().slots(|place| place.member == 0);
        let data = slots.iter().filter(|slot| slot.purpose == crate::member::superblock::Purpose::Data);
        for slot in data.filter(|slot| slot.fill >= MIB / 2).take(3) {
            let area = Area::Slab(slot.place.slab);
            let at = |sector: u64| SLAB_HEADER_BYTES + sector * 4096;
            rig.sim.disks[0].fail_reads(area, at(5)..at(7));
            rig.sim.disks[0].flip(area, at(20) + 77, 1);
        }
        let new = rig.add(100);
        let unsaved = run(&rig, &mut Evacuate::replace(rig.fs(), 0, new).expect("begins"));
        assert_eq!(rig.health(0), MemberHealth::Removed, "{resiliency}");
        if resiliency != "simple" {
            assert_eq!(unsaved, [], "{resiliency}");
            rig.verify(resiliency);
            rig.prove_redundancy(1, resiliency);
            continue;
        }
        let sectors: u64 = unsaved.iter().map(|range| range.len / 4096).sum();
        assert!((1..=9).contains(&sectors), "{unsaved:?}");
        rig.fs().cache().drop_clean();
        let damaged = rig.files.iter().filter(|(name, data)| match rig.read(name) {
            Ok(got) => {
                assert!(got == **data, "{name} reads otherwise");
                false
            }
            Err(_) => true,
        });
        assert!((1..=9).contains(&damaged.count()));
    }
}

#[test]
fn a_target_that_dies_in_the_middle_is_done_without() {
    let mut rig = Rig::new("mirror", &[100; 4]);
    rig.write(10, 20 * MIB);
    let mut job = Evacuate::new(rig.fs(), 0).expect("begins");
    job.step(rig.fs(), MIB).expect("goes on");
    rig.sim.disks[2].fail_all();
    assert_eq!(run(&rig, &mut job), []);
    drop(job);
    assert_eq!((rig.health(0), rig.health(2)), (MemberHealth::Removed, MemberHealth::Failing));
    run(&rig, &mut Repair::new(rig.fs(), false));
    rig.verify("one died");
    rig.fs().store().give_up_lost(2, false).expect("nothing lies there any more");
    rig.prove_redundancy(1, "one died");
}
