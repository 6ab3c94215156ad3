//! Write protection for the handler of a userfaultfd (`UFFDIO_WRITEPROTECT`).
//!
//! A protected page is mapped read-only, and its entry says that stores are reported. Entries that let stores
//! through are claimed in place, lowered, flushed together, and only then released (rule R2): reads go on, and
//! every store after the return is reported. Where there is no page, a marker says so, if that is asked for. Reclaim
//! holds no range, and may empty an entry meanwhile: entries are then visited one by one, and each that reads empty
//! gets a marker, also after a wait for a claim.
//!
//! The end of the protection needs no flush. A page that is exclusive to its space becomes writable at once, and so
//! does an object's page in a shared mapping, which is marked as dirty first.
//!
//! *Writes*: the entries.
//!
//! *Models*: loom `fault/userfault.rs`.

use faultless_paging::{Access, ENTRIES, Entry, Gather, Link, Page, Pages, Walk};
use faultless_sync::reclaim::Section;
use faultless_sync::{Backoff, Mutant, cond_resched, mutant};

use crate::base::errno::Errno;
use crate::base::frame_list::POLL_INTERVAL;
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

/// What was done to the pages of a batch.
struct Protected {
    gather: Gather,
    kept: Kept,
    /// The page to go on from.
    stop: u64,
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
        let mut prepared = FaultState::new(self.memory(), (), true);
        let mut at = match marks {
            true => pages.start,
            false => self.tables().first_table(pages.start, pages.end),
        };
        while at < pages.end {
            let end = ((at + BATCH) & !(BATCH - 1)).min(pages.end);
            if marks {
                self.make_table_of(Page(at), &mut prepared)?;
            }
            let stop = self.protect_batch(Pages::new(at, end), marks);
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

    /// Write-protects pages from the start of `pages` on, of one table, and puts markers into its empty entries if
    /// `marks`. Returns the page to go on from.
    fn protect_batch(&self, pages: Pages, marks: bool) -> u64 {
        let mut batch = Protected {
            gather: Gather::new(),
            kept: Kept::new(pages.start),
            stop: pages.end,
        };
        let txn = PteTxn::begin(self.machine());
        let section = self.memory().enter();
        match marks {
            true => self.protect_all(&txn, pages, &mut batch, &section),
            false => self.tables().for_each_entry(pages, &mut |entry, page| {
                if page < batch.stop {
                    self.protect_entry(&txn, entry, page, None, &mut batch);
                }
            }),
        }
        if !mutant(Mutant::WatchedWithoutFlush) {
            self.tables().flush(&mut batch.gather);
        }
        if batch.kept.any {
            let done = Pages::new(pages.start, batch.stop);
            self.tables().for_each_entry(done, &mut |entry, page| {
                if batch.kept.has(page) {
                    entry.release_kept::<M::Format>();
                }
            });
        }
        drop(section);
        drop(txn);
        batch.stop
    }

    /// Visits the empty entries of `pages`, too.
    fn protect_all(
        &self,
        txn: &PteTxn<'_, M>,
        pages: Pages,
        batch: &mut Protected,
        section: &Section<'_>,
    ) {
        for page in pages.start..pages.end {
            let Walk::Leaf { entry, link, .. } = self.tables().descend(Page(page), section) else {
                batch.stop = page;
                return;
            };
            self.protect_entry(txn, entry, page, Some(&link), batch);
            if batch.stop <= page {
                return;
            }
            if page.is_multiple_of(POLL_INTERVAL) {
                self.machine().poll();
            }
        }
    }

    /// Write-protects a page. `link`: an empty entry gets a marker, if its table stays. Ends the batch before the page
    /// if that has to be tried again.
    fn protect_entry(
        &self,
        txn: &PteTxn<'_, M>,
        entry: &Entry,
        page: u64,
        link: Option<&Link<'_>>,
        batch: &mut Protected,
    ) {
        let format = Self::FORMAT;
        let mut backoff = Backoff::new();
        loop {
            let value = entry.load();
            if format.is_claimed(value) {
                if batch.kept.any {
                    // Never wait for a claim while holding one (rule R9).
                    batch.stop = page;
                    return;
                }
                backoff.turn(self.machine());
                continue;
            }
            if value == 0 {
                // Perhaps reclaim has emptied it just now.
                let Some(link) = link else { return };
                if mutant(Mutant::EmptiedLeftUnmarked) && backoff.turns() > 0 {
                    return;
                }
                let is_linked = || match link.is_valid() {
                    true => Ok(()),
                    false => Err(Retry::TableChanged),
                };
                match txn.claim(entry, 0, is_linked) {
                    Ok(claim) => return claim.publish(format.marker()),
                    Err(Retry::TableChanged) => {
                        batch.stop = page;
                        return;
                    }
                    Err(_) => continue,
                }
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
                batch.kept.add(page);
                return self.tables().gather(before, page, &mut batch.gather);
            }
        }
    }

    /// Makes the table that has the entry of a page, which is mapped.
    fn make_table_of(&self, page: Page, prepared: &mut FaultState<M, ()>) -> Result<(), Errno> {
        let mut backoff = Backoff::new();
        loop {
            match self.try_to_make_table_of(page, prepared) {
                Ok(()) => return Ok(()),
                Err(Retry::Wait(Blocker::Memory)) if !prepared.find_memory() => {
                    return Err(Errno::ENOMEM);
                }
                Err(_) => backoff.turn(self.machine()),
            }
        }
    }

    fn try_to_make_table_of(
        &self,
        page: Page,
        prepared: &mut FaultState<M, ()>,
    ) -> Result<(), Retry> {
        let section = self.memory().enter();
        // The caller holds the range.
        let Some(vma) = VmaRef::find(&self.maps, page, Mode::Locked, &section)? else {
            return Err(Retry::MappingChanged);
        };
        loop {
            match self.tables().descend(page, &section) {
                Walk::Leaf { .. } => return Ok(()),
                Walk::Missing { entry, link, .. } => {
                    let at = PteRef {
                        entry,
                        value: 0,
                        link,
                        vma: &vma,
                    };
                    self.install_table(&at, prepared)?;
                }
                Walk::Busy | Walk::Huge { .. } => return Err(Retry::TableChanged),
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
