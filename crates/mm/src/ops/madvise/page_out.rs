//! `MADV_PAGEOUT`: swaps pages out, in batches ([`crate::reclaim::page_out`]).
//!
//! The range is held only while a batch is taken, and not while it is written: other operations on it do not wait
//! for the device.

use core::cell::RefCell;

use faultless_paging::{ENTRIES, Pages};
use faultless_sync::cond_resched;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::ops::madvise::advice;
use crate::reclaim::page_out::{Batch, take_batch, write};
use crate::space::AddressSpace;

/// Swaps out the mapped pages of `pages`, as far as the advice is allowed there. Ends early if no device takes pages
/// any more, or if the caller was killed.
pub(super) fn page_out<M: Machine>(space: &AddressSpace<M>, pages: Pages) {
    if !space.memory().swap.is_on() {
        return;
    }
    let machine = space.machine();
    let mut at = space.tables().first_table(pages.start, pages.end);
    while at < pages.end {
        // Part of one table: what a batch does not take is looked at again.
        let table_end = (at | (ENTRIES as u64 - 1)) + 1;
        let part = Pages::new(at, pages.end.min(table_end));
        let batch = RefCell::new(Batch::new(part.end));
        let allowed = space.over_mapped(part, advice::PAGEOUT, |mapped| {
            let mut batch = batch.borrow_mut();
            if batch.next == Some(part.end) {
                take_batch(space, mapped, &mut batch);
            }
            Ok(())
        });
        let batch = batch.into_inner();
        let is_taken = write(space, &batch);
        let is_refused = allowed.is_err_and(|error| error != Errno::ENOMEM);
        let (true, false, Some(next)) = (is_taken, is_refused, batch.next) else {
            return;
        };
        if machine.fatal_signal_pending() {
            return;
        }
        at = space.tables().first_table(next, pages.end);
        cond_resched(machine);
    }
}
