//! The bits of a slot's dirty log.
//!
//! Most of the log is in the guest's entries: a page is dirty if its entry allows stores ([`crate::log`]). The bits remember
//! pages that are dirty though their entries do not say so: their entries were zapped, or the log began full.
//!
//! The words lie in frames, which the slot's own frame leads to; for large slots through one more frame each.
//!
//! *Writes*: a bit's word, by operations that zap or clear; no fault writes one.

use faultless_mm::{Memory, NoMemory};
use faultless_paging::{ENTRIES, Entry, Frame, Table};
use faultless_sync::atomic::Ordering;

use crate::guest::GuestMachine;
use crate::slots::slot::{LOG_WORDS, SlotBody, SlotFlags};

/// Pages whose bits are in one frame.
const PER_FRAME: u64 = ENTRIES as u64 * 64;

/// Whether the slot's frame leads to frames that lead to the words.
fn is_deep(body: &SlotBody) -> bool {
    body.pages.len() > LOG_WORDS as u64 * PER_FRAME
}

fn frames_of(body: &SlotBody) -> u64 {
    body.pages.len().div_ceil(PER_FRAME)
}

/// Allocates the bits of a new slot, which only the caller uses.
///
/// # Errors
/// [`NoMemory`]; what was allocated is freed with the slot.
pub(crate) fn fill<M: GuestMachine>(
    memory: &'static Memory<M>,
    body: &SlotBody,
) -> Result<(), NoMemory> {
    let is_full = body.flags.contains(SlotFlags::LOG_BEGINS_FULL);
    for number in 0..frames_of(body) {
        let frame = memory.allocate_table()?;
        // SAFETY: a new table.
        let words = unsafe { Table::at(memory.machine(), frame) };
        if is_full {
            words.entries().iter().for_each(|word| word.set(u64::MAX));
        }
        if !is_deep(body) {
            body.log[number as usize].store(frame.0, Ordering::Relaxed);
            continue;
        }
        let above = &body.log[number as usize / ENTRIES];
        if above.load(Ordering::Relaxed) == 0 {
            let list = memory.allocate_table().inspect_err(|_| {
                memory.retire_table(frame);
            })?;
            above.store(list.0, Ordering::Relaxed);
        }
        // SAFETY: allocated as a table.
        let list = unsafe { Table::at(memory.machine(), Frame(above.load(Ordering::Relaxed))) };
        list.entries()[number as usize % ENTRIES].set(frame.0);
    }
    Ok(())
}

/// Retires the bits of a slot, as far as they were allocated.
pub(crate) fn retire<M: GuestMachine>(memory: &'static Memory<M>, body: &SlotBody) {
    for word in &body.log {
        let frame = Frame(word.load(Ordering::Relaxed));
        if frame.0 == 0 {
            continue;
        }
        if is_deep(body) {
            // SAFETY: allocated as a table, and retired below.
            let list = unsafe { Table::at(memory.machine(), frame) };
            let used = list.entries().iter().map(Entry::load);
            for frame in used.filter(|&frame| frame != 0) {
                memory.retire_table(Frame(frame));
            }
        }
        memory.retire_table(frame);
    }
}

/// Returns the word with the bits of 64 pages, the first of which has this number in the slot. `None` if the slot has no log.
pub(crate) fn word<'s, M: GuestMachine>(
    machine: &M,
    body: &'s SlotBody,
    first: u64,
) -> Option<&'s Entry> {
    let number = (first / PER_FRAME) as usize;
    let above = if is_deep(body) {
        number / ENTRIES
    } else {
        number
    };
    let mut frame = body.log[above].load(Ordering::Relaxed);
    if frame != 0 && is_deep(body) {
        // SAFETY: a frame of the slot's log, which is retired with the slot.
        let list = unsafe { Table::at(machine, Frame(frame)) };
        frame = list.entries()[number % ENTRIES].load();
    }
    (frame != 0).then(|| {
        // SAFETY: as above.
        let words = unsafe { Table::at(machine, Frame(frame)) };
        &words.entries()[(first % PER_FRAME / 64) as usize]
    })
}

/// Sets the bit of a page, given by its number in the slot.
pub(crate) fn set<M: GuestMachine>(machine: &M, body: &SlotBody, page: u64) {
    let Some(word) = word(machine, body, page) else {
        return;
    };
    let bit = 1 << (page % 64);
    loop {
        let value = word.load();
        if value & bit != 0 || word.replace(value, value | bit).is_ok() {
            return;
        }
    }
}

/// Clears bits of a word. Returns those that were set.
pub(crate) fn take(word: &Entry, bits: u64) -> u64 {
    loop {
        let value = word.load();
        if value & bits == 0 || word.replace(value, value & !bits).is_ok() {
            return value & bits;
        }
    }
}
