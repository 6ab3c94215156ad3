//! Write protection for the handler of a userfaultfd (`UFFDIO_WRITEPROTECT`).
//!
//! A protected page is mapped read-only, and its entry says that stores are reported. Entries that let stores
//! through are claimed in place, lowered, flushed together, and only then released (rule R2): reads go on, and
//! every store after the return is reported. Where there is no page, a marker says so, if that is asked for.
//!
//! The end of the protection needs no flush. A page that is exclusive to its space becomes writable at once, and so
//! does an object's page in a shared mapping, which is marked as dirty first.
//!
//! *Writes*: the entries.
//!
//! *Models*: loom `fault/userfault.rs`.

use faultless_paging::{Access, ENTRIES, Gather, Page, Pages, Walk};
use faultless_sync::{Backoff, Mutant, cond_resched, mutant};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::userfault::{Userfault, numbers as userfault};
use crate::fault::PteRef;
use crate::fault::state::FaultState;
use crate::lock::vma::{Mode, VmaRef};
use crate::space::AddressSpace;
use crate::table::retry::{Blocker, Retry};
use crate::table::txn::PteTxn;
use crate::tree::mapping::Attributes;

/// Pages that are protected under one flush: those of a table.
const BATCH: u64 = ENTRIES as u64;

/// The pages of a batch of which this CPU has kept claims. A present claim does not name its CPU.
struct Kept {
    first: u64,
    pages: [u64; BATCH.div_ceil(64) as usize],
    any: bool,
}

impl Kept {
    fn new(first: u64) -> Self {
        Self {
            first,
            pages: [0; BATCH.div_ceil(64) as usize],
            any: false,
        }
    }

    fn add(&mut self, page: u64) {
        let at = page - self.first;
        self.pages[(at / 64) as usize] |= 1 << (at % 64);
        self.any = true;
    }

    fn has(&self, page: u64) -> bool {
        let at = page - self.first;
        self.pages[(at / 64) as usize] & 1 << (at % 64) != 0
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Lets stores to `pages` be reported (`protects`), or no longer.
    ///
    /// # Errors
    /// `ENOENT` where nothing is mapped, or a mapping is not registered for that, after the mappings before it are
    /// done; `EAGAIN` beside a change that waits for an event to be read; `ENOMEM` for a table.
    pub fn userfault_protect(
        &self,
        by: &Userfault<M>,
        pages: Pages,
        protects: bool,
    ) -> Result<(), Errno> {
        if by.is_changing() {
            return Err(Errno::EAGAIN);
        }
        let _hold = self.maps.hold_range(pages);
        let (mut at, mut found) = (pages.start, false);
        while let Some((part, of)) = self.maps.mapped_in(at, pages.end) {
            if !of.handler.reports_writes() {
                return Err(Errno::ENOENT);
            }
            match protects {
                true => self.protect_part(part, &of)?,
                false => self.end_protection(part, &of),
            }
            (at, found) = (part.end, true);
        }
        match found {
            true => Ok(()),
            false => Err(Errno::ENOENT),
        }
    }

    fn protect_part(&self, pages: Pages, of: &Attributes) -> Result<(), Errno> {
        let marks = of.backed.is_some() || of.handler.with_feature(userfault::WP_UNPOPULATED);
        let mut at = match marks {
            true => pages.start,
            false => self.tables().first_table(pages.start, pages.end),
        };
        while at < pages.end {
            let end = ((at + BATCH) & !(BATCH - 1)).min(pages.end);
            if marks {
                self.mark_empty(Pages::new(at, end))?;
            }
            let stop = self.protect_batch(Pages::new(at, end));
            at = match marks {
                true => stop,
                false => self.tables().first_table(stop, pages.end),
            };
            if at < pages.end {
                cond_resched(self.machine());
            }
        }
        Ok(())
    }

    /// Write-protects pages from the start of `pages` on, of one table. Returns the page to go on from.
    fn protect_batch(&self, pages: Pages) -> u64 {
        let format = Self::FORMAT;
        let mut gather = Gather::new();
        let mut kept = Kept::new(pages.start);
        let mut stop = pages.end;
        let txn = PteTxn::begin(self.machine());
        let section = self.memory().enter();
        self.tables().for_each_entry(pages, &mut |entry, page| {
            if page >= stop {
                return;
            }
            let mut backoff = Backoff::new();
            loop {
                let value = entry.load();
                if format.is_claimed(value) {
                    if kept.any {
                        // Never wait for a claim while holding one (rule R9).
                        stop = page;
                        return;
                    }
                    backoff.turn(self.machine());
                    continue;
                }
                let is_swapped = self.tables().swap_of(value).is_some();
                if format.reports_writes(value) || !format.has_page(value) && !is_swapped {
                    return;
                }
                if !format.permits(value, Access::Write) {
                    // This lowers nothing that hardware permits.
                    if entry.replace(value, value | format.reports_writes).is_ok() {
                        return;
                    }
                } else if let Ok(claim) = txn.claim_present(entry, value, || Ok(())) {
                    let before = claim.keep(|value| format.reported(value));
                    kept.add(page);
                    return self.tables().gather(before, page, &mut gather);
                }
            }
        });
        if !mutant(Mutant::WatchedWithoutFlush) {
            self.tables().flush(&mut gather);
        }
        if kept.any {
            self.tables()
                .for_each_entry(Pages::new(pages.start, stop), &mut |entry, page| {
                    if kept.has(page) {
                        entry.release_kept::<M::Format>();
                    }
                });
        }
        drop(section);
        drop(txn);
        stop
    }

    /// Puts markers into those entries of `pages` that are empty.
    fn mark_empty(&self, pages: Pages) -> Result<(), Errno> {
        let mut prepared = FaultState::new(self.memory(), (), true);
        let mut backoff = Backoff::new();
        let mut at = pages.start;
        while at < pages.end {
            match self.mark(Page(at), &mut prepared) {
                Ok(()) => {
                    (at, backoff) = (at + 1, Backoff::new());
                    self.machine().poll();
                }
                Err(Retry::Wait(Blocker::Memory)) if !prepared.find_memory() => {
                    return Err(Errno::ENOMEM);
                }
                Err(_) => backoff.turn(self.machine()),
            }
        }
        Ok(())
    }

    fn mark(&self, page: Page, prepared: &mut FaultState<M, ()>) -> Result<(), Retry> {
        let section = self.memory().enter();
        // The caller holds the range.
        let Some(vma) = VmaRef::find(&self.maps, page, Mode::Locked, &section)? else {
            return Ok(());
        };
        loop {
            let (entry, value, link, is_leaf) = match self.tables().descend(page, &section) {
                Walk::Leaf { entry, value, link } => (entry, value, link, true),
                Walk::Missing { entry, link, .. } => (entry, 0, link, false),
                Walk::Busy | Walk::Huge { .. } => return Err(Retry::TableChanged),
            };
            let vma = &vma;
            let at = PteRef {
                entry,
                value,
                link,
                vma,
            };
            match is_leaf {
                false => self.install_table(&at, prepared)?,
                true if Self::FORMAT.is_claimed(value) => return Err(Retry::EntryClaimed),
                true if value != 0 => return Ok(()),
                true => return self.tables().transact(&at, || Ok(Self::FORMAT.marker())),
            }
        }
    }

    /// Ends the write protection of `pages`, of a mapping with these attributes. Mappings do not change meanwhile.
    /// If the mapping is registered no more, a claim that is not seen here fails its validation.
    pub(crate) fn end_protection(&self, pages: Pages, of: &Attributes) {
        let format = Self::FORMAT;
        let protection = of.protection;
        let mut at = self.tables().first_table(pages.start, pages.end);
        while at < pages.end {
            let end = ((at + BATCH) & !(BATCH - 1)).min(pages.end);
            let _section = self.memory().enter();
            self.tables()
                .for_each_entry(Pages::new(at, end), &mut |entry, _| {
                    let mut backoff = Backoff::new();
                    loop {
                        let value = entry.load();
                        if format.is_claimed(value) {
                            if mutant(Mutant::UnregisteredBesideClaims) {
                                return;
                            }
                            backoff.turn(self.machine());
                            continue;
                        }
                        let cleared = value & !format.reports_writes;
                        let is_page = format.has_page(value);
                        let is_swapped = self.tables().swap_of(value).is_some();
                        let new = match (is_page, is_swapped) {
                            _ if value == format.marker() => 0,
                            _ if !format.reports_writes(value) => return,
                            (true, _) => {
                                let own = of.flags.shared || self.tables().is_exclusive(value);
                                format.with_protection(cleared, protection, own)
                            }
                            (_, true) => cleared,
                            _ => return,
                        };
                        if of.flags.shared && is_page {
                            self.tables().mark_dirty(new);
                        }
                        if entry.replace(value, new).is_ok() {
                            return;
                        }
                    }
                });
            drop(_section);
            self.machine().poll();
            at = self.tables().first_table(end, pages.end);
            if at < pages.end {
                cond_resched(self.machine());
            }
        }
    }
}
