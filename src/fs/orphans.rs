//! What a crash left half done: cuts of long maps, and files without a name.

use super::Fs;
use super::error::{FsError, Result};
use crate::store::Tx;
use crate::store::tables::{Ino, Intent, Table, ino_key, single};
use crate::sync::atomic::Ordering;

/// Records that are read in one go.
const BATCH: usize = 1024;

impl Fs {
    /// Finishes cuts that take several transactions. In a read-only pool what an
    /// intent names reads as gone.
    pub(super) fn finish_intents(&self) -> Result<()> {
        for ino in self.all_keys(Table::Intents)? {
            let intent: Option<Intent> = self.store.read(Table::Intents, &ino_key(ino))?;
            let Some(Intent::CutMap { from }) = intent else { continue };
            let node = match self.nodes.get(&self.store, ino) {
                Ok(node) => node,
                Err(FsError::NoSuchInode { .. }) => continue,
                Err(error) => return Err(error),
            };
            if self.pool.read_only() {
                node.visible_to.store(from, Ordering::Release);
                continue;
            }
            let mut state = node.state.write();
            self.cut_map(ino, &mut state, from, u64::MAX, Tx::new())?;
            let mut tx = Tx::new();
            tx.delete(Table::Intents, ino_key(ino));
            self.store.commit(tx)?;
            log::info!("finished cutting inode {ino} at {from}");
        }
        Ok(())
    }

    /// Deletes files that were open when last seen, but had no name any more.
    pub(super) fn reap_orphans(&self) -> Result<()> {
        for ino in self.all_keys(Table::Orphans)? {
            match self.nodes.get(&self.store, ino) {
                Ok(node) if node.state.read().inode.nlink == 0 => {
                    drop(node);
                    if let Some(node) = self.nodes.claim_dead(ino) {
                        self.reap_now(&node);
                    }
                }
                Ok(_) | Err(FsError::NoSuchInode { .. }) => {
                    let mut tx = Tx::new();
                    tx.delete(Table::Orphans, ino_key(ino));
                    self.store.commit(tx)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn all_keys(&self, table: Table) -> Result<Vec<Ino>> {
        let (mut keys, mut from) = (Vec::new(), ino_key(0));
        loop {
            let found = self.store.scan(table, &from, &ino_key(u64::MAX), BATCH)?;
            keys.extend(found.iter().filter_map(|(key, _)| single(key)));
            match found.last() {
                Some((key, _)) if found.len() == BATCH => {
                    from = [key.as_slice(), &[0]].concat();
                }
                _ => return Ok(keys),
            }
        }
    }
}
