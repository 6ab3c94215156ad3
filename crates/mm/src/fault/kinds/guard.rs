//! Guards: entries that forbid access to their page (`MADV_GUARD_INSTALL`).
//!
//! A guard belongs to its entry, not to a mapping. It costs no mapping, and any number of pages between
//! others can have one. It stays until it is removed or its page is unmapped; a move takes it along, and
//! `fork` copies it. A fault on a guard ends without a lock, as where nothing is mapped.
//!
//! Installing discards a page and guards its entry in one step. Entries are claimed, empty ones too, flushed,
//! and then published as guards (rule R2). So no mapping changes, and faults beside them go on. Several
//! claims are held until the flush, so nothing is waited for meanwhile (rule R9). Removing a guard takes one
//! compare-and-swap for each entry and no flush: no TLB holds an entry that is not present.
//!
//! The caller keeps mappings as they are ([`AddressSpace::hold_range`]). Tables are installed as by a fault,
//! beside writers that free others.
//!
//! *Writes*: the entries, and the descriptors of pages that were there.
//!
//! *Models*: loom `fault/guard.rs`.

use faultless_paging::{ENTRIES, Frame, Gather, Page, Pages, Walk};
use faultless_sync::reclaim::Section;
use faultless_sync::{Backoff, Mutant, mutant};

use crate::base::errno::Errno;
use crate::base::frame_list::FrameList;
use crate::base::machine::Machine;
use crate::base::notes::Note;
use crate::fault::state::FaultState;
use crate::fault::{Outcome, PteRef};
use crate::lock::vma::{Mode, VmaRef};
use crate::space::AddressSpace;
use crate::table::retry::{Blocker, Retry};
use crate::table::rss::RssDelta;
use crate::table::txn::PteTxn;

/// Entries claimed under one flush.
const BATCH: u64 = ENTRIES as u64;

impl<M: Machine> AddressSpace<M> {
    /// Ends a fault that has found a guard: an error, if the guard belongs to the mapping that was found.
    #[cold]
    pub(crate) fn meet_guard(
        &self,
        at: &PteRef<'_>,
        mode: Mode,
        page: Page,
    ) -> Result<Outcome, Retry> {
        // The guard may belong to a later mapping, which allows other accesses. No fence is needed: the guard
        // was installed after that mapping was made, and the entry was loaded with acquire.
        at.validate()?;
        Ok(self.guard_fault(mode, page.address()))
    }

    /// Whether the entry of a page is a guard.
    pub(crate) fn is_guarded(&self, page: Page) -> bool {
        let section = self.memory().enter();
        let walked = self.tables().look(page, &section);
        matches!(walked, Walk::Leaf { value, .. } if Self::FORMAT.is_guard(value))
    }

    /// Installs guards in all of `pages`.
    ///
    /// # Errors
    /// `ENOMEM` when there is no frame for a table; the pages before it are guarded.
    pub(crate) fn install_guards(&self, pages: Pages) -> Result<(), Errno> {
        let mut prepared = FaultState::new(self.memory(), (), true);
        let mut backoff = Backoff::new();
        let mut at = pages.start;
        while at < pages.end {
            let batch = Pages::new(at, pages.end.min(at + BATCH));
            let (stop, why) = self.install_batch(batch, &mut prepared);
            match why {
                Some(Retry::Wait(Blocker::Memory)) if !prepared.find_memory() => {
                    return Err(Errno::ENOMEM);
                }
                // Another CPU is at work on the next entry, or on its table.
                Some(_) if stop == at => backoff.turn(self.machine()),
                _ => backoff = Backoff::new(),
            }
            self.machine().poll();
            at = stop;
        }
        Ok(())
    }

    /// Installs guards from the start of `pages` on. Returns the page to go on from, and why it stopped
    /// there.
    fn install_batch(
        &self,
        pages: Pages,
        prepared: &mut FaultState<M, ()>,
    ) -> (u64, Option<Retry>) {
        let mut gather = Gather::new();
        let mut chain = FrameList::default();
        let (mut stop, mut why) = (pages.end, None);
        let txn = PteTxn::begin(self.machine());
        let section = self.memory().enter();
        for page in pages.start..pages.end {
            match self.claim_to_guard(&txn, Page(page), prepared, &section) {
                Ok(None) => {}
                Ok(Some(before)) => self.tables().gather(before, page, &mut gather),
                Err(withdrawn) => {
                    (stop, why) = (page, Some(withdrawn));
                    break;
                }
            }
        }
        self.tables().flush(&mut gather);
        self.publish_guards(Pages::new(pages.start, stop), &mut chain);
        drop(section);
        drop(txn);
        chain.free_all(self.machine());
        (stop, why)
    }

    /// Claims the entry of `page` and keeps the claim. Returns what the entry held; `None` if there is no
    /// mapping, or a guard already.
    fn claim_to_guard(
        &self,
        txn: &PteTxn<'_, M>,
        page: Page,
        prepared: &mut FaultState<M, ()>,
        section: &Section<'_>,
    ) -> Result<Option<u64>, Retry> {
        // The caller holds the lock that this mode requires.
        let Some(hold) = VmaRef::find(&self.maps, page, Mode::Locked, section)? else {
            return Ok(None);
        };
        if hold.is_special() {
            self.maps.note(Note::GUARDED_OBJECTS);
        }
        let at = loop {
            match self.tables().descend(page, section) {
                Walk::Leaf { entry, value, link } => {
                    break PteRef {
                        entry,
                        value,
                        link,
                        vma: &hold,
                    };
                }
                Walk::Missing { entry, link, .. } => {
                    let at = PteRef {
                        entry,
                        value: 0,
                        link,
                        vma: &hold,
                    };
                    self.install_table(&at, prepared)?;
                }
                Walk::Busy | Walk::Huge { .. } => return Err(Retry::TableChanged),
            }
        };
        if Self::FORMAT.is_guard(at.value) {
            return Ok(None);
        }
        if Self::FORMAT.is_claimed(at.value) {
            if mutant(Mutant::ClaimsNotAwaited) {
                return Ok(None);
            }
            return Err(Retry::EntryClaimed);
        }
        // Once the claim is validated the table stays: it is not empty from here on.
        let claim = txn.claim(at.entry, at.value, || at.validate())?;
        match at.value == 0 || Self::FORMAT.has_page(at.value) {
            true => claim.keep(),
            false => {
                claim.publish(Self::FORMAT.guard);
                self.tables().drop_pageless(at.value);
            }
        }
        Ok(Some(at.value))
    }

    /// After the flush: makes guards of the entries of `pages` in which this CPU has kept a claim, and
    /// releases their pages.
    fn publish_guards(&self, pages: Pages, chain: &mut FrameList) {
        let cpu = self.machine().cpu();
        let mut gone = RssDelta::default();
        self.tables().for_each_entry(pages, &mut |entry, _| {
            let value = entry.load();
            if value == Self::FORMAT.claim_of(value, cpu) {
                // Only this CPU writes its claim.
                entry.set(Self::FORMAT.guard);
                if Self::FORMAT.frame(value) != Frame(0) {
                    gone.add(self.tables().give_up(value, chain));
                }
            }
        });
        self.tables().rss.gone(cpu, &gone);
    }

    /// Removes the guards of `pages`, and nothing else.
    pub(crate) fn remove_guards(&self, pages: Pages) {
        let _section = self.memory().enter();
        self.tables().for_each_entry(pages, &mut |entry, _| {
            // While mappings are held, only a removal changes a guard.
            let _ = entry.replace(Self::FORMAT.guard, 0);
        });
    }
}
