//! The blocks of opaque groups, of which each slot has the history of its token.
use super::rows::histories;
use super::{same, Played};
use pagedkv::{Batch, BlockIo, Session, NO_BLOCK_ID};
use std::io;
use std::sync::{Arc, Mutex};

const BLOCK: usize = 16;

/// The slots of each group.
#[derive(Clone, Default)]
pub struct Device(Arc<Mutex<Vec<Vec<u64>>>>);

fn slots_of(block: u32) -> std::ops::Range<usize> {
    let first = block as usize * BLOCK;
    first..first + BLOCK
}

impl Device {
    pub fn new(groups: usize, blocks: usize) -> Self {
        Device(Arc::new(Mutex::new(vec![vec![0; blocks * BLOCK]; groups])))
    }

    /// Writes the histories of a step's new tokens, as kernels would.
    pub fn compute(&self, batch: &Batch<'_>, new: &[u64]) -> Played {
        for (group, slots) in self.0.lock().unwrap().iter_mut().enumerate() {
            for (from, to) in batch.block_copies(group as u32)? {
                slots.copy_within(slots_of(from), slots_of(to).start);
            }
            for (slot, history) in batch.slot_mapping(group as u32)?.into_iter().zip(new) {
                slots[slot as usize] = *history;
            }
        }
        Ok(())
    }

    /// Compares the slots of a session with its tokens.
    pub fn compare(&self, session: &Session) -> Played {
        let expected = histories(&session.tokens(0..session.length()?)?);
        for (group, slots) in self.0.lock().unwrap().iter().enumerate() {
            for (block, expected) in
                session.block_table(group as u32)?.into_iter().zip(expected.chunks(BLOCK))
            {
                if block != NO_BLOCK_ID {
                    let held = &slots[slots_of(block)][..expected.len()];
                    same(&format!("block {block} of group {group}"), held, expected)?;
                }
            }
        }
        Ok(())
    }
}

impl BlockIo for Device {
    fn read(&self, group: u32, blocks: &[u32], tokens: &[u32], to: &mut [u8]) -> io::Result<()> {
        let slots = &self.0.lock().unwrap()[group as usize];
        for ((&block, &n), to) in blocks.iter().zip(tokens).zip(to.chunks_exact_mut(8 * BLOCK)) {
            let held = slots[slots_of(block)].iter().take(n as usize);
            held.zip(to.chunks_exact_mut(8)).for_each(|(slot, to)| {
                to.copy_from_slice(&slot.to_ne_bytes());
            });
        }
        Ok(())
    }

    fn write(&self, group: u32, blocks: &[u32], from: &[u8]) -> io::Result<()> {
        let slots = &mut self.0.lock().unwrap()[group as usize];
        for (&block, from) in blocks.iter().zip(from.chunks_exact(8 * BLOCK)) {
            slots[slots_of(block)].iter_mut().zip(from.chunks_exact(8)).for_each(|(slot, from)| {
                *slot = u64::from_ne_bytes(from.try_into().expect("8 bytes"));
            });
        }
        Ok(())
    }
}
