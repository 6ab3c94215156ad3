//! Faults of a guest: an access that its second-level tables do not allow.
//!
//! First the fast path ([`fast`], [`ringed`]), then, if the entry alone does not say enough, the page is mapped ([`map`]).
//!
//! *Writes*: the entry; tables that are missing; the vCPU's ring; this CPU's counters. What the host's own fault writes, if its page is not
//! there.

mod around;
mod fast;
pub(crate) mod map;
mod ringed;

use faultless_mm::Outcome;
use faultless_paging::{Access, ENTRIES, LEVELS, PAGE_SIZE, Page};
use faultless_sync::Backoff;
use faultless_trace::{Counter, Tracer};

use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::log::ring::{DirtyRing, RingFull};
use crate::tables::Again;

/// Guest-physical pages that the tables reach.
pub(crate) const LIMIT: u64 = (ENTRIES as u64).pow(LEVELS as u32);

/// How often a fault looks for memory for a table.
const SEARCHES: u32 = 16;

/// How a guest's fault ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestOutcome {
    /// The guest can be entered again.
    Resolved(Repair),
    /// The access is one to a device: no slot has the address, or its slot is read-only and the access a store.
    Device,
    /// The host's memory there cannot be accessed like this: never [`Outcome::Resolved`].
    Host(Outcome),
    /// The page is not dirty yet, and there is no place for it in the ring, or the fault has no ring and the guest has. The access can be
    /// tried again after a reset.
    RingFull,
}

/// How a guest's entry came to allow an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Access was restored from what the entry said.
    Fast,
    /// The entry allowed the access already.
    Spurious,
    /// The page was mapped.
    Mapped,
}

/// A guest's fault.
#[derive(Clone, Copy, Debug)]
pub struct GuestFault<'r> {
    /// The guest-physical address.
    pub address: u64,
    /// What the guest wants to do there.
    pub access: Access,
    /// The number of the vCPU, for the trace.
    pub vcpu: u32,
    /// The lower bits of hardware's error code, for the trace.
    pub error_code: u8,
    /// The ring of the vCPU, in a guest that has rings ([`Guest::use_rings`]).
    pub ring: Option<&'r DirtyRing<'r>>,
}

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Resolves a fault that no vCPU has taken, as for an access that the host makes for the guest. As
    /// [`Guest::fault_of_vcpu`].
    #[inline]
    pub fn fault(&self, address: u64, access: Access) -> GuestOutcome {
        let fault = GuestFault {
            address,
            access,
            vcpu: 0,
            error_code: 0,
            ring: None,
        };
        self.fault_of_vcpu(&fault)
    }

    /// Resolves a guest's fault. With no lock held, outside sections, in the thread of a vCPU, whose own address space may be
    /// any.
    #[inline]
    pub fn fault_of_vcpu(&self, fault: &GuestFault<'_>) -> GuestOutcome {
        let (page, access) = (Page::containing(fault.address), fault.access);
        self.memory.count(Counter::PfTaken);
        // Outside the limit the walk would find another page's entry.
        let repaired = match self.options.fast_page_fault && page.0 < LIMIT {
            true if Tracer::any_is_on() => self.repair_recorded(fault),
            true if self.has_rings() => self.repair_in_ring(fault, &mut ()),
            true => self.repair(page, access, &mut ()),
            false => None,
        };
        if let Some(repair) = repaired {
            // As in KVM: also among those that were fixed, or spurious.
            self.memory.count(Counter::PfFast);
            self.count(repair);
            return GuestOutcome::Resolved(repair);
        }
        self.map_or_fail(fault)
    }

    #[inline]
    fn count(&self, repair: Repair) {
        self.memory.count(match repair {
            Repair::Spurious => Counter::PfSpurious,
            Repair::Fast | Repair::Mapped => Counter::PfFixed,
        });
    }

    /// Tries to make memory free, with nothing held.
    #[cold]
    pub(crate) fn find_memory(&self) {
        self.memory.expedite();
        self.memory.reclaim_some();
    }

    #[inline(never)]
    fn map_or_fail(&self, fault: &GuestFault<'_>) -> GuestOutcome {
        let mut backoff = Backoff::new();
        let mut searches = 0;
        loop {
            match self.map(fault) {
                Ok(outcome) => {
                    if let GuestOutcome::Resolved(repair) = outcome {
                        self.count(repair);
                    }
                    return outcome;
                }
                Err(Again::Busy) => {}
                Err(Again::Ring(RingFull)) => return GuestOutcome::RingFull,
                Err(Again::Memory) => {
                    searches += 1;
                    if searches > SEARCHES {
                        return GuestOutcome::Host(Outcome::OutOfMemory);
                    }
                    self.find_memory();
                }
                Err(Again::Host(host)) => {
                    match self.space().fault_by_kernel(host * PAGE_SIZE, fault.access) {
                        // No rest: mostly the page is there now.
                        Outcome::Resolved => continue,
                        outcome => return GuestOutcome::Host(outcome),
                    }
                }
            }
            backoff.rest(self.machine());
        }
    }
}
