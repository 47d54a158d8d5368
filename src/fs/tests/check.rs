//! Does everything agree? And is it noticed when it does not?

use super::*;
use crate::store::Tx;
use crate::store::tables::*;

/// Panics with what is wrong.
pub fn tables(fs: &Fs) {
    let report = fs.check(CheckOptions::default()).expect("checks");
    assert_eq!((report.findings, report.more_findings), (Vec::new(), 0));
    let intents = fs.store.scan(Table::Intents, &[], &[0xff; 9], 10).expect("scans");
    assert!(intents.is_empty(), "an intent is left");
    reservations(fs);
}

/// No more is reserved than is dirty, or was promised.
fn reservations(fs: &Fs) {
    for node in fs.nodes.all().into_iter().filter_map(|ino| fs.nodes.peek(ino)) {
        let state = node.state.read();
        assert_eq!(state.reserved, fs.cache.dirty_bytes_of(node.ino), "reserved for {}", node.ino);
        assert!(state.held <= state.inode.sectors * 4096, "held for {}", node.ino);
    }
}

/// A pool with a bit of everything: a shared file, a small one, a directory.
fn full_of_everything() -> (Rig, Ino, ExtentId) {
    let rig = Rig::mirror();
    let fs = rig.fs();
    let dir = fs.t_mkdir(ROOT_INO, "dir");
    let (file, copy) = (fs.t_create(dir, "file"), fs.t_create(ROOT_INO, "copy"));
    fs.t_write(file, 0, &noise(1, 50_000));
    fs.t_write(fs.t_create(dir, "small"), 0, b"a little");
    fs.setxattr(file, b"user.x", b"y", XattrMode::Either).expect("sets");
    fs.copy_file_range((file, 0, 0), (copy, 0, 0), 20_000).expect("copies");
    fs.sync_all().expect("syncs");
    tables(fs);
    let rows = fs.store.scan(Table::Extents, &[], &[0xff; 9], 1).expect("scans");
    let id = single(&rows[0].0).expect("a number");
    (rig, file, id)
}

/// Everything that two tables could disagree about.
#[test]
fn every_contradiction_is_found() {
    type Damage = fn(&Fs, Ino, ExtentId, &mut Tx);
    let damages: [(Area, &str, Damage); 21] = [
        (Area::Files, "sectors", |fs, ino, _, tx| {
            let inode = record(fs, ino);
            tx.put(Table::Inodes, ino_key(ino), &Inode { sectors: 7, ..inode });
        }),
        (Area::Names, "links", |fs, ino, _, tx| {
            let inode = record(fs, ino);
            tx.put(Table::Inodes, ino_key(ino), &Inode { nlink: 2, ..inode });
        }),
        (Area::Files, "orphan", |_, ino, _, tx| tx.put(Table::Orphans, ino_key(ino), &())),
        (Area::Files, "attribute", |_, _, _, tx| {
            tx.put_raw(Table::Xattrs, xattr_key(999, b"user.z"), vec![1])
        }),
        (Area::Files, "small content", |_, ino, _, tx| tx.put_raw(Table::Inline, ino_key(ino), vec![1])),
        (Area::Names, "leads to inode 999", |_, _, _, tx| {
            let entry = Entry { ino: 999, kind: libc::S_IFREG, cookie: 3 };
            tx.put(Table::Entries, entry_key(ROOT_INO, b"ghost"), &entry);
        }),
        (Area::Names, "directory 999", |_, ino, _, tx| {
            let entry = Entry { ino, kind: libc::S_IFREG, cookie: 3 };
            tx.put(Table::Entries, entry_key(999, b"ghost"), &entry);
        }),
        (Area::Names, "by its cookie", |_, _, _, tx| tx.delete(Table::Cookies, cookie_key(ROOT_INO, 3))),
        (Area::Names, "another type", |fs, ino, _, tx| {
            let inode = record(fs, ino);
            tx.put(Table::Inodes, ino_key(ino), &Inode { mode: libc::S_IFIFO | 0o600, ..inode });
        }),
        (Area::Extents, "is not among its references", |_, _, id, tx| {
            tx.delete(Table::Extents, extent_key(id));
        }),
        (Area::Extents, "is referred to, and does not exist", |_, ino, _, tx| {
            tx.put(Table::Refs, ref_key(77_777, ino, 0), &4096_u32);
        }),
        (Area::Extents, "nobody refers", |_, _, _, tx| {
            let extent = Extent { set: 1, address: 0, len: 4096, owner: Owner::default(), sums: vec![0] };
            tx.put(Table::Extents, extent_key(77_777), &extent);
            tx.put(Table::Refs, ref_key(77_777, 0, 0), &0_u32);
        }),
        (Area::Extents, "the reference of inode 0", |_, _, _, tx| {
            let extent = Extent { set: 1, address: 0, len: 4096, owner: Owner::default(), sums: vec![0] };
            tx.put(Table::Extents, extent_key(77_777), &extent);
        }),
        (Area::Extents, "too large", |_, ino, id, tx| {
            tx.put(Table::Refs, ref_key(id, ino, 0), &(1_u32 << 20))
        }),
        (Area::Extents, "not among its references", |_, ino, id, tx| {
            tx.put(Table::Refs, ref_key(id, ino, 0), &0_u32);
        }),
        (Area::Extents, "beyond the end", |_, ino, id, tx| {
            let entry = MapEntry { len: 4 << 20, extent: Some((id, 0)) };
            tx.put(Table::Map, map_key(ino, 0), &entry);
        }),
        (Area::Extents, "overlaps", |fs, _, id, tx| {
            let place = place(fs, id);
            tx.put(Table::Places, place_key(place.set, place.address), &vec![(id, 0), (id, place.len)]);
        }),
        (Area::Extents, "left behind", |_, _, id, tx| {
            tx.put(Table::Places, place_key(1 << 40, 0), &vec![(id, 4096_u32)]);
        }),
        (Area::Extents, "and places for", |fs, _, id, tx| {
            let place = place(fs, id);
            tx.delete(Table::Places, place_key(place.set, place.address));
        }),
        (Area::Sets, "bytes alive", |fs, _, id, tx| tx.live(place(fs, id).set, 4096)),
        (Area::Extents, "nothing was written", |fs, _, id, tx| {
            let old = place(fs, id);
            let extent: Extent =
                fs.store.read(Table::Extents, &extent_key(id)).expect("reads").expect("there");
            tx.delete(Table::Places, place_key(old.set, old.address));
            tx.put(Table::Places, place_key(old.set, 900 << 10), &vec![(id, old.len)]);
            tx.put(Table::Extents, extent_key(id), &Extent { address: 900 << 10, ..extent });
        }),
    ];
    for (area, what, damage) in damages {
        let (rig, ino, id) = full_of_everything();
        let mut tx = Tx::new();
        damage(rig.fs(), ino, id, &mut tx);
        rig.fs().store.commit(tx).expect("commits");
        let report = rig.fs().check(CheckOptions::default()).expect("checks");
        let found = report.findings.iter().any(|one| one.area == area && one.what.contains(what));
        assert!(found, "{what}: {:?}", report.findings);
    }
}

fn record(fs: &Fs, ino: Ino) -> Inode {
    fs.store.read(Table::Inodes, &ino_key(ino)).expect("reads").expect("there")
}

fn place(fs: &Fs, id: ExtentId) -> Place {
    let extent: Extent = fs.store.read(Table::Extents, &extent_key(id)).expect("reads").expect("there");
    extent.place()
}

#[test]
fn rotten_data_is_found_when_data_is_read() {
    let rig = Rig::new("simple", 1, 64);
    let ino = rig.fs().t_create(ROOT_INO, "file");
    rig.fs().t_write(ino, 0, &noise(1, 100_000));
    rig.fs().sync_all().expect("syncs");
    let clean = rig.fs().check(CheckOptions { data: true }).expect("checks");
    assert!(clean.findings.is_empty() && clean.data_bytes >= 100_000, "{clean:?}");
    for slab in 0..8 {
        rig.sim.disks[0].flip(crate::member::Area::Slab(slab), 4096 + 8192 + 5, 3);
    }
    rig.fs().t_cool();
    let report = rig.fs().check(CheckOptions { data: true }).expect("checks");
    assert!(report.findings.iter().any(|one| one.area == Area::Data), "{report:?}");
}
