//! Power cuts in the middle of random operations.
//!
//! After each: the tables agree with each other, everything can be read, and files that were not touched
//! since their fsync have the content that they had then.

use super::model::{Player, Tree};
use super::*;

/// Plays until the power goes after so many member operations; recovers; and again.
fn play(seed: u64, resiliency: &str, disks: usize, rounds: u64) {
    let mut rig = Rig::new(resiliency, disks, 200);
    let mut player = Player::new(seed);
    for round in 0..rounds {
        let what = format!("seed {seed} round {round}");
        let lives = 1 + player.dice.roll(400);
        rig.sim.world.stop_after(rig.sim.world.operations() + lives);
        for step in 0..400 {
            if player.step(rig.fs()).is_err() {
                break;
            }
            if step % 16 == 15 {
                rig.clock.advance(Duration::from_secs(2));
                rig.fs().tick();
            }
            if rig.sim.world.is_dark() {
                break;
            }
        }
        player.close_all(None);
        let policy = PowerCut::ALL[player.dice.roll(PowerCut::ALL.len() as u64) as usize];
        rig.crash(policy, seed * 1000 + round);
        let found = Tree::read(rig.fs());
        for (ino, content) in &player.durable {
            let is = found.files.get(ino).unwrap_or_else(|| panic!("{what}: {ino} was synced and is gone"));
            assert!(is == content, "{what}: {ino} was synced and reads otherwise");
        }
        player.tree = found;
    }
    rig.remount();
    assert_eq!(Tree::read(rig.fs()), player.tree);
}

#[test]
fn what_was_synced_survives_power_cuts_and_the_rest_is_consistent() {
    for seed in seeds(5) {
        let (resiliency, disks) = [("mirror", 2), ("parity", 3), ("simple", 2)][seed as usize % 3];
        play(seed, resiliency, disks, 12);
    }
}

/// Steps of an update of a file by renaming a new one over it, as programs do it, without any fsync.
#[test]
fn a_name_has_its_old_or_its_new_content_at_every_crash_point() {
    let (old, new) = (noise(1, 9_000), noise(2, 400_000));
    for by_rename in [true, false] {
        let mut stop = 1;
        loop {
            let mut rig = Rig::mirror();
            let fs = rig.fs().clone();
            let ino = fs.t_create(ROOT_INO, "name");
            fs.t_write(ino, 0, &old);
            fs.sync_all().expect("syncs");
            rig.sim.world.stop_after(rig.sim.world.operations() + stop);
            let update = || -> Result<()> {
                if by_rename {
                    let (attr, handle) = fs.create(ROOT_INO, b"new", 0o644, OpenFlags::READ_WRITE, &ROOT)?;
                    fs.write(attr.ino, handle, 0, &new, false)?;
                    fs.release(attr.ino, handle)?;
                    fs.rename(ROOT_INO, b"new", ROOT_INO, b"name", RenameMode::Replace)?;
                } else {
                    let handle = fs.open(ino, OpenFlags { truncate: true, ..OpenFlags::READ_WRITE })?;
                    fs.write(ino, handle, 0, &new, false)?;
                    fs.release(ino, handle)?;
                }
                fs.tick();
                Ok(())
            };
            let done = update().is_ok() && !rig.sim.world.is_dark();
            drop(fs);
            rig.crash(PowerCut::ALL[stop as usize % PowerCut::ALL.len()], stop);
            let ino = rig.fs().t_find(ROOT_INO, "name").expect("the name is there");
            let content = rig.fs().t_read(ino);
            assert!(content == old || content == new, "stopped at {stop}: {} bytes", content.len());
            if done {
                assert!(content == new);
                break;
            }
            stop += 1;
        }
        assert!(stop > 5, "the update does something");
    }
}
