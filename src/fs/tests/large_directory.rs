//! A directory of fifty thousand entries, read piece by piece as a kernel does.

use std::collections::BTreeSet;

use super::node_table::NodeTable;
use super::*;

const ENTRIES: u64 = 50_000;

/// Makes the directory. Its files stay all the time.
fn large(fs: &Fs) -> Ino {
    let dir = fs.t_mkdir(ROOT_INO, "large");
    for n in 0..ENTRIES {
        let attr = fs.mknod(dir, name(n).as_bytes(), 0o644, 0, &ROOT).expect("makes");
        fs.forget(attr.ino, 1);
        if n % 1000 == 0 {
            fs.tick();
        }
    }
    dir
}

fn name(n: u64) -> String {
    format!("entry-{n}")
}

/// A piece of at most `most` entries behind `after`, as names, and the cookie to go on with.
fn piece(fs: &Fs, dir: Ino, after: u64, most: usize) -> (Vec<String>, u64) {
    let (mut names, mut next) = (Vec::new(), after);
    fs.readdir(dir, after, &mut |entry| {
        if names.len() == most {
            return false;
        }
        next = entry.cookie;
        names.push(String::from_utf8(entry.name).expect("ascii"));
        true
    })
    .expect("reads");
    (names, next)
}

#[test]
fn what_stays_is_listed_once_while_others_come_and_go() {
    let mut rig = Rig::new("mirror", 2, 200);
    let dir = large(rig.fs());
    let mut dice = model::Dice::new(4);
    let (mut seen, mut after, mut pieces) = (BTreeSet::new(), 0, 0_u64);
    loop {
        let (names, next) = piece(rig.fs(), dir, after, 1 + dice.roll(700) as usize);
        if names.is_empty() {
            break;
        }
        for name in names {
            assert!(seen.insert(name.clone()), "{name} is listed twice");
        }
        after = next;
        pieces += 1;
        // Guests come behind all others: with one more for each piece the reader would have no end.
        if pieces <= 100 {
            let fs = rig.fs();
            fs.t_create(dir, &format!("guest-{pieces}"));
            if pieces % 2 == 0 {
                fs.unlink(dir, format!("guest-{}", pieces - 1).as_bytes()).expect("unlinks");
            }
        }
        if pieces == 40 {
            // A reader that goes on after a new mount.
            rig.remount();
        }
        assert!(pieces < 10 * ENTRIES, "reading does not end");
    }
    assert!((0..ENTRIES).all(|n| seen.contains(&name(n))));
}

#[test]
fn with_attributes_few_inodes_are_in_memory_and_each_one_taken_is_counted() {
    let rig = Rig::new("mirror", 2, 200);
    let fs = rig.fs();
    let dir = large(fs);
    assert_eq!(fs.nodes.known(), 0);
    let (mut after, mut taken, mut most) = (0, Vec::new(), 0);
    loop {
        let before = taken.len();
        // About as many as fit into a page.
        let mut room = 25;
        fs.readdirplus(dir, after, &mut |entry, attr| {
            if room == 0 {
                return false;
            }
            room -= 1;
            after = entry.cookie;
            if entry.cookie > 2 {
                assert_eq!(attr.ino, entry.ino);
                taken.push(entry.ino);
            }
            true
        })
        .expect("reads");
        most = most.max(fs.nodes.all().len());
        if taken.len() == before {
            break;
        }
    }
    assert_eq!((taken.len() as u64, fs.nodes.known() as u64), (ENTRIES, ENTRIES));
    assert!(most <= NodeTable::KEPT + 1, "{most} inodes were in memory");
    taken.into_iter().for_each(|ino| fs.forget(ino, 1));
    assert_eq!(fs.nodes.known(), 0);
}
