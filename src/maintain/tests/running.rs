//! The scheduler: one of each kind, in steps, over crashes.

use super::scheduler::{JobState, ScheduleError, Steer, Which};
use super::settings::{JobRate, Settings};
use super::*;
use crate::maintain::events::What;

const SCRUB: Which = Which::Kind(JobKind::Scrub);

fn kinds(rig: &Rig) -> Vec<What> {
    rig.maintenance().events().after(0).into_iter().map(|event| event.what).collect()
}

#[test]
fn the_same_job_twice_is_refused() {
    let rig = Rig::new("mirror", 2, 64);
    rig.file("a", 1, 3 << 20);
    let id = rig.scheduler().start_kind(&JobKind::Scrub).expect("starts").id;
    let again = rig.scheduler().start_kind(&JobKind::Scrub);
    assert!(matches!(again, Err(ScheduleError::Running { id: other, .. }) if other == id), "{again:?}");
    rig.run_jobs(1000);
    let next = rig.scheduler().start_kind(&JobKind::Scrub).expect("starts again");
    assert!(next.id > id);
    assert!(rig.scheduler().last_scrub().is_some_and(|last| last.id == id));
}

#[test]
fn a_job_rests_goes_on_and_ends_when_told() {
    let rig = Rig::new("mirror", 2, 64);
    rig.file("a", 1, 12 << 20);
    rig.scheduler().start_kind(&JobKind::Scrub).expect("starts");
    let step = || {
        rig.clock.advance(Duration::from_secs(2));
        rig.scheduler().run_step();
        rig.scheduler().jobs().swap_remove(0)
    };
    (0..4).for_each(|_| drop(step()));
    rig.scheduler().steer(&SCRUB, Steer::Pause).expect("pauses");
    let paused = step();
    assert_eq!(paused.state, JobState::Paused);
    assert_eq!(step().done_bytes, paused.done_bytes, "it works although it is paused");
    rig.scheduler().steer(&SCRUB, Steer::Resume).expect("resumes");
    let resumed = step();
    assert!(resumed.state == JobState::Running && resumed.done_bytes > paused.done_bytes);
    let cancelled = rig.scheduler().steer(&SCRUB, Steer::Cancel).expect("cancels");
    assert_eq!(cancelled.state, JobState::Cancelled);
    assert!(rig.scheduler().steer(&SCRUB, Steer::Pause).is_err(), "it has ended");
    let told = kinds(&rig);
    assert!(
        told.ends_with(&[What::JobStarted, What::JobPaused, What::JobPaused, What::JobEnded]),
        "{told:?}"
    );
}

#[test]
fn jobs_and_where_they_are_survive_an_unmount() {
    let mut rig = Rig::new("parity", 3, 64);
    rig.file("a", 1, 16 << 20);
    let id = rig.scheduler().start_kind(&JobKind::Scrub).expect("starts").id;
    for _ in 0..6 {
        rig.clock.advance(Duration::from_secs(2));
        rig.scheduler().run_step();
    }
    rig.scheduler().steer(&SCRUB, Steer::Pause).expect("pauses");
    let before = rig.scheduler().jobs().swap_remove(0);
    assert!(before.done_bytes > 0);
    rig.unmount();
    rig.mount(&[]);
    let after = rig.scheduler().jobs().swap_remove(0);
    assert_eq!((after.id, after.state, after.done_bytes), (id, JobState::Paused, before.done_bytes));
    assert_eq!(after.started, before.started);
    rig.scheduler().steer(&SCRUB, Steer::Resume).expect("resumes");
    rig.run_jobs(1000);
    assert_eq!(rig.scheduler().jobs()[0].state, JobState::Done);
    rig.unmount();
    rig.mount(&[]);
    assert!(rig.scheduler().jobs().is_empty(), "it had ended");
}

/// Wherever the power goes, the job is there again and comes to its end, with what was wrong healed.
#[test]
fn a_job_goes_on_after_a_power_cut_anywhere() {
    for stop in 0..40 {
        let mut rig = Rig::new("parity", 3, 64);
        rig.file("a", 1, 6 << 20);
        rig.scheduler().start_kind(&JobKind::Scrub).expect("starts");
        rig.sim.world.stop_after(rig.sim.world.operations() + stop * 7);
        for _ in 0..30 {
            rig.clock.advance(Duration::from_secs(6));
            rig.scheduler().run_step();
            rig.fs().tick();
        }
        let ended = rig.scheduler().jobs()[0].state == JobState::Done;
        rig.crash(PowerCut::ALL[stop as usize % 4], stop);
        let jobs = rig.scheduler().jobs();
        assert!(jobs.len() == 1 || ended, "stop {stop}: the job is gone");
        rig.run_jobs(1000);
    }
}

#[test]
fn outside_of_its_window_a_job_waits_and_says_so() {
    let rig = Rig::new("mirror", 2, 64);
    rig.file("a", 1, 1 << 20);
    let minute = rig.clock.minute_of_day();
    let later = format!(
        "{:02}:{:02}-{:02}:{:02}",
        (minute + 2) / 60,
        (minute + 2) % 60,
        (minute + 9) / 60,
        (minute + 9) % 60
    );
    let settings =
        Settings { job_window: later.parse().expect("a window"), job_rate: JobRate::Bytes(1 << 20) };
    rig.scheduler().set(settings).expect("set");
    rig.scheduler().start_kind(&JobKind::Scrub).expect("starts");
    for _ in 0..3 {
        rig.clock.advance(Duration::from_secs(2));
        rig.scheduler().run_step();
    }
    let job = rig.scheduler().jobs().swap_remove(0);
    assert_eq!((job.state, job.done_bytes), (JobState::Pending, 0));
    assert!(job.because.is_some_and(|why| why.contains(&later)));
    assert_eq!(kinds(&rig).iter().filter(|what| **what == What::JobPending).count(), 1, "told once");
    rig.clock.advance(Duration::from_secs(120));
    rig.run_jobs(1000);
}

#[test]
fn settings_survive_a_mount() {
    let mut rig = Rig::new("mirror", 2, 64);
    let settings =
        Settings { job_rate: JobRate::Bytes(5 << 20), job_window: "01:00-05:00".parse().expect("one") };
    rig.scheduler().set(settings).expect("set");
    rig.crash(PowerCut::Lost, 1);
    assert_eq!(rig.scheduler().settings(), settings);
}

#[test]
fn events_alone_are_no_record() {
    // Or members that were away, and are mounted without these next, would have diverged.
    let rig = Rig::new("mirror", 2, 64);
    let before = rig.fs().store().last_seq();
    rig.maintenance().events().note(News::new(What::Damage, "something"));
    rig.maintenance().look();
    assert_eq!(rig.fs().store().last_seq(), before);
    rig.scheduler().set(Settings::default()).expect("set");
    // The setting, the event of that, and the one that waited.
    assert!(rig.fs().store().last_seq() > before + 2, "what waited is stored with the next change");
}

#[test]
fn events_are_kept_bounded_and_survive() {
    let mut rig = Rig::new("mirror", 2, 64);
    rig.scheduler().set(Settings::default()).expect("set");
    for number in 0..1200 {
        rig.maintenance().events().note(News::new(What::Damage, format!("number {number}")));
    }
    let before = rig.maintenance().events().after(0);
    assert_eq!(before.len(), events::EVENTS_KEPT);
    rig.unmount();
    rig.mount(&[]);
    let after = rig.maintenance().events().after(0);
    assert_eq!(after.len(), events::EVENTS_KEPT);
    let last = before.last().expect("one");
    assert!(after.contains(last), "an event is gone");
    let numbers: Vec<u64> = after.iter().map(|event| event.number).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "numbers rise by one");
    assert!(after.last().is_some_and(|event| event.what == What::Mounted));
}

#[test]
fn a_member_that_dies_is_an_event() {
    let rig = Rig::new("mirror", 3, 64);
    rig.sim.disks[1].fail_all();
    rig.file("a", 1, 1 << 20);
    rig.maintenance().look();
    let events = rig.maintenance().events().after(0);
    let member = events.iter().find(|event| event.what == What::Member).expect("told");
    assert_eq!(member.member, Some(1));
    assert!(events.iter().any(|event| event.what == What::Health));
}

#[test]
fn what_a_member_held_that_stays_away_is_rebuilt_after_a_while() {
    let mut rig = Rig::new("mirror", 4, 64);
    rig.file("a", 1, 8 << 20);
    rig.unmount();
    rig.mount(&[1]);
    rig.maintenance().look();
    rig.clock.advance(GRACE - Duration::from_secs(1));
    rig.maintenance().look();
    assert!(rig.scheduler().jobs().is_empty(), "too early");
    rig.clock.advance(Duration::from_secs(1));
    rig.maintenance().look();
    assert_eq!(rig.scheduler().jobs().len(), 1);
    rig.maintenance().look();
    rig.run_jobs(1000);
    let jobs = rig.scheduler().jobs();
    assert_eq!((jobs.len(), &jobs[0].kind, jobs[0].state), (1, &JobKind::Repair, JobState::Done));
    let status = rig.fs().pool().status();
    assert_eq!(status.sets_degraded, 0, "{status:?}");
}

#[test]
fn what_readers_find_lost_is_listed() {
    let mut rig = Rig::new("simple", 2, 64);
    let ino = rig.file("a", 1, 1 << 20);
    let places = rig.fs().places_of(ino, 10).expect("places");
    let (set, address) = places[0].place.expect("an extent");
    let record = rig.fs().pool().set_record(set).expect("its set");
    let at = record.geometry.locate(address);
    let slot = record.slots[record.geometry.slot_of(at.offset, at.column)];
    let offset = crate::member::SLAB_HEADER_BYTES + at.offset + 5;
    rig.sim.disks[usize::from(slot.member)].flip(crate::member::Area::Slab(slot.slab), offset, 3);
    assert!(rig.sector(ino, 0).is_err());
    rig.maintenance().look();
    let damage = damage::list(rig.fs()).expect("lists");
    assert_eq!((damage.files.len(), &damage.files[0].ranges[..]), (1, &[(0, 4096)][..]));
    assert_eq!(kinds(&rig).last(), Some(&What::Damage));
    rig.unmount();
    rig.mount(&[]);
    assert_eq!(damage::list(rig.fs()).expect("lists"), damage, "it is kept");
}

#[test]
fn the_most_urgent_job_goes_first_and_the_others_say_so() {
    let mut rig = Rig::new("mirror", 4, 64);
    rig.file("a", 1, 8 << 20);
    rig.unmount();
    rig.mount(&[1]);
    rig.scheduler().start_kind(&JobKind::Scrub).expect("starts");
    rig.scheduler().start_kind(&JobKind::Repair).expect("starts");
    rig.scheduler().run_step();
    let jobs = rig.scheduler().jobs();
    let scrub = jobs.iter().find(|job| job.kind == JobKind::Scrub).expect("there");
    assert_eq!((scrub.state, scrub.because.as_deref()), (JobState::Pending, Some("repair goes first")));
    rig.run_jobs(1000);
    let ended: Vec<JobState> = rig.scheduler().jobs().iter().map(|job| job.state).collect();
    assert_eq!(ended, [JobState::Done, JobState::Done]);
}
