//! The TDP MMU: entries are found by walking the tables. It has no state beside them, and no lock.
//!
//! *Writes*: nothing.

use faultless_paging::{ENTRIES, Entry, Pages, Table, free};
use faultless_sync::{Mutant, mutant};

use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::huge::{HUGE_LEVEL, span_of};
use crate::tables::Spot;

/// Kept apart, so that the visit of small entries is inlined.
#[cold]
#[inline(never)]
pub(crate) fn visit_huge(visit: &mut dyn FnMut(Spot<'_>), spot: Spot<'_>) {
    visit(spot);
}

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Calls `visit` with every entry of `pages` that is not empty, as the tables have them, but for huge entries that are not inside
    /// `within`. The caller is in a section.
    ///
    /// These are another slot's, which has these pages now, or had them. What looks for all entries looks by that slot, too.
    pub(crate) fn for_each_in_tables(
        &self,
        pages: Pages,
        within: Pages,
        visit: &mut impl FnMut(Spot<'_>),
    ) {
        let mut table_of = |parent: &Entry, base: u64| {
            // A table may be being installed or freed, or a huge page mapped (rule R1).
            let mut value = self.settled(parent);
            if M::SecondLevel::has_huge(value) {
                let span = span_of(base);
                if within.and(span) == span {
                    visit_huge(visit, Spot::new(parent, span));
                }
                if mutant(Mutant::GuestSplitNotSeen) {
                    return;
                }
                value = self.settled(parent);
            }
            if !Self::FORMAT.is_table(value) {
                return;
            }
            // SAFETY: found linked inside the caller's section.
            let table = unsafe { Table::at(self.machine(), Self::FORMAT.frame(value)) };
            self.machine().poll();
            let part = pages.and(Pages::new(base, base + ENTRIES as u64));
            let (mut at, end) = ((part.start - base) as usize, (part.end - base) as usize);
            while let Some(number) = table.next_used(at, end) {
                let page = base + number as u64;
                visit(Spot::new(
                    &table.entries()[number],
                    Pages::new(page, page + 1),
                ));
                at = number + 1;
            }
        };
        // SAFETY: inside the caller's section.
        unsafe {
            free::entries_at::<M::SecondLevel, M>(
                self.machine(),
                self.root,
                pages,
                HUGE_LEVEL,
                &mut table_of,
            );
        }
    }
}
