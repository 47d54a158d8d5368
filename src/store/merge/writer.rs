//! New nodes on their way to the members.

use super::super::error::Result;
use super::super::node::{Node, Pointer};
use super::super::node_cache::{Heat, NodeCache};
use crate::member::superblock::MetaPointer;
use crate::pool::Pool;
use crate::sync::Arc;
use crate::units::MIB;

/// So many bytes are written and synced together, about.
const BATCH_BYTES: usize = MIB as usize;

/// Number of a node among those of one level: its index in what [`NodeWriter::flush`] gives.
pub(in crate::store) type Ticket = usize;

/// Gathers new nodes, writes them in batches, and puts them into the cache.
#[derive(Debug)]
pub(in crate::store) struct NodeWriter<'a> {
    pool: &'a Pool,
    nodes: &'a NodeCache,
    /// Most bytes of a node that has more than one entry.
    pub node_bytes: usize,
    batch: Vec<(Node, Heat)>,
    batch_bytes: usize,
    /// Of this level, as far as they are written.
    pointers: Vec<Pointer>,
    written: Vec<MetaPointer>,
}

impl<'a> NodeWriter<'a> {
    /// A writer that has written nothing.
    pub fn new(pool: &'a Pool, nodes: &'a NodeCache, node_bytes: usize) -> Self {
        Self {
            pool,
            nodes,
            node_bytes,
            batch: Vec::new(),
            batch_bytes: 0,
            pointers: Vec::new(),
            written: Vec::new(),
        }
    }

    /// Takes a node of the level that is being merged.
    ///
    /// # Errors
    /// Those of writing.
    pub fn add(&mut self, node: Node, heat: Heat) -> Result<Ticket> {
        self.batch_bytes += node.encoded_bytes();
        self.batch.push((node, heat));
        let ticket = self.pointers.len() + self.batch.len() - 1;
        if self.batch_bytes >= BATCH_BYTES {
            self.write_batch()?;
        }
        Ok(ticket)
    }

    /// Writes what is left, and gives where the nodes of the level are, by ticket.
    ///
    /// # Errors
    /// Those of writing.
    pub fn flush(&mut self) -> Result<Vec<Pointer>> {
        self.write_batch()?;
        Ok(std::mem::take(&mut self.pointers))
    }

    fn write_batch(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let encoded: Vec<Vec<u8>> = self.batch.iter().map(|(node, _)| node.encode()).collect();
        let pointers = self.pool.write_metadata(&encoded)?;
        self.written.extend(pointers.iter().flatten().cloned());
        self.batch_bytes = 0;
        for ((node, heat), pointer) in self.batch.drain(..).zip(&pointers) {
            self.nodes.insert(pointer, Arc::new(node), heat);
        }
        self.pointers.extend(pointers);
        Ok(())
    }

    /// Everything that was written so far.
    pub fn into_written(self) -> Vec<MetaPointer> {
        self.written
    }
}
