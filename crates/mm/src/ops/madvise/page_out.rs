//! `MADV_PAGEOUT`: swaps pages out, in batches ([`crate::reclaim::advised`]).
//!
//! The range is held only while a batch is taken, and not while it is written: other operations on it do not wait
//! for the device.

use core::cell::RefCell;

use faultless_paging::{ENTRIES, Pages};
use faultless_sync::cond_resched;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::ops::madvise::advice;
use crate::reclaim::advised::{Noted, take_advised, take_noted};
use crate::reclaim::page_out::{Batch, write};
use crate::space::AddressSpace;

/// Swaps out the mapped pages of `pages`. Ends early if no device takes pages any more, or if the caller was killed.
///
/// # Errors
/// Those of the advice ([`AddressSpace::over_mapped`]).
pub(super) fn page_out<M: Machine>(space: &AddressSpace<M>, pages: Pages) -> Result<(), Errno> {
    let machine = space.machine();
    let (mut result, mut at, mut has_seen_all) = (Ok(()), pages.start, true);
    while !machine.fatal_signal_pending() {
        // Part of one table: what a batch does not take is looked at again.
        let table_end = (at | (ENTRIES as u64 - 1)) + 1;
        let part = Pages::new(at, pages.end.min(table_end));
        let taken = RefCell::new((Batch::new(part.end), Noted::new()));
        let allowed = space.over_mapped(part, advice::PAGEOUT, |mapped| {
            let (batch, noted) = &mut *taken.borrow_mut();
            if batch.next == Some(part.end) {
                take_advised(space, mapped, batch, noted);
            }
            Ok(())
        });
        let (mut batch, noted) = taken.into_inner();
        take_noted(space.memory(), noted, &mut batch);
        let is_taken = write(space.memory(), &batch).is_all;
        match allowed {
            Ok(()) => {}
            // Holes do not end it.
            Err(Errno::ENOMEM) => result = allowed,
            Err(_) => return allowed,
        }
        let Some(next) = batch.next.filter(|_| is_taken) else {
            break;
        };
        at = space.tables().first_table(next, pages.end);
        has_seen_all &= at == next;
        if at == pages.end && has_seen_all {
            return result;
        }
        if at == pages.end {
            break;
        }
        cond_resched(machine);
    }
    // What has no table, and what is left, may have holes, or mappings that do not allow it.
    space.over_mapped(pages, advice::PAGEOUT, |_| Ok(()))
}
