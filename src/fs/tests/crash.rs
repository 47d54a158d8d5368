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
    // Those of up to 2 KiB have no extent.
    let sizes = [(9_000, 400_000), (1_000, 1_500), (1_000, 9_000), (9_000, 1_000)];
    for (by_rename, (old, new)) in sizes.into_iter().flat_map(|sizes| [(true, sizes), (false, sizes)]) {
        let (old, new) = (noise(1, old), noise(2, new));
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
        assert!(stop > 2, "the update does something");
    }
}

/// A file crosses the size up to which content is kept in a table, up and down, each step synced.
#[test]
fn a_file_that_crosses_the_inline_limit_is_whole_at_every_crash_point() {
    let steps: [(u64, u64, usize); 7] = [
        (0, 0, 900),
        (900, 900, 600),
        (1500, 1500, 3000),
        (300, 100, 50),
        (0, 0, 1200),
        (700, 5000, 10),
        (0, 0, 7),
    ];
    let mut contents = vec![Vec::new()];
    for (index, (size, at, len)) in steps.into_iter().enumerate() {
        let mut content = contents[index].clone();
        content.resize(size as usize, 0);
        content.resize(content.len().max(at as usize + len), 0);
        content[at as usize..at as usize + len].copy_from_slice(&noise(index as u64, len));
        contents.push(content);
    }
    let mut stop = 1;
    loop {
        let mut rig = Rig::mirror();
        let fs = rig.fs().clone();
        let ino = fs.t_create(ROOT_INO, "file");
        fs.sync_all().expect("syncs");
        rig.sim.world.stop_after(rig.sim.world.operations() + stop);
        let mut synced = 0;
        let mut play = || -> Result<()> {
            for (index, (size, at, len)) in steps.into_iter().enumerate() {
                fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }, &ROOT)?;
                fs.write(ino, 0, at, &noise(index as u64, len), false)?;
                // By way of the journal, of a flush, or of both.
                if !(stop + index as u64).is_multiple_of(3) {
                    fs.fsync(ino, false)?;
                }
                if (stop + index as u64).is_multiple_of(2) {
                    fs.sync_all()?;
                    fs.t_cool();
                }
                fs.fsync(ino, true)?;
                synced = index + 1;
            }
            Ok(())
        };
        let done = play().is_ok() && !rig.sim.world.is_dark();
        drop(fs);
        rig.crash(PowerCut::ALL[stop as usize % PowerCut::ALL.len()], stop);
        let content = rig.fs().t_read(ino);
        let was = &contents[synced];
        // What came after the last sync may be there, in part: cut, or grown with zeros or with the new bytes.
        let next = contents.get(synced + 1).unwrap_or(was);
        let fits =
            |at: usize, byte: u8| byte == 0 || was.get(at) == Some(&byte) || next.get(at) == Some(&byte);
        assert!(content.iter().enumerate().all(|(at, byte)| fits(at, *byte)), "stopped at {stop}");
        if done {
            assert!(content == *was);
            break;
        }
        if synced > 0 && steps.get(synced).is_none_or(|(size, ..)| *size >= was.len() as u64) {
            assert!(content.len() >= was.len() && content[..was.len()] == was[..], "stopped at {stop}");
        }
        stop += 1;
    }
    assert!(stop > 20, "the steps do something");
}
