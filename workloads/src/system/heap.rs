//! `malloc` and `free`, in the manner of musl's: large blocks are separate mappings, small
//! ones are allocated from the heap that `brk` extends, in sizes that are powers of two.
//!
//! Its metadata is in the host's memory, and causes no faults.

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
    /// The part of the heap that has not been handed out yet.
    next: u64,
    end: u64,
}

impl Heap {
    /// Allocates a block of `size` bytes, aligned to 16; `None` if there is no memory.
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

    /// Frees a block of `size` bytes; returns whether that succeeded.
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

/// Extends the heap by `size` bytes, and returns their start.
pub fn extend_break(space: &SoftSpace, size: u64) -> Option<u64> {
    let old = space.brk(0);
    let new = old.checked_add(size)?;
    (space.brk(new) >= new).then_some(old)
}
