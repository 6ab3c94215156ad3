//! Guards: entries that say that their page may not be reached (`MADV_GUARD_INSTALL`).
//!
//! A guard belongs to its entry, not to a mapping: it costs no mapping, and any number
//! of pages between others can have one. It stays until it is removed or its page is
//! unmapped, goes along where pages are moved, and is copied by `fork`. A fault that
//! meets one is answered without a lock, as where nothing is mapped.
//!
//! To install is to discard and to bar in one: entries are claimed, empty ones too,
//! flushed, and then published as guards (rule R2), so that no mapping has to change
//! and faults beside them go on. Several claims are held until the flush, so nobody is
//! waited for meanwhile (rule R9). To remove takes one compare-and-swap an entry and no
//! flush: no TLB holds an entry that is not present.
//!
//! The caller keeps mappings as they are ([`AddressSpace::hold_range`]). Tables are
//! put in place as by a fault, beside whoever frees others.
//!
//! Written lines: the entries, and the descriptors of pages that were there.
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
    /// A fault has found a guard: an error, if it is one of the mapping that was found.
    #[cold]
    pub(crate) fn meet_guard(
        &self,
        at: &PteRef<'_>,
        mode: Mode,
        page: Page,
    ) -> Result<Outcome, Retry> {
        // It may be a later mapping's, which allows other accesses. No fence: what put it
        // there came after that mapping, and the entry was loaded by acquire.
        at.validate()?;
        Ok(self.guard_fault(mode, page.address()))
    }

    /// Whether the entry of the page at an address is a guard.
    pub(crate) fn is_guarded(&self, page: Page) -> bool {
        let section = self.memory().enter();
        let walked = self.tables().descend(page, &section);
        matches!(walked, Walk::Leaf { value, .. } if Self::FORMAT.is_guard(value))
    }

    /// Puts guards in place of all of `pages`.
    ///
    /// # Errors
    /// `ENOMEM` when there is no frame for a table; what came before it is guarded.
    pub(crate) fn install_guards(&self, pages: Pages) -> Result<(), Errno> {
        let mut prepared = FaultState::new(self.memory(), ());
        let mut backoff = Backoff::new();
        let mut at = pages.start;
        while at < pages.end {
            let batch = Pages::new(at, pages.end.min(at + BATCH));
            let (stop, why) = self.install_batch(batch, &mut prepared);
            match why {
                Some(Retry::Wait(Blocker::Memory)) if !prepared.find_memory() => {
                    return Err(Errno::ENOMEM);
                }
                // Somebody else has the next entry, or its table.
                Some(_) if stop == at => backoff.turn(self.machine()),
                _ => backoff = Backoff::new(),
            }
            self.machine().poll();
            at = stop;
        }
        Ok(())
    }

    /// Guards pages from the start of `pages` on; the page to go on from, and what was
    /// in the way there.
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

    /// Claims the entry of `page` and keeps the claim; what was there. `None` if that is
    /// a guard already.
    fn claim_to_guard(
        &self,
        txn: &PteTxn<'_, M>,
        page: Page,
        prepared: &mut FaultState<M, ()>,
        section: &Section<'_>,
    ) -> Result<Option<u64>, Retry> {
        // The caller has the lock that this mode is about.
        let Some(hold) = VmaRef::find(&self.maps, page, Mode::Locked, section)? else {
            return Ok(None);
        };
        if hold.is_backed() {
            self.maps.note(Note::GUARDED_STORES);
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
        // Validated, the table stays: from here on it is not empty.
        txn.claim(at.entry, at.value, || at.validate())?.keep();
        Ok(Some(at.value))
    }

    /// After the flush: makes guards of those entries of `pages` in which this CPU has
    /// kept a claim, and gives up their pages.
    fn publish_guards(&self, pages: Pages, chain: &mut FrameList) {
        let cpu = self.machine().cpu();
        let mut gone = RssDelta::default();
        self.tables().for_each_entry(pages, &mut |entry, _| {
            let value = entry.load();
            if value == Self::FORMAT.claim_of(value, cpu) {
                // Nobody else writes a claim.
                entry.set(Self::FORMAT.guard);
                if Self::FORMAT.frame(value) != Frame(0) {
                    gone.add(self.tables().give_up(value, chain));
                }
            }
        });
        self.tables().rss.gone(cpu, &gone);
    }

    /// Takes away the guards of `pages`, and nothing else.
    pub(crate) fn remove_guards(&self, pages: Pages) {
        let _section = self.memory().enter();
        self.tables().for_each_entry(pages, &mut |entry, _| {
            // Nobody else changes a guard while mappings are kept, but to remove it.
            let _ = entry.replace(Self::FORMAT.guard, 0);
        });
    }
}
