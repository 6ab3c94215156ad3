//! TLB flushes: the interface that a machine implements ([`Tlb`]), and the gather of an operation
//! ([`Gather`]).

use core::ops::Range;

use faultless_sync::{Cpu, CpuSet, fence_after_rmw};

use crate::address::{Frame, PAGE_SIZE, Page, Pages};
use crate::holders::Holders;

/// The identity of an address space for the machine's TLBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceId {
    /// The root table.
    pub root: Frame,
    /// A number that is never reused.
    pub id: u64,
}

/// A flush of one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// Whether entries that lead to tables were changed: tables were unlinked, or a fork removed write
    /// permission above them. Walk caches must then be flushed, too.
    pub tables: bool,
}

impl Flush {
    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        (self.end - self.start) / PAGE_SIZE
    }
}

/// A machine's TLBs.
pub trait Tlb {
    /// Flushes a range on `cpus`, which may include the caller's CPU. On return, none of them uses a
    /// translation of `space` in that range that was loaded before the call.
    ///
    /// The caller has already changed the entries, by read-modify-writes or followed by a full fence. So a
    /// CPU that joins `cpus` later sees the new ones. The machine counts remote and local flushes.
    fn flush(&self, cpus: &CpuSet, space: SpaceId, flush: Flush);

    /// Whether every table walk applies [`Format::loaded`](crate::Format::loaded) to an entry before it uses
    /// it, including entries that lead to tables ([`crate::walk_marking`]). Entries then name their owners,
    /// and flushes go only to CPUs that may hold what was changed ([`crate::holders`]). Hardware does not do
    /// this, and has accessed bits preset. The answer is always the same.
    #[inline]
    fn marks_loads(&self) -> bool {
        false
    }
}

/// The ranges that one operation must flush and the CPUs that may hold them, collected for a single flush.
#[derive(Clone, Debug)]
pub struct Gather {
    /// Ends before it begins if nothing was changed.
    range: Range<u64>,
    tables: bool,
    holders: Holders,
}

impl Default for Gather {
    fn default() -> Self {
        Self::new()
    }
}

impl Gather {
    /// Returns an empty gather.
    pub fn new() -> Self {
        Self {
            range: Range {
                start: u64::MAX,
                end: 0,
            },
            tables: false,
            holders: Holders::NONE,
        }
    }

    /// Returns a gather of one page.
    pub fn of_page(page: Page, holders: Holders) -> Self {
        let mut gather = Self::new();
        gather.add(page.address(), PAGE_SIZE, holders);
        gather
    }

    /// Adds an entry that was changed and that the TLBs of `holders` may hold.
    #[inline]
    pub fn add(&mut self, address: u64, bytes: u64, holders: Holders) {
        self.holders = self.holders.and(holders);
        self.range.start = self.range.start.min(address);
        self.range.end = self.range.end.max(address + bytes);
    }

    /// Adds a table that was unlinked, or the parent entry of which was changed; walk caches may hold it.
    pub fn add_table(&mut self, address: u64, bytes: u64, holders: Holders) {
        self.add(address, bytes, holders);
        self.tables |= holders != Holders::NONE;
    }

    /// Adds what another operation has gathered in the same space.
    pub fn join(&mut self, other: Gather) {
        self.range.start = self.range.start.min(other.range.start);
        self.range.end = self.range.end.max(other.range.end);
        self.tables |= other.tables;
        self.holders = self.holders.and(other.holders);
    }

    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns the pages from the first that was changed to the last, whether or not a TLB holds any of them.
    pub fn pages(&self) -> Pages {
        Pages::of_bytes(self.range.clone())
    }

    /// Flushes what was collected on the members of `cpus` that may hold it, and empties the gather. Returns
    /// the flush, if there was anything to flush.
    pub fn flush<T: Tlb + ?Sized>(
        &mut self,
        tlb: &T,
        cpus: &CpuSet,
        space: SpaceId,
    ) -> Option<Flush> {
        let Self {
            range,
            tables,
            holders,
        } = core::mem::take(self);
        if range.is_empty() || holders == Holders::NONE {
            return None;
        }
        let flush = Flush {
            start: range.start,
            end: range.end,
            tables,
        };
        // The entries were changed by read-modify-writes, or before a fence, and the set is read afterwards.
        // Partner: the barrier of a CPU that joins the set ([`CpuSet::insert`]).
        fence_after_rmw();
        match holders.among(cpus) {
            None => tlb.flush(cpus, space, flush),
            Some(some) if some.is_empty() => {}
            Some(some) => tlb.flush(&some, space, flush),
        }
        Some(flush)
    }

    /// Flushes like [`Gather::flush`] if only `cpu`, the caller's own, may hold any of it, so that there is
    /// nothing to wait for. Otherwise flushes nothing and keeps what was collected.
    ///
    /// # Errors
    /// [`HeldElsewhere`].
    pub fn flush_here<T: Tlb + ?Sized>(
        &mut self,
        tlb: &T,
        cpu: Cpu,
        cpus: &CpuSet,
        space: SpaceId,
    ) -> Result<Option<Flush>, HeldElsewhere> {
        if self.is_empty() {
            return Ok(None);
        }
        // As in `flush`: a CPU that joins the set later sees the new entries and needs no flush.
        fence_after_rmw();
        if !self.holders.are_only(cpu, cpus) {
            return Err(HeldElsewhere);
        }
        let Self {
            range,
            tables,
            holders,
        } = core::mem::take(self);
        if holders == Holders::NONE {
            return Ok(None);
        }
        let flush = Flush {
            start: range.start,
            end: range.end,
            tables,
        };
        if cpus.contains(cpu) {
            tlb.flush(&CpuSet::of(cpu), space, flush);
        }
        Ok(Some(flush))
    }
}

/// The error that another CPU may hold what is to be flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldElsewhere;
