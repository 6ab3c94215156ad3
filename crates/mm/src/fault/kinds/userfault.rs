//! Faults in mappings that are registered with a userfaultfd.
//!
//! * A missing page of a mapping registered for that, and a store to a page that the handler has write-protected,
//!   are reported. The fault leaves its section with the userfaultfd held, lets go of every lock, and waits in
//!   the queue ([`crate::base::userfault::queue`]). Then it tries again like any other fault: a speculative one
//!   stays speculative.
//! * A read by an instruction that also stores is reported as a store, as by Linux with its published change "arm64: mm: force
//!   write fault for atomic RMW instructions": the handler sees one fault, and not a second one.
//! * Whether stores to a page are reported is a bit of its entry, and a marker where there is no page. Only a
//!   mapping registered for write protection has them.
//! * An entry whose bit is there although its mapping is not registered any more, or whose userfaultfd only
//!   tracks stores (`WP_ASYNC`), loses the bit in the fault.
//!
//! *Writes*: the entry; the userfaultfd's queue and count of holders.
//!
//! *Models*: loom `fault/userfault.rs`.

use faultless_paging::{Access, Page, Pte, Walk};
use faultless_sync::{Mutant, mutant};
use faultless_trace::How;

use crate::base::machine::Machine;
use crate::base::userfault::queue::{Message, Waiter};
use crate::base::userfault::{Handler, numbers as userfault};
use crate::fault::state::{FaultState, Report};
use crate::fault::trace::TraceSink;
use crate::fault::{Outcome, PteRef};
use crate::object::Lookup;
use crate::space::AddressSpace;
use crate::table::retry::Retry;
use crate::tree::SlotState;

impl<M: Machine> AddressSpace<M> {
    /// Resolves an access to an entry without a page, empty or a marker, of private anonymous memory that is, or was,
    /// registered.
    #[cold]
    #[inline(never)]
    pub(crate) fn map_registered_page<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        page: Page,
        access: Access,
        handler: Handler,
        prepared: &mut FaultState<M, N>,
    ) -> Result<Outcome, Retry> {
        if handler.waits(userfault::MISSING) {
            return Err(prepared.needs_handler(handler, flags_of(access)));
        }
        if access == Access::Write {
            self.map_fresh_page(at, page, prepared)?;
            if at.value != 0 {
                // In place of a marker: the next try reports the store.
                return Err(Retry::EntryClaimed);
            }
            prepared.trail.ends(How::FirstTouch);
        } else {
            self.map_zero_page::<N>(at)?;
            prepared.trail.ends(How::ZeroPage);
        }
        Ok(Outcome::Resolved)
    }

    /// Returns `leaf` as it is published in place of an entry that is not empty. Instead of a marker, stores to it are
    /// reported.
    #[cold]
    pub(crate) fn marked(&self, leaf: u64, at: &PteRef<'_>) -> u64 {
        let attributes = at.vma.attributes();
        let reports = at.value == Self::FORMAT.marker()
            && attributes.is_some_and(|attributes| attributes.handler.reports_writes());
        match reports {
            true => Self::FORMAT.reported(leaf),
            false => leaf,
        }
    }

    /// Reports a store to a page of which stores are reported, or lets the store through. Returns why to try
    /// again.
    #[cold]
    pub(crate) fn report_write<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        prepared: &mut FaultState<M, N>,
    ) -> Retry {
        let Some(attributes) = at.vma.attributes() else {
            return Retry::MappingChanged;
        };
        let handler = attributes.handler;
        let is_let_through = handler.with_feature(userfault::WP_ASYNC | userfault::CLOSED);
        if handler.reports_writes() && !is_let_through {
            let flags = userfault::FLAG_WRITE | userfault::FLAG_WRITE_PROTECT;
            return prepared.needs_handler(handler, flags);
        }
        let clear = |value| value & !Self::FORMAT.reports_writes;
        let cleared = match Self::FORMAT.is_present(at.value) {
            true => self.tables().transact_present(at, || Ok(clear)),
            // A page without access: the access comes from outside.
            false => self.tables().transact(at, || Ok(clear(at.value))),
        };
        cleared.err().unwrap_or(Retry::EntryClaimed)
    }

    /// Waits, with nothing held, until the handler has resolved a fault. Returns how the fault ends if it does
    /// not.
    #[cold]
    pub(crate) fn await_handler<N>(
        &self,
        address: u64,
        access: Access,
        prepared: &mut FaultState<M, N>,
    ) -> Option<Outcome> {
        let report = prepared.take_report()?;
        let access = prepared.origin.access::<M>(access);
        let to = &report.to;
        if to.has(userfault::SIGBUS) || prepared.by_kernel() && to.has(userfault::USER_MODE_ONLY) {
            return Some(Outcome::Bus);
        }
        let thread = match to.has(userfault::THREAD_ID) {
            true => self.machine().thread(),
            false => 0,
        };
        let message = Message::Fault {
            address: to.address_of(address),
            flags: report.flags,
            thread,
        };
        let page = Page::containing(address);
        let waiter = Waiter::new(message, page.0);
        if !to.enter(&waiter) {
            // Closed: the mapping is registered no more, or will not be in a moment.
            return None;
        }
        let is_blocked = self.is_blocked(page, access, &report) || mutant(Mutant::NotLookedAgain);
        let is_woken = !is_blocked || to.wait(&waiter, prepared.by_kernel());
        to.leave(&waiter);
        (!is_woken).then_some(Outcome::Interrupted)
    }

    /// Whether a fault still needs its handler.
    fn is_blocked(&self, page: Page, access: Access, report: &Report<M>) -> bool {
        let section = self.memory().enter();
        // SAFETY: found in this section.
        let is_registered = match unsafe { self.tree().find(page.0).word.content() } {
            SlotState::Live(mapping) => mapping.attributes().handler == report.handler,
            _ => false,
        };
        if !is_registered {
            return false;
        }
        let value = match self.tables().descend(page, &section) {
            Walk::Leaf { value, .. } => value,
            Walk::Missing { .. } => 0,
            Walk::Busy | Walk::Huge { .. } => return false,
        };
        let format = Self::FORMAT;
        match format.decode(value, 0) {
            Pte::Empty | Pte::Marker => {
                report.flags & userfault::FLAG_WRITE_PROTECT == 0 && self.lacks(page, report)
            }
            Pte::Page(_) | Pte::Hidden(_) => {
                access == Access::Write && format.reports_writes(value)
            }
            _ => false,
        }
    }

    /// Whether the page is still missing where the handler has to bring it: its object does not have it, or, for a
    /// minor fault, does.
    fn lacks(&self, page: Page, report: &Report<M>) -> bool {
        // SAFETY: in the caller's section.
        let mapping = unsafe { self.tree().find(page.0).word.mapping() };
        let Some(backed) = mapping.and_then(|mapping| mapping.attributes().backed) else {
            return true;
        };
        let found = backed.object().find(backed.index(page.0));
        let is_there = matches!(found, Lookup::Page(_) | Lookup::Moving | Lookup::Swapped);
        is_there == (report.flags & userfault::FLAG_MINOR != 0)
    }
}

/// Returns the flags of the message of a fault on a missing page.
pub(crate) fn flags_of(access: Access) -> u64 {
    match access {
        Access::Write => userfault::FLAG_WRITE,
        _ => 0,
    }
}
