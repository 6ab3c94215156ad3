//! Kernel stacks, each with its thread's record above it and unmapped pages below it.
//!
//! A slot is 64 KiB of the stack region: guard pages, the stack, the record. A stack that grows too far hits
//! the guard and double-faults instead of writing into its neighbour. Slots keep their frames for ever and
//! are reused, so a stale pointer to a thread always points to a thread. The worst it can do is a spurious
//! wake-up, which every waiter tolerates.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use super::machine::Purpose;
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
const FRAMES: usize = (STACK_PAGES + RECORD_PAGES) as usize;
/// Page tables that a slot may be the first to need.
const TABLES: usize = 2;
const RECORD: u64 = SLOT - RECORD_PAGES * PAGE;

const _: () = assert!(size_of::<Thread>() as u64 <= RECORD_PAGES * PAGE);

/// Slots used before, free now.
static FREE: SpinLock<Vec<u64>> = SpinLock::new(Vec::new());
/// Slots ever used. Written under the lock of [`FREE`].
static USED: AtomicU64 = AtomicU64::new(0);

/// Allocates a slot; returns its record memory: uninitialised or a dead thread's.
///
/// # Errors
/// `ENOMEM`; `EAGAIN` when there are too many threads.
pub fn allocate() -> Result<*mut Thread, Errno> {
    if let Some(slot) = FREE.lock().pop() {
        return Ok((slot + RECORD) as *mut Thread);
    }
    // All resources are allocated before the slot's number is taken, so that no number is lost.
    let mut frames = [0u64; FRAMES + TABLES];
    for at in 0..frames.len() {
        match super::machine::allocate_zeroed(Purpose::Stack) {
            Ok(frame) => frames[at] = frame,
            Err(_) => {
                give_back(&frames[..at]);
                return Err(ENOMEM);
            }
        }
    }
    let slot = match take_number() {
        Ok(number) => STACKS + number * SLOT,
        Err(error) => {
            give_back(&frames);
            return Err(error);
        }
    };
    let first = slot + RECORD - STACK_PAGES * PAGE;
    let (pages, tables) = frames.split_at(FRAMES);
    let mut tables = tables.iter().copied();
    for (page, &frame) in (0..).zip(pages) {
        paging::map_stack_page(first + page * PAGE, frame, &mut tables);
    }
    // The tables exist already, except for a slot or two in 512.
    tables.for_each(super::machine::free);
    Ok((slot + RECORD) as *mut Thread)
}

fn give_back(frames: &[u64]) {
    frames.iter().copied().for_each(super::machine::free);
}

/// Takes the next slot's number.
fn take_number() -> Result<u64, Errno> {
    // Reserve room for the slot in the free list now, because freeing it cannot fail. The lock is held until
    // the slot is counted, or two CPUs would reserve room for one.
    let mut free = FREE.lock();
    let number = USED.load(Ordering::Relaxed);
    if (number + 1) * SLOT > STACKS_SIZE {
        return Err(EAGAIN);
    }
    let missing = (number as usize + 1).saturating_sub(free.len());
    free.try_reserve(missing).map_err(|_| ENOMEM)?;
    USED.store(number + 1, Ordering::Relaxed);
    Ok(number)
}

/// Bytes of frames that slots hold, in use or not.
pub fn size() -> u64 {
    USED.load(Ordering::Relaxed) * FRAMES as u64 * PAGE
}

/// Frees the slot of a dead thread; no CPU uses its stack.
pub fn free(thread: *const Thread) {
    FREE.lock().push(thread as u64 - RECORD);
}

/// The end of a thread's stack.
pub fn top(thread: &Thread) -> u64 {
    core::ptr::from_ref(thread) as u64
}
