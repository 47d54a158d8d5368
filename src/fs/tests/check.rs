//! Do the tables agree with each other?

use std::collections::BTreeMap;

use super::*;
use crate::member::wire::decode;
use crate::store::tables::*;

fn all<V: serde::de::DeserializeOwned>(fs: &Fs, table: Table) -> Vec<(Vec<u8>, V)> {
    fs.store
        .scan(table, &[], &[0xff; 300], usize::MAX)
        .expect("scans")
        .into_iter()
        .map(|(key, value)| (key, decode(&value).expect("decodes")))
        .collect()
}

/// Panics with what is wrong.
pub fn tables(fs: &Fs) {
    let inodes: BTreeMap<Ino, Inode> = all::<Inode>(fs, Table::Inodes)
        .into_iter()
        .map(|(key, value)| (single(&key).expect("ino"), value))
        .collect();
    names(fs, &inodes);
    maps(fs, &inodes);
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

fn names(fs: &Fs, inodes: &BTreeMap<Ino, Inode>) {
    let mut links: BTreeMap<Ino, u32> = BTreeMap::new();
    let mut entries: BTreeMap<Ino, u64> = BTreeMap::new();
    let cookies: BTreeMap<Vec<u8>, CookieEntry> = all(fs, Table::Cookies).into_iter().collect();
    let by_name = all::<Entry>(fs, Table::Entries);
    assert_eq!(by_name.len(), cookies.len(), "entries by name and by cookie");
    for (key, entry) in by_name {
        let parent = u64::from_be_bytes(key[..8].try_into().expect("8 bytes"));
        let cookie = cookies.get(&cookie_key(parent, entry.cookie)).expect("its cookie is there");
        assert_eq!((&cookie.name[..], cookie.ino, cookie.kind), (&key[8..], entry.ino, entry.kind));
        let inode = inodes.get(&entry.ino).unwrap_or_else(|| panic!("{:?} leads nowhere", cookie.name));
        assert_eq!(inode.mode & libc::S_IFMT, entry.kind);
        let dir = &inodes[&parent];
        assert!(entry.cookie < dir.next_cookie, "a cookie above the next");
        *entries.entry(parent).or_default() += 1;
        *links.entry(entry.ino).or_default() += 1;
        if entry.kind == libc::S_IFDIR {
            assert_eq!(inode.parent, parent, "directory {} knows another parent", entry.ino);
            *links.entry(entry.ino).or_default() += 1;
            *links.entry(parent).or_default() += 1;
        }
    }
    *links.entry(ROOT_INO).or_default() += 2;
    let orphans: Vec<Ino> =
        all::<()>(fs, Table::Orphans).iter().map(|(key, ())| single(key).expect("ino")).collect();
    for (ino, inode) in inodes {
        assert_eq!(inode.nlink, links.get(ino).copied().unwrap_or(0), "links of {ino}");
        assert_eq!(inode.nlink == 0, orphans.contains(ino), "orphan {ino}");
        if inode.mode & libc::S_IFMT == libc::S_IFDIR {
            assert_eq!(inode.entries, entries.get(ino).copied().unwrap_or(0), "entries of {ino}");
        }
    }
    for (key, _) in fs.store.scan(Table::Xattrs, &[], &[0xff; 300], usize::MAX).expect("scans") {
        assert!(inodes.contains_key(&u64::from_be_bytes(key[..8].try_into().expect("8"))), "xattr of nobody");
    }
}

/// Files with inline content.
fn rows(fs: &Fs, inodes: &BTreeMap<Ino, Inode>) -> Vec<Ino> {
    let found = fs.store.scan(Table::Inline, &[], &[0xff; 300], usize::MAX).expect("scans");
    let mut inos = Vec::new();
    for (key, row) in found {
        let ino = single(&key).expect("ino");
        assert!(inodes.contains_key(&ino), "inline content of nobody: {ino}");
        assert!(!row.is_empty() && row.len() as u64 <= crate::limits::INLINE_MAX_BYTES);
        inos.push(ino);
    }
    inos
}

fn maps(fs: &Fs, inodes: &BTreeMap<Ino, Inode>) {
    assert!(all::<Intent>(fs, Table::Intents).is_empty(), "an intent is left");
    let extents: BTreeMap<Vec<u8>, Extent> = all(fs, Table::Extents).into_iter().collect();
    let mut refs: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    let mut held: BTreeMap<Ino, u64> = BTreeMap::new();
    let mut last: (Ino, u64) = (0, 0);
    for (key, entry) in all::<MapEntry>(fs, Table::Map) {
        let (ino, start) = split_pair(&key).expect("a pair");
        assert!(inodes.contains_key(&ino), "a map of nobody: {ino}");
        assert!(last.0 != ino || last.1 <= start, "ranges of {ino} overlap at {start}");
        last = (ino, start + entry.len);
        *held.entry(ino).or_default() += entry.len / 4096;
        if let Some((id, at)) = entry.extent {
            let extent =
                extents.get(&extent_key(id)).unwrap_or_else(|| panic!("extent {id} of {ino} is gone"));
            assert!(u64::from(at) + entry.len <= u64::from(extent.len), "beyond extent {id}");
            assert_eq!(extent.sums.len() as u64 * 4096, u64::from(extent.len));
            let key = ref_key(id, ino, start.wrapping_sub(u64::from(at)));
            *refs.entry(key).or_default() += entry.len as u32;
        }
    }
    let rows = rows(fs, inodes);
    for (ino, inode) in inodes {
        let row = u64::from(inode.inline);
        assert_eq!(inode.sectors, held.get(ino).copied().unwrap_or(0) + row, "sectors of {ino}");
        assert_eq!(inode.inline, rows.contains(ino), "inline content of {ino}");
        let first = fs.store.get(Table::Map, &map_key(*ino, 0)).expect("reads");
        assert!(!inode.inline || first.is_none(), "inode {ino} has its first sector twice");
    }
    assert_eq!(all::<u32>(fs, Table::Refs).into_iter().collect::<BTreeMap<_, _>>(), refs, "references");
    places(fs, &extents, &refs);
}

/// Every extent has its place, does not overlap another, and counts in its set.
fn places(fs: &Fs, extents: &BTreeMap<Vec<u8>, Extent>, refs: &BTreeMap<Vec<u8>, u32>) {
    let places: Vec<(Vec<u8>, ExtentId)> = all(fs, Table::Places);
    assert_eq!(places.len(), extents.len(), "places and extents");
    let mut last = (0, 0);
    let mut live: BTreeMap<u64, i64> = BTreeMap::new();
    for (key, id) in places {
        let place = extents.get(&extent_key(id)).unwrap_or_else(|| panic!("no extent {id} there")).place();
        assert_eq!(key, place_key(place.set, place.address), "the place of extent {id}");
        assert!(last.0 != place.set || last.1 <= place.address, "extents overlap in set {}", place.set);
        last = (place.set, place.address + u64::from(place.len));
        let own = refs.range(ref_key(id, 0, 0)..extent_key(id + 1));
        let referenced: u64 = own.map(|(_, bytes)| u64::from(*bytes)).sum();
        assert!(referenced > 0, "extent {id} is left without references");
        *live.entry(place.set).or_default() += referenced.min(u64::from(place.len)) as i64;
    }
    for usage in fs.pool.data_sets() {
        assert_eq!(usage.live, live.remove(&usage.id).unwrap_or(0), "live bytes of set {}", usage.id);
    }
    assert!(live.is_empty(), "extents in sets that are not there: {live:?}");
}
