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

use faultless_paging::{Access, Page, Walk};

use crate::fault::Repair;
use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Repairs the entry of a page. `None` if it takes more than what the entry says.
    #[inline]
    pub(crate) fn repair(&self, page: Page, access: Access) -> Option<Repair> {
        let section = self.memory.enter();
        let Walk::Leaf {
            entry, mut value, ..
        } = self.descend(page, &section)
        else {
            return None;
        };
        loop {
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
            if new == value {
                return Some(Repair::Spurious);
            }
            // Release and acquire: what the guest stores from here on comes after what the protection's owner has read.
            match entry.replace(value, new) {
                Ok(()) => return Some(Repair::Fast),
                Err(now) => value = now,
            }
        }
    }
}
