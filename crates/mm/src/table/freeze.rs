//! Frozen tables: a fork stops all stores at one moment, and copies the entries afterwards.
//!
//! A table is *frozen* while its parent entry lets no store through. Hardware then loads from its pages and
//! faults on stores, whatever their own entries say. A fork freezes every table of the lowest level in which
//! something is mapped, and flushes once: that moment is what the child sees. Then it copies table by table,
//! and *thaws* each table as it is copied. A fault on a frozen table withdraws and asks for that table, which
//! is then copied next. The fault waits for one table, or a few, and not for the fork.
//!
//! * Freezing changes the link that a fault validates after its claim. Rule R1 therefore holds for the
//!   entries of a frozen table as for those of a changing mapping. After the fork's fence, either the fault
//!   sees the link frozen, or the fork sees the claim and waits for it.
//! * The same holds for every operation that changes entries without a range lock. Lazy freeing (`MADV_FREE`)
//!   validates the link; truncation checks it after its claim.
//! * Only a fork freezes and thaws, and it holds every range.
//! * A frozen table is never freed, because something is mapped in its pages. The freeing of tables checks
//!   for mappings after its claim. A fence stands between the creation of a mapping and the fork's look.
//!
//! *Writes*: the entries that lead to tables, twice for a fork; the word with which faults ask, written only
//! by faults that wait.
//!
//! *Models*: loom `ops/fork.rs`, shuttle `ops/fork.rs`.

use core::ptr;

use faultless_frames::NoMemory;
use faultless_paging::{ENTRIES, Entry, Gather, PAGE_SIZE, Page, Pages, Walk, free};
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::reclaim::Section;
use faultless_sync::{Backoff, Mutant, mutant};

use crate::base::machine::Machine;
use crate::table::Tables;
use crate::tree::Tree;

/// Shares the huge page of an entry, given its value and its pages.
type Share<'a> = dyn FnMut(&Entry, u64, Pages) -> Result<Option<u64>, NoMemory> + 'a;

impl<M: Machine> Tables<M> {
    /// Freezes all tables of the lowest level in which something is mapped. When it returns, no CPU stores to
    /// a page of one of them. The caller holds every range, and has issued a fence after the store that keeps
    /// new tables away.
    ///
    /// Huge pages are shared at once, by `share`, with their entry and value: it returns what the entry held, or 0 if nothing
    /// has changed. Where it returns `None`, the huge page is split.
    ///
    /// # Errors
    /// Those of `share`. Tables behind the page are not frozen.
    pub(crate) fn freeze(
        &self,
        tree: &Tree,
        all: Pages,
        share: &mut Share<'_>,
    ) -> Result<(), NoMemory> {
        self.forks.priority.store(0, Ordering::Relaxed);
        let mut gather = Gather::new();
        let mut result = Ok(());
        self.for_each_link(tree, all, &mut |entry, pages| {
            if result.is_err() {
                return;
            }
            let mut backoff = Backoff::new();
            loop {
                let value = entry.load();
                if Self::FORMAT.is_claimed(value) {
                    // The claim of an earlier fault: it installs a table, or withdraws (rule R1).
                    backoff.turn(self.machine());
                } else if value == 0 {
                    return;
                } else if Self::FORMAT.is_huge(value) {
                    match share(entry, value, pages) {
                        Ok(Some(0)) => return,
                        Ok(Some(before)) => {
                            return self.gather_huge(before, pages.start, &mut gather);
                        }
                        // The child shares single pages.
                        Ok(None) => self.split(entry, value, pages.start),
                        Err(none) => {
                            result = Err(none);
                            return;
                        }
                    }
                } else if entry.replace(value, Self::FORMAT.frozen(value)).is_ok() {
                    // A CPU that has loaded an entry of the table has loaded the parent entry, too.
                    let holders = Self::FORMAT.holders(value);
                    gather.add_table(pages.start * PAGE_SIZE, pages.len() * PAGE_SIZE, holders);
                    return;
                }
            }
        });
        // Rule R1, before the look at the tables' entries. Partner: the barrier of a claim, which precedes
        // the look at the link.
        fence(Ordering::SeqCst);
        if !mutant(Mutant::ForkWithoutFreeze) {
            self.flush(&mut gather);
        }
        result
    }

    /// Lets stores through again, as far as the entries in the table do. Release: a reader that finds the
    /// table thawed finds its entries, and its pages' descriptors, as the fork has left them.
    pub(crate) fn thaw(&self, entry: &Entry) {
        loop {
            let value = entry.load();
            if entry.replace(value, Self::FORMAT.thawed(value)).is_ok() {
                return;
            }
        }
    }

    /// Calls `visit` with every entry that leads to a frozen table of `pages`, and with the pages of that
    /// table. The caller holds every range.
    pub(crate) fn for_each_frozen(
        &self,
        tree: &Tree,
        pages: Pages,
        visit: &mut impl FnMut(&Entry, Pages),
    ) {
        self.for_each_link(tree, pages, &mut |entry, pages| {
            if Self::FORMAT.is_frozen(entry.load()) {
                visit(entry, pages);
            }
        });
    }

    /// The same for all tables with mapped pages. Other tables may exist, but hold no pages.
    fn for_each_link(&self, tree: &Tree, pages: Pages, visit: &mut impl FnMut(&Entry, Pages)) {
        let mut visit_base =
            |entry: &Entry, base: u64| visit(entry, Pages::new(base, base + ENTRIES as u64));
        let mut at = pages.start;
        while let Some(run) = tree.mapped_run(self.memory, Pages::new(at, pages.end)) {
            // A stack may have grown just now.
            fence(Ordering::SeqCst);
            // SAFETY: all these tables have pages that are mapped, since before the fence: they are not freed
            // (rule R5).
            unsafe {
                free::entries_at::<M::Format, M>(
                    self.machine(),
                    self.root,
                    run.pages,
                    1,
                    &mut visit_base,
                );
            }
            // Other mappings may begin in the last table.
            at = run.pages.end.next_multiple_of(ENTRIES as u64);
        }
    }

    /// Whether an entry is still the page's, in a table that is not frozen. Call it after a claim of the
    /// entry and a full fence: since the entry was found, its table may have moved whole, to another page.
    /// `true` stays true while the claim is held; `false` may mean that the table is claimed.
    pub(crate) fn is_in_place(&self, entry: &Entry, page: u64, section: &Section<'_>) -> bool {
        match self.look(Page(page), section) {
            Walk::Leaf { link, .. } if link.is_frozen() => false,
            Walk::Leaf { entry: now, .. } if ptr::eq(now, entry) => true,
            _ => mutant(Mutant::PlaceNotValidated),
        }
    }

    /// Asks the fork in progress to copy a page's table next. Only the last request is kept; other faults ask
    /// again. No ordering: the request is a hint.
    #[cold]
    pub(crate) fn prioritise_copy(&self, page: Page) {
        self.forks.priority.store(page.0 + 1, Ordering::Relaxed);
    }

    /// Returns the page of the last request, once.
    pub(crate) fn take_wanted(&self) -> Option<u64> {
        match self.forks.priority.load(Ordering::Relaxed) {
            0 => None,
            _ => self
                .forks
                .priority
                .swap(0, Ordering::Relaxed)
                .checked_sub(1),
        }
    }
}
