//! The fast path: repairs an entry from what the entry itself says, by one compare-and-swap.
//!
//! Dirty logging takes write access away, and access tracking all access; the entry remembers what it allowed. Restoring it
//! needs no look at the slots or the host: whatever takes more away, a slot's deletion or the host, replaces the entry, and
//! then the compare-and-swap fails. Marking the page dirty needs none either: an entry that allows stores *is* the mark
//! ([`crate::log`]).
//!
//! The mechanism is that of Linux's `fast_page_fault` for the TDP MMU (J. Houghton and D. Matlack, "KVM: x86/mmu: Fast page
//! fault support for the TDP MMU", 2021), which has to find the slot to mark the page.
//!
//! *Writes*: the entry.
//!
//! *Models*: loom `log.rs`.

use faultless_paging::{Access, Page, Value, Walk};
use faultless_sync::reclaim::Section;
use faultless_sync::{Mutant, mutant};
use faultless_trace::{Event, FastPageFault};

use crate::fault::{GuestFault, Repair};
use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};

/// Is told of the entry that the fast path finds and leaves; `()` ignores it.
pub(crate) trait EntrySink {
    /// The entry as it is before it changes.
    fn found(&mut self, value: u64);
    /// What it was changed to.
    fn changed(&mut self, value: u64);
}

impl EntrySink for () {
    #[inline(always)]
    fn found(&mut self, _: u64) {}
    #[inline(always)]
    fn changed(&mut self, _: u64) {}
}

impl EntrySink for FastPageFault {
    fn found(&mut self, value: u64) {
        (self.old, self.new) = (value, value);
    }

    fn changed(&mut self, value: u64) {
        self.new = value;
    }
}

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// As [`Guest::repair`], with an event. The fast path is compiled twice, so that a fault without a trace pays one branch
    /// for it.
    #[cold]
    #[inline(never)]
    pub(crate) fn repair_recorded(&self, fault: &GuestFault<'_>) -> Option<Repair> {
        let mut event = FastPageFault {
            vcpu: fault.vcpu,
            address: fault.address,
            error_code: fault.error_code,
            ..FastPageFault::default()
        };
        let repair = match self.has_rings() {
            true => self.repair_in_ring(fault, &mut event),
            false => self.repair(Page::containing(fault.address), fault.access, &mut event),
        };
        event.is_fixed = repair == Some(Repair::Fast);
        event.is_spurious = repair == Some(Repair::Spurious);
        self.memory
            .record(|now| Event::fast_page_fault(now, &event));
        repair
    }

    /// Returns an entry so that it allows an access. `None` if it takes more than what the entry says.
    #[inline(always)]
    pub(crate) fn repaired(value: Value, access: Access) -> Option<Value> {
        let mut new = value;
        if M::SecondLevel::is_tracked(value) {
            new = M::SecondLevel::restored(value);
        } else if !Self::FORMAT.is_present(value) || Self::FORMAT.is_claimed(value) {
            return None;
        }
        if !Self::FORMAT.permits(new, access) {
            if access != Access::Write || !M::SecondLevel::may_write(value) {
                return None;
            }
            new = M::SecondLevel::writable(new);
        }
        Some(new)
    }

    /// Repairs the entry of a page. `None` if it takes more than what the entry says.
    #[inline]
    pub(crate) fn repair(
        &self,
        page: Page,
        access: Access,
        sink: &mut impl EntrySink,
    ) -> Option<Repair> {
        let section = self.memory.enter();
        let Walk::Leaf {
            entry, mut value, ..
        } = self.descend(page, &section)
        else {
            return self.repair_huge(page, access, sink, &section);
        };
        loop {
            sink.found(value);
            let new = Self::repaired(value, access)?;
            if new == value {
                return Some(Repair::Spurious);
            }
            // Release and acquire: what the guest stores from here on comes after what the protection's owner has read.
            match entry.replace(value, new) {
                Ok(()) => {
                    sink.changed(new);
                    return Some(Repair::Fast);
                }
                Err(now) => value = now,
            }
        }
    }

    /// Repairs the entry of a huge page. Only what access tracking has taken away comes back like this: a store that the entry does
    /// not allow may have to be logged, for one page of it.
    #[cold]
    #[inline(never)]
    pub(crate) fn repair_huge(
        &self,
        page: Page,
        access: Access,
        sink: &mut impl EntrySink,
        section: &Section<'_>,
    ) -> Option<Repair> {
        let Walk::Leaf { entry, .. } = self.descend_to_huge(page, section) else {
            return None;
        };
        loop {
            let value = entry.load();
            sink.found(value);
            if !M::SecondLevel::has_huge(value) {
                return None;
            }
            let rights = match M::SecondLevel::is_tracked(value) {
                true => M::SecondLevel::restored(value),
                false => value,
            };
            if !Self::FORMAT.permits(rights, access) && !mutant(Mutant::HugeMadeWritable) {
                return None;
            }
            let new = Self::repaired(value, access)?;
            if new == value {
                return Some(Repair::Spurious);
            }
            if entry.replace(value, new).is_ok() {
                sink.changed(new);
                return Some(Repair::Fast);
            }
        }
    }
}
