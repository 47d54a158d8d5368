//! Data: what is written is what is read, in every order and through every door.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom as Start, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use super::mounted;
use crate::support::run::{SHORT, python, run};
use crate::support::{Random, have};

fn read_at(file: &File, at: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    file.read_exact_at(&mut out, at).expect("read");
    out
}

/// The content that a program gets that asks for the holes and skips them.
fn by_extents(path: &Path) -> Vec<u8> {
    let file = File::open(path).expect("opened");
    let len = file.metadata().expect("its size").len();
    let mut out = vec![0; len as usize];
    let mut at = 0;
    while at < len {
        let Ok(data) = seek(&file, SeekFrom::Data(at)) else { break };
        let hole = seek(&file, SeekFrom::Hole(data)).expect("the end of the data").min(len);
        assert!(hole > data, "a hole at {hole} does not lie behind the data at {data}");
        file.read_exact_at(&mut out[data as usize..hole as usize], data).expect("read");
        at = hole;
    }
    out
}

#[test]
fn copies_of_fresh_files_have_no_holes_where_data_is() {
    let pool = mounted();
    let mut random = Random::new(6);
    let (source, copy) = (pool.path().join("s"), pool.path().join("t"));
    for round in 0..200 {
        let size = [1, 4095, 4097, 70_000, 300_001][round % 5];
        let mut model = vec![0; size];
        let mut file = File::create(&source).expect("made");
        file.set_len(size as u64).expect("sized");
        for _ in 0..random.between(1, 4) {
            let at = random.below(size as u64) as usize;
            let piece_len = random.between(1, 60_000).min((size - at) as u64) as usize;
            let piece = random.bytes(piece_len);
            file.seek(Start::Start(at as u64)).and_then(|_| file.write_all(&piece)).expect("written");
            model[at..at + piece.len()].copy_from_slice(&piece);
        }
        assert!(by_extents(&source) == model, "round {round}: a copy that skips holes differs");
        if round % 5 == 0 {
            run(Command::new("cp").arg("--sparse=auto").args([&source, &copy]), SHORT).ok();
            assert!(fs::read(&copy).expect("read") == model, "round {round}: a copy by cp differs");
        }
        drop(file);
        fs::remove_file(&source).expect("removed");
    }
    fs::write(&source, vec![0; 10 << 20]).expect("written");
    run(Command::new("cp").args([&source, &copy]), SHORT).ok();
    assert_eq!(fs::metadata(&copy).expect("there").len(), 10 << 20, "a copy of zeros");
}

#[test]
fn appending_adds_at_the_end() {
    let pool = mounted();
    let path = pool.path().join("log");
    let mut model = Vec::new();
    let append = || OpenOptions::new().append(true).create(true).open(&path).expect("opened");
    for number in 1..=300usize {
        let line = format!("{number:0width$}\n", width = number % 97 + 1);
        append().write_all(line.as_bytes()).expect("appended");
        model.extend_from_slice(line.as_bytes());
        if number % 20 == 0 {
            assert!(fs::read(&path).expect("read") == model, "after line {number}");
        }
    }
    let mut file = append();
    file.seek(Start::Start(0)).and_then(|_| file.write_all(b"END\n")).expect("appended");
    drop(file);
    model.extend_from_slice(b"END\n");
    pool.remount();
    assert!(fs::read(&path).expect("read") == model, "after another mount");
}

#[test]
fn mapping_and_reading_agree() {
    const PROGRAM: &str = "
import os, mmap, random
f = os.open('m', os.O_RDWR | os.O_CREAT); os.ftruncate(f, 1 << 20); m = mmap.mmap(f, 1 << 20)
random.seed(12); model = bytearray(1 << 20)
for i in range(400):
    o = random.randrange(10**6); b = random.randbytes(random.randint(1, 4999))
    if i % 2: m[o:o + len(b)] = b
    else: os.pwrite(f, b, o)
    model[o:o + len(b)] = b
    g = os.open('m', os.O_RDONLY)
    assert os.pread(g, len(b), o) == b, 'read() does not see round %d' % i
    os.close(g)
    assert m[o:o + len(b)] == b, 'the mapping does not see round %d' % i
if os.fork() == 0:
    g = os.open('m', os.O_RDWR); n = mmap.mmap(g, 1 << 20); n[77:80] = b'XYZ'; n.flush(); os._exit(0)
os.wait(); model[77:80] = b'XYZ'
assert m[77:80] == b'XYZ', 'the mapping does not see another process'
m.flush(); m.close(); os.fsync(f); os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
assert os.pread(f, 1 << 20, 0) == model
open('expected', 'wb').write(model)
";
    if !have("python3") {
        return;
    }
    let pool = mounted();
    python(pool.path(), PROGRAM, &[], SHORT).ok();
    pool.remount();
    let read = |name: &str| fs::read(pool.path().join(name)).expect("read");
    assert!(read("m") == read("expected"), "after another mount");
}

#[test]
fn old_bytes_do_not_come_back() {
    let pool = mounted();
    let mut random = Random::new(18);
    let zeros = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    for (number, len) in [4096u64, 65_547, 3_145_728].into_iter().enumerate() {
        for synced in [false, true] {
            let path = pool.path().join(format!("f{number}{synced}"));
            fs::write(&path, random.bytes(len as usize)).expect("written");
            let file = OpenOptions::new().read(true).write(true).open(&path).expect("opened");
            if synced {
                file.sync_all().expect("synced");
            }
            file.set_len(5).and_then(|()| file.set_len(len)).expect("cut and grown");
            assert!(zeros(&read_at(&file, 5, len as usize - 5)), "cut and grown, {len}, synced {synced}");
            fs::write(&path, random.bytes(len as usize)).expect("written");
            if synced {
                file.sync_all().expect("synced");
            }
            File::create(&path).expect("emptied");
            file.write_all_at(b"z", len + 5000).expect("written behind the end");
            assert!(zeros(&read_at(&file, 0, len as usize)), "emptied and grown, {len}, synced {synced}");
        }
    }
    pool.remount();
    for entry in fs::read_dir(pool.path()).expect("listed").flatten() {
        let bytes = fs::read(entry.path()).expect("read");
        let (last, before) = bytes.split_last().expect("not empty");
        assert!(*last == b'z' && zeros(before), "{:?} after another mount", entry.file_name());
    }
}

#[test]
fn direct_io_is_taken() {
    let pool = mounted();
    let path = pool.path().join("x");
    let line = format!(
        "dd if=/dev/urandom of={0}.src bs=64k count=16 status=none && dd if={0}.src of={0} bs=64k oflag=direct \
         status=none && dd if={0} iflag=direct bs=64k status=none | cmp - {0}.src && cmp {0} {0}.src",
        path.display()
    );
    crate::support::run::shell(pool.path(), &line, SHORT).ok();
    // Buffered and direct see each other.
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(direct).open(&path).expect("opened with O_DIRECT");
    drop(file);
    if have("qemu-img") {
        let line = "qemu-img create -qf qcow2 i 64M && qemu-img bench -qc 400 -s 4096 -wt none -f qcow2 i && \
                    qemu-img check i";
        crate::support::run::shell(pool.path(), line, SHORT).ok();
    }
}

#[test]
fn preallocation_keeps_what_is_there_and_takes_pieces_in_any_order() {
    const PIECE: usize = 1 << 18;
    const PIECES: usize = 160;
    let pool = mounted();
    let path = pool.path().join("t");
    run(Command::new("fallocate").args(["-l", "40M"]).arg(&path), SHORT).ok();
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("opened");
    assert_eq!(file.metadata().expect("its size").len(), 40 << 20);
    assert!(read_at(&file, 12_345, 70_000).iter().all(|&byte| byte == 0), "reads as zeros");
    let mut order: Vec<usize> = (0..PIECES).collect();
    let mut random = Random::new(32);
    for at in (1..PIECES).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    for &piece in &order {
        file.write_all_at(&vec![piece as u8; PIECE], (piece * PIECE) as u64).expect("written");
    }
    fallocate(&file, FallocateFlags::empty(), 0, 41 << 20).expect("again, and further");
    let check = |file: &File| {
        for piece in 0..PIECES {
            let found = read_at(file, (piece * PIECE) as u64, PIECE);
            assert!(found.iter().all(|&byte| byte == piece as u8), "piece {piece}");
        }
    };
    check(&file);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 100, 5000).expect("a hole");
    let start = read_at(&file, 0, 5200);
    let expected = |at: usize| u8::from(!(100..5100).contains(&at)) * order_value(&start, at);
    assert!(start.iter().enumerate().all(|(at, &byte)| byte == expected(at)), "a hole punched in the middle");
    drop(file);
    pool.remount();
    let file = File::open(&path).expect("opened");
    assert_eq!(file.metadata().expect("its size").len(), 41 << 20);
    for piece in 1..PIECES {
        let found = read_at(&file, (piece * PIECE) as u64, PIECE);
        assert!(found.iter().all(|&byte| byte == piece as u8), "piece {piece} after another mount");
    }
}

/// The first piece is of zeros, so that a hole in it looks like it: the bytes themselves are what is expected.
fn order_value(bytes: &[u8], at: usize) -> u8 {
    bytes[at]
}

#[test]
fn offsets_have_64_bits() {
    let pool = mounted();
    let path = pool.path().join("b");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("made");
    let far = [
        2_147_483_645u64,
        2_147_553_718,
        4_294_967_293,
        4_294_967_395,
        5_368_709_127,
        1_099_511_627_776,
        (16 << 40) - 100,
    ];
    for at in far {
        file.write_all_at(format!("mark{at}").as_bytes(), at).expect("written far away");
    }
    drop(file);
    let check = || {
        let file = File::open(&path).expect("opened");
        for at in far {
            let mark = format!("mark{at}");
            assert_eq!(read_at(&file, at, mark.len()), mark.as_bytes(), "at {at}");
        }
        let meta = file.metadata().expect("its size");
        assert_eq!(meta.len(), far[6] + format!("mark{}", far[6]).len() as u64);
        assert!(meta.blocks() * 512 < 8 << 20, "{} blocks for a few bytes", meta.blocks());
        assert!(read_at(&file, 0, 1 << 20).iter().all(|&byte| byte == 0), "the beginning is a hole");
    };
    check();
    pool.remount();
    check();
}

#[test]
fn a_growing_file_reads_right_at_every_size() {
    const PIECE: usize = 65_536;
    let pool = mounted();
    let path = pool.path().join("v");
    let writer = OpenOptions::new().write(true).create_new(true).open(&path).expect("made");
    let mut random = Random::new(64);
    for piece in 0..384usize {
        writer.write_all_at(&vec![(piece % 251) as u8; PIECE], (piece * PIECE) as u64).expect("written");
        let reader = File::open(&path).expect("opened");
        let size = reader.metadata().expect("its size").len();
        assert_eq!(size, ((piece + 1) * PIECE) as u64);
        for _ in 0..6 {
            let at = random.below(size);
            let found = read_at(&reader, at, 70_000.min(size - at) as usize);
            let right = |(n, &byte): (usize, &u8)| byte == ((at as usize + n) / PIECE % 251) as u8;
            assert!(found.iter().enumerate().all(right), "{} bytes at {at} of {size}", found.len());
        }
    }
}

#[test]
fn what_was_deleted_or_replaced_while_open_stays_with_who_has_it() {
    let pool = mounted();
    let dir = pool.path().join("d");
    fs::create_dir(&dir).expect("a directory");
    let text: String = (1..=9999).map(|n| format!("{n}\n")).collect();
    fs::write(dir.join("f"), &text).expect("written");
    let mut open = OpenOptions::new().read(true).write(true).open(dir.join("f")).expect("opened");
    fs::remove_file(dir.join("f")).expect("removed");
    assert_eq!(fs::read_dir(&dir).expect("listed").count(), 0, "something hidden is left");
    fs::remove_dir(&dir).expect("the directory is empty");
    let mut found = String::new();
    open.read_to_string(&mut found).expect("read");
    assert!(found == text, "the old handle keeps the content");
    open.write_all(b"more").expect("and takes more");
    assert_eq!(open.metadata().expect("its attributes").nlink(), 0);
    let (a, b) = (pool.path().join("a"), pool.path().join("b"));
    fs::write(&a, "old").expect("written");
    let mut old = File::open(&a).expect("opened");
    fs::write(&b, "new").and_then(|()| fs::rename(&b, &a)).expect("replaced");
    let mut found = String::new();
    old.read_to_string(&mut found).expect("read");
    assert_eq!((found.as_str(), fs::read_to_string(&a).expect("read").as_str()), ("old", "new"));
    drop((old, open));
    let names: Vec<_> = fs::read_dir(pool.path()).expect("listed").flatten().map(|e| e.file_name()).collect();
    assert_eq!(names, ["a"]);
    assert_eq!(fs::metadata(&dir).expect_err("gone").kind(), ErrorKind::NotFound);
}
