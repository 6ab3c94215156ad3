//! The TDP MMU: entries are found by walking the tables. It has no state beside them, and no lock.
//!
//! *Writes*: nothing.

use faultless_paging::{ENTRIES, Entry, Pages, Table, free};
use faultless_sync::Backoff;

use crate::guest::{Guest, GuestMachine, HostSpace};

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Calls `visit` with every entry of `pages` that is not empty, as the tables have them. The caller is in a section.
    pub(crate) fn for_each_in_tables(&self, pages: Pages, visit: &mut impl FnMut(&Entry, u64)) {
        let mut table_of = |parent: &Entry, base: u64| {
            let mut backoff = Backoff::new();
            let value = loop {
                let value = parent.load();
                if !Self::FORMAT.is_claimed(value) {
                    break value;
                }
                // A table is being installed or freed (rule R1).
                backoff.turn(self.machine());
            };
            if !Self::FORMAT.is_table(value) {
                return;
            }
            // SAFETY: found linked inside the caller's section.
            let table = unsafe { Table::at(self.machine(), Self::FORMAT.frame(value)) };
            self.machine().poll();
            let part = pages.and(Pages::new(base, base + ENTRIES as u64));
            let (mut at, end) = ((part.start - base) as usize, (part.end - base) as usize);
            while let Some(number) = table.next_used(at, end) {
                visit(&table.entries()[number], base + number as u64);
                at = number + 1;
            }
        };
        // SAFETY: inside the caller's section.
        unsafe {
            free::entries_at::<M::SecondLevel, M>(
                self.machine(),
                self.root,
                pages,
                1,
                &mut table_of,
            );
        }
    }
}
