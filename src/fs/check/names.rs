//! Directories, by name and by cookie, and who links to an inode.

use std::collections::HashMap;

use super::rows::Rows;
use super::{Area, Check};
use crate::fs::error::Result;
use crate::member::wire;
use crate::store::tables::{
    CookieEntry, Entry, Ino, Inode, ROOT_INO, Table, cookie_key, ino_key, single, split_pair,
};

/// Numbers of inodes whose links are counted at a time.
const INODES_AT_ONCE: u64 = 1 << 20;

/// What is known of an inode, and what was counted.
#[derive(Debug, Clone, Copy, Default)]
struct Links {
    /// Type, as the `S_IFMT` bits; 0 where there is no inode.
    kind: u32,
    expected: u32,
    counted: u32,
}

/// A part of the numbers.
struct Part {
    /// What lies from the end of the part before up to the first inode is a gap.
    gap: Ino,
    first: Ino,
    links: Vec<Links>,
    /// Of directories: which one they say they are in.
    parents: HashMap<Ino, Ino>,
}

impl Part {
    fn end(&self) -> Ino {
        self.first.saturating_add(INODES_AT_ONCE)
    }

    fn get(&mut self, ino: Ino) -> Option<&mut Links> {
        let index = usize::try_from(ino.checked_sub(self.first)?).ok()?;
        self.links.get_mut(index).filter(|links| links.kind != 0)
    }
}

fn is_dir(kind: u32) -> bool {
    kind & libc::S_IFMT == libc::S_IFDIR
}

fn shown(name: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(name))
}

impl Check<'_> {
    /// Each directory has as many entries as it says, each by name and by cookie.
    pub(super) fn directories(&mut self) -> Result<()> {
        let store = &self.fs.store;
        let mut inodes = Rows::of(store, Table::Inodes);
        let (mut entries, mut cookies) = (Rows::of(store, Table::Entries), Rows::of(store, Table::Cookies));
        while let Some((key, value)) = inodes.next()? {
            // A damaged record was found before.
            let (Some(ino), Ok(inode)) = (single(&key), wire::unpack::<Inode>(&value)) else { continue };
            self.homeless(&mut entries, &mut cookies, &key)?;
            let end = ino_key(ino.saturating_add(1));
            let (mut by_name, mut by_cookie) = (0, 0);
            while let Some((key, value)) = entries.next_below(&end)? {
                by_name += 1;
                self.entry(ino, &inode, key.get(8..).unwrap_or_default(), &value)?;
            }
            while let Some((key, _)) = cookies.next_below(&end)? {
                by_cookie += 1;
                if split_pair(&key).is_none_or(|(_, cookie)| cookie >= inode.next_cookie) {
                    self.report.add(Area::Names, format!("directory {ino} has a cookie above its next"));
                }
            }
            self.report.names += by_name;
            let wanted = if is_dir(inode.mode) { inode.entries } else { 0 };
            if by_name != wanted || by_cookie != wanted {
                let what = format!(
                    "inode {ino} counts {wanted} entries, and has {by_name} by name and {by_cookie} by cookie"
                );
                self.report.add(Area::Names, what);
            }
        }
        self.homeless(&mut entries, &mut cookies, &[0xff; 300])
    }

    fn homeless(&mut self, entries: &mut Rows<'_>, cookies: &mut Rows<'_>, upto: &[u8]) -> Result<()> {
        self.homeless_in(entries, upto)?;
        self.homeless_in(cookies, upto)
    }

    fn homeless_in(&mut self, rows: &mut Rows<'_>, upto: &[u8]) -> Result<()> {
        while let Some((key, _)) = rows.next_below(upto)? {
            let ino = key.get(..8).and_then(single).unwrap_or_default();
            self.report.add(Area::Names, format!("an entry of directory {ino}, which does not exist"));
        }
        Ok(())
    }

    /// An entry has the same at its cookie.
    fn entry(&mut self, dir: Ino, inode: &Inode, name: &[u8], value: &[u8]) -> Result<()> {
        let Ok(entry) = wire::unpack::<Entry>(value) else {
            self.report.add(Area::Names, format!("{} in directory {dir} is damaged", shown(name)));
            return Ok(());
        };
        let row = self.fs.store.get(Table::Cookies, &cookie_key(dir, entry.cookie))?;
        let by_cookie = row.and_then(|row| wire::unpack::<CookieEntry>(&row).ok());
        let same = by_cookie
            .is_some_and(|other| other.name == name && other.ino == entry.ino && other.kind == entry.kind);
        if !same || entry.cookie >= inode.next_cookie {
            let what = format!("{} in directory {dir} is not the same by its cookie", shown(name));
            self.report.add(Area::Names, what);
        }
        Ok(())
    }

    /// Every name leads to an inode of its type, and every inode has as many links as lead to it.
    pub(super) fn links(&mut self) -> Result<()> {
        let mut gap = 0;
        loop {
            let Some(mut part) = self.part(gap)? else {
                // Names that lead behind the last inode.
                let mut nothing = Part { gap, first: u64::MAX, links: Vec::new(), parents: HashMap::new() };
                return self.count(&mut nothing);
            };
            self.count(&mut part)?;
            for (index, links) in part.links.iter().enumerate().filter(|(_, links)| links.kind != 0) {
                if links.counted != links.expected {
                    let ino = part.first + index as u64;
                    let (has, says) = (links.counted, links.expected);
                    self.report.add(Area::Names, format!("inode {ino} says {says} links, and has {has}"));
                }
            }
            gap = part.end();
        }
    }

    /// The next inodes from `gap` on.
    fn part(&self, gap: Ino) -> Result<Option<Part>> {
        let mut rows = Rows::from(&self.fs.store, Table::Inodes, ino_key(gap));
        let Some((key, value)) = rows.next()? else { return Ok(None) };
        let first = single(&key).unwrap_or(gap);
        let mut part = Part { gap, first, links: Vec::new(), parents: HashMap::new() };
        let end = ino_key(part.end());
        let mut row = Some((key, value));
        while let Some((key, value)) = row {
            if let (Some(ino), Ok(inode)) = (single(&key), wire::unpack::<Inode>(&value)) {
                part.links.resize((ino - first) as usize + 1, Links::default());
                let kind = inode.mode & libc::S_IFMT;
                let own = if ino == ROOT_INO { 2 } else { u32::from(is_dir(kind) && inode.nlink > 0) };
                if is_dir(kind) {
                    part.parents.insert(ino, inode.parent);
                }
                if let Some(last) = part.links.last_mut() {
                    *last = Links { kind, expected: inode.nlink, counted: own };
                }
            }
            row = rows.next_below(&end)?;
        }
        Ok(Some(part))
    }

    /// Counts what leads to the inodes of a part.
    fn count(&mut self, part: &mut Part) -> Result<()> {
        let mut entries = Rows::of(&self.fs.store, Table::Entries);
        while let Some((key, value)) = entries.next()? {
            let Some(dir) = key.get(..8).and_then(single) else { continue };
            let Ok(entry) = wire::unpack::<Entry>(&value) else { continue };
            let directory = is_dir(entry.kind);
            if directory && let Some(links) = part.get(dir) {
                links.counted += 1;
            }
            if entry.ino < part.gap || entry.ino >= part.end() && part.first != u64::MAX {
                continue;
            }
            let name = || shown(key.get(8..).unwrap_or_default());
            match part.get(entry.ino) {
                None => {
                    let what = format!(
                        "{} in directory {dir} leads to inode {}, which does not exist",
                        name(),
                        entry.ino
                    );
                    self.report.add(Area::Names, what);
                }
                Some(links) if links.kind != entry.kind => {
                    let what =
                        format!("{} in directory {dir} has another type than inode {}", name(), entry.ino);
                    self.report.add(Area::Names, what);
                }
                Some(links) => links.counted += 1,
            }
            if directory && part.parents.get(&entry.ino).is_some_and(|parent| *parent != dir) {
                let what = format!("directory {} is in {dir}, and says otherwise", entry.ino);
                self.report.add(Area::Names, what);
            }
        }
        Ok(())
    }
}
