//! A huge page in the place of an empty table, which small pages left behind.
//!
//! The entry that leads to the table is claimed; then the mapping, the table's link and the table's entries are looked at;
//! then the table is hidden, flushed from walk caches, and replaced. It is retired, because walks may still be in it.
//!
//! * An operation that puts something into an *empty* entry of a live mapping does so under a claim, and validates the
//!   table's link afterwards (rule R1). Either it sees this claim and withdraws, or the look at the entries sees its claim, and
//!   the table stays.
//! * An operation that changes only what it finds in entries finds nothing here. It precedes the huge page.
//! * A writer that puts pages into entries without a claim, a move or a fork, has the slots of its pages changed before. The
//!   validation of the span sees that, or the writer's look at the table waits for this claim.
//!
//! *Writes*: the entry that leads to the table.
//!
//! *Models*: loom `table/vacated.rs`.

use faultless_paging::{ENTRIES, Gather, PAGE_SIZE, Pages, Table, Value};
use faultless_sync::{Mutant, mutant};
use faultless_trace::Counter;

use crate::base::machine::Machine;
use crate::table::Tables;
use crate::table::retry::Retry;
use crate::table::rss::RssKind;
use crate::table::txn::{PteRef, PteTxn, Validate};

impl<M: Machine> Tables<M> {
    /// Whether nothing is in the table of an entry. The caller is in a section, and has found the table since.
    pub(crate) fn is_vacated(&self, value: Value) -> bool {
        // SAFETY: found linked inside the caller's section.
        let table = unsafe { Table::at(self.machine(), Self::FORMAT.frame(value)) };
        table.next_used(0, ENTRIES).is_none()
    }

    /// As [`Tables::transact`], for an entry of a huge page with the pages `span`, which may lead to a table. Returns whether
    /// it is done: a table that is not empty stays.
    ///
    /// # Errors
    /// As [`Tables::transact`].
    #[inline]
    pub(crate) fn transact_over<V: Validate>(
        &self,
        at: &PteRef<'_, V>,
        span: Pages,
        complete: impl FnOnce() -> Result<Value, Retry>,
    ) -> Result<bool, Retry> {
        match Self::FORMAT.is_table(at.value) {
            true => self.replace_table(at, span, complete),
            false => self.transact(at, complete).map(|()| true),
        }
    }

    /// Replaces an empty table.
    #[cold]
    fn replace_table<V: Validate>(
        &self,
        at: &PteRef<'_, V>,
        span: Pages,
        complete: impl FnOnce() -> Result<Value, Retry>,
    ) -> Result<bool, Retry> {
        let cpu = self.machine().cpu();
        let txn = PteTxn::begin(self.machine());
        let claim = txn.claim_present(at.entry, at.value, || at.validate())?;
        if !self.is_vacated(at.value) && !mutant(Mutant::VacatedNotLookedAtAgain) {
            return Ok(false);
        }
        let leaf = complete()?;
        let hidden = claim.hide(cpu);
        let mut gather = Gather::new();
        let holders = Self::FORMAT.holders(hidden.before());
        gather.add_table(span.start * PAGE_SIZE, span.len() * PAGE_SIZE, holders);
        self.flush(&mut gather);
        hidden.publish(leaf);
        self.memory.retire_table(Self::FORMAT.frame(at.value));
        self.rss.gone_one(cpu, RssKind::Table);
        self.memory.count(Counter::TableFree);
        Ok(true)
    }
}
