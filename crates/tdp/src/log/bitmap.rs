//! The bits of a slot's dirty log.
//!
//! Most of the log is in the guest's entries: a page is dirty if its entry allows stores ([`crate::log`]). The bits remember
//! pages that are dirty though their entries do not say so: their entries were zapped, or the log began full.
//!
//! *Writes*: a bit's word, by operations that zap or clear; no fault writes one.

use faultless_mm::{Memory, NoMemory};
use faultless_paging::Entry;

use crate::guest::GuestMachine;
use crate::slots::slot::{SlotBody, SlotFlags};

/// Allocates the bits of a new slot, which only the caller uses.
///
/// # Errors
/// [`NoMemory`]; what was allocated is freed with the slot.
pub(crate) fn fill<M: GuestMachine>(
    memory: &'static Memory<M>,
    body: &SlotBody,
) -> Result<(), NoMemory> {
    let is_full = body.flags.contains(SlotFlags::LOG_BEGINS_FULL);
    let value = if is_full { u64::MAX } else { 0 };
    body.log.fill(memory, body.pages.len().div_ceil(64), value)
}

/// Returns the word with the bits of 64 pages, the first of which has this number in the slot. `None` if the slot has no log.
#[inline]
pub(crate) fn word<'s, M: GuestMachine>(
    machine: &M,
    body: &'s SlotBody,
    first: u64,
) -> Option<&'s Entry> {
    body.log.get(machine, first / 64)
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
