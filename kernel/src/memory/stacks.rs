//! Kernel stacks, each with its thread's record above it and unmapped pages below it.
//!
//! A slot is 64 KiB of the stack region: guard pages, the stack, the record. A stack that grows too
//! far hits the guard and double-faults instead of writing into its neighbour. Slots keep their
//! frames for ever and are used again, so a stale pointer to a thread always points to a thread:
//! the worst it can do is a wake-up without reason, which every waiter tolerates.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch::paging::{self, STACKS, STACKS_SIZE};
use crate::errno::{EAGAIN, ENOMEM, Errno};
use crate::sched::thread::Thread;
use crate::sync::SpinLock;

const SLOT: u64 = 64 << 10;
const PAGE: u64 = 4096;
/// Pages of the stack.
const STACK_PAGES: u64 = 8;
/// Pages of the thread's record.
const RECORD_PAGES: u64 = 2;
const RECORD: u64 = SLOT - RECORD_PAGES * PAGE;

const _: () = assert!(size_of::<Thread>() as u64 <= RECORD_PAGES * PAGE);

/// Slots used before, free now.
static FREE: SpinLock<Vec<u64>> = SpinLock::new(Vec::new());
/// Slots ever used.
static USED: AtomicU64 = AtomicU64::new(0);

/// A slot's record memory: uninitialised or a dead thread's.
///
/// # Errors
/// `ENOMEM`; `EAGAIN` when there are too many threads.
pub fn allocate() -> Result<*mut Thread, Errno> {
    let mut free = FREE.lock();
    if let Some(slot) = free.pop() {
        return Ok((slot + RECORD) as *mut Thread);
    }
    // Room to give the slot back must be there before it is used: giving back cannot fail. The
    // lock is held until the slot is counted, or two CPUs would reserve room for one.
    let number = USED.load(Ordering::Relaxed);
    free.try_reserve(number as usize + 1).map_err(|_| ENOMEM)?;
    let slot = STACKS + USED.fetch_add(1, Ordering::Relaxed) * SLOT;
    drop(free);
    if slot + SLOT > STACKS + STACKS_SIZE {
        return Err(EAGAIN);
    }
    let first = slot + RECORD - STACK_PAGES * PAGE;
    let mut frames = [0u64; (STACK_PAGES + RECORD_PAGES) as usize];
    let mut tables = [0u64; 2];
    let missing = paging::tables_missing(first).min(2);
    let mut taken = 0;
    for at in frames.iter_mut().chain(&mut tables[..missing]) {
        match super::machine::allocate_zeroed() {
            Ok(frame) => *at = frame,
            Err(_) => break,
        }
        taken += 1;
    }
    if taken < frames.len() + missing {
        for frame in frames.into_iter().chain(tables).filter(|&frame| frame != 0) {
            super::machine::free(frame);
        }
        // The slot's addresses are lost; there are millions.
        return Err(ENOMEM);
    }
    let mut tables = tables.into_iter().filter(|&frame| frame != 0);
    for (page, frame) in (0..).zip(frames) {
        paging::map_stack_page(first + page * PAGE, frame, &mut tables);
    }
    // Another CPU may have been quicker with a table.
    tables.for_each(super::machine::free);
    Ok((slot + RECORD) as *mut Thread)
}

/// Gives the slot of a dead thread back; nobody runs on its stack.
pub fn free(thread: *const Thread) {
    FREE.lock().push(thread as u64 - RECORD);
}

/// The end of a thread's stack.
pub fn top(thread: &Thread) -> u64 {
    core::ptr::from_ref(thread) as u64
}
