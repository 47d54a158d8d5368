//! Many small fsyncs: the journal's ring goes round and round, and nothing acknowledged gets lost.

use super::*;

#[test]
fn an_appender_never_finds_the_journal_full() {
    let rig = Rig::mirror();
    let fs = rig.fs().clone();
    let ino = fs.t_create(ROOT_INO, "log");
    for round in 0..5000u64 {
        fs.t_write(ino, round * 100, &[round as u8; 100]);
        fs.fsync(ino, true).unwrap_or_else(|error| panic!("fsync {round}: {error}"));
    }
    assert!(fs.t_read(ino).chunks(100).enumerate().all(|(round, line)| line == [round as u8; 100]));
}

#[test]
fn files_rewritten_and_fsynced_are_whole_after_a_crash_wherever_the_ring_stands() {
    let mut random = 77;
    let mut rig = Rig::mirror();
    let mut files: Vec<(Ino, Vec<u8>)> = Vec::new();
    for index in 0..40 {
        let ino = rig.fs().t_create(ROOT_INO, &format!("f{index}"));
        rig.fs().fsync(ino, false).expect("syncs");
        files.push((ino, Vec::new()));
    }
    for crash in 0..6u64 {
        for round in 0..900u64 {
            let fs = rig.fs();
            let (ino, content) = &mut files[next_random(&mut random) as usize % 40];
            match next_random(&mut random) % 4 {
                0 => {
                    *content = noise(round, next_random(&mut random) as usize % 9000);
                    let handle =
                        fs.open(*ino, OpenFlags { truncate: true, ..OpenFlags::READ_WRITE }).expect("opens");
                    fs.t_write(*ino, 0, content);
                    fs.release(*ino, handle).expect("releases");
                }
                1 if !content.is_empty() => {
                    let at = next_random(&mut random) as usize % content.len();
                    let len = (content.len() - at).min(5000);
                    content[at..at + len].copy_from_slice(&noise(round, len));
                    let part = content[at..at + len].to_vec();
                    fs.t_write(*ino, at as u64, &part);
                }
                _ => {
                    let more = noise(round, 100);
                    fs.t_write(*ino, content.len() as u64, &more);
                    content.extend(more);
                }
            }
            fs.fsync(*ino, false)
                .unwrap_or_else(|error| panic!("fsync {round} before crash {crash}: {error}"));
            if next_random(&mut random).is_multiple_of(400) {
                rig.clock.advance(Duration::from_secs(6));
                fs.tick();
            }
        }
        rig.crash(PowerCut::ALL[crash as usize % PowerCut::ALL.len()], crash);
        for (ino, content) in &files {
            assert!(rig.fs().t_read(*ino) == *content, "inode {ino} after crash {crash}");
        }
    }
}
