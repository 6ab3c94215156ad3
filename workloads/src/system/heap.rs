//! `malloc` and `free`, in the manner of musl's: large blocks are mappings of their own, small
//! ones come from the heap that `brk` extends, in sizes that are powers of two.
//!
//! What it knows of blocks is the host's memory, and takes no faults.

use std::sync::{Mutex, MutexGuard, PoisonError};

use faultless_mm::{PROT_READ, PROT_WRITE, flags};
use faultless_soft::SoftSpace;

use super::PAGE;

/// Blocks from this size on are mapped.
const MAPPED_FROM: u64 = 128 << 10;
/// The least block.
const LEAST: u64 = 16;
/// Bytes by which the heap is extended.
const STEP: u64 = 16 * PAGE;

/// The blocks of a process.
#[derive(Default)]
pub struct Heap(Mutex<Blocks>);

#[derive(Default)]
struct Blocks {
    /// Free blocks, by the binary logarithm of their size.
    free: [Vec<u64>; MAPPED_FROM.ilog2() as usize + 1],
    /// What has been taken from `brk` and not been handed out.
    next: u64,
    end: u64,
}

impl Heap {
    /// A block of `size` bytes, aligned to 16; `None` without memory.
    pub fn allocate(&self, space: &SoftSpace, size: u64) -> Option<u64> {
        if size >= MAPPED_FROM {
            let anonymous = flags::PRIVATE | flags::ANONYMOUS;
            return space.mmap(0, size, PROT_READ | PROT_WRITE, anonymous).ok();
        }
        let size = size.max(LEAST).next_power_of_two();
        let mut blocks = self.lock();
        if let Some(block) = blocks.free[size.ilog2() as usize].pop() {
            return Some(block);
        }
        if blocks.end - blocks.next < size {
            let start = extend_break(space, size.max(STEP))?;
            if start != blocks.end {
                blocks.next = start;
            }
            blocks.end = start + size.max(STEP);
        }
        let block = blocks.next;
        blocks.next += size;
        Some(block)
    }

    /// Gives back a block and its size. Whether that could be done.
    pub fn free(&self, space: &SoftSpace, block: u64, size: u64) -> bool {
        if size >= MAPPED_FROM {
            return space.munmap(block, size).is_ok();
        }
        let class = size.max(LEAST).next_power_of_two().ilog2();
        self.lock().free[class as usize].push(block);
        true
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Extends the heap by `size` bytes; where they begin.
pub fn extend_break(space: &SoftSpace, size: u64) -> Option<u64> {
    let old = space.brk(0);
    let new = old.checked_add(size)?;
    (space.brk(new) >= new).then_some(old)
}
