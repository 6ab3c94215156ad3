//! Translation look-aside buffers: what a machine must do, and what is asked of it.

use core::ops::Range;

use faultless_sync::{Cpu, CpuSet, fence_after_rmw};

use crate::address::{Frame, PAGE_SIZE, Page};
use crate::holders::Holders;

/// Names an address space to the machine's TLBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceId {
    /// The root table.
    pub root: Frame,
    /// A number never used twice.
    pub id: u64,
}

/// What to flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// Whether entries that lead to tables were changed, because tables were unlinked or a fork
    /// takes the right to store away above them: walk caches must go too.
    pub tables: bool,
}

impl Flush {
    /// How many pages.
    pub fn pages(&self) -> u64 {
        (self.end - self.start) / PAGE_SIZE
    }
}

/// A machine's TLBs.
pub trait Tlb {
    /// When it returns, no CPU in `cpus` (the caller's included) uses a
    /// translation of `space` in that range that was loaded before the call.
    ///
    /// The caller has changed the entries before, by read-modify-writes or
    /// followed by a full fence; a CPU that joins `cpus` later sees them new.
    /// The machine counts remote and local flushes.
    fn flush(&self, cpus: &CpuSet, space: SpaceId, flush: Flush);

    /// Whether every table walk makes [`Format::loaded`](crate::Format::loaded) of an entry
    /// before it uses it, of those that lead to tables too ([`crate::walk_marking`]). Then
    /// entries name their owners, and flushes go only to CPUs that may hold what was changed
    /// ([`crate::holders`]). Hardware does not: there accessed bits are preset. The answer is
    /// always the same.
    #[inline]
    fn marks_loads(&self) -> bool {
        false
    }
}

/// Collects what one operation must flush, and who, so that it flushes once.
#[derive(Clone, Debug)]
pub struct Gather {
    /// Ends before it begins, if there is nothing to flush.
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
    /// Nothing to flush.
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

    /// One page.
    pub fn of_page(page: Page, holders: Holders) -> Self {
        let mut gather = Self::new();
        gather.add(page.address(), PAGE_SIZE, holders);
        gather
    }

    /// An entry that the TLBs of these CPUs may hold was changed.
    #[inline]
    pub fn add(&mut self, address: u64, bytes: u64, holders: Holders) {
        if holders == Holders::NONE {
            return;
        }
        self.holders = self.holders.and(holders);
        self.range.start = self.range.start.min(address);
        self.range.end = self.range.end.max(address + bytes);
    }

    /// A table that walk caches may hold was unlinked, or what leads to it was changed.
    pub fn add_table(&mut self, address: u64, bytes: u64, holders: Holders) {
        self.add(address, bytes, holders);
        self.tables |= holders != Holders::NONE;
    }

    /// Whether there is nothing to flush.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Flushes what was collected on those of `cpus` that may hold it, and forgets it. What it
    /// was, if anything.
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
        if range.is_empty() {
            return None;
        }
        let flush = Flush {
            start: range.start,
            end: range.end,
            tables,
        };
        // The entries were changed by read-modify-writes, or before a fence, and the set is read
        // after. Partner: the barrier of a CPU that joins the set ([`CpuSet::insert`]).
        fence_after_rmw();
        match holders.among(cpus) {
            None => tlb.flush(cpus, space, flush),
            Some(some) if some.is_empty() => {}
            Some(some) => tlb.flush(&some, space, flush),
        }
        Some(flush)
    }

    /// The same if no CPU but `cpu`, the caller's own, may hold any of it: so nobody is waited for. Else
    /// nothing is flushed, nor forgotten.
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
        // As in `flush`: who joins the set later sees the entries new, and is not asked.
        fence_after_rmw();
        if !self.holders.are_only(cpu, cpus) {
            return Err(HeldElsewhere);
        }
        let Self { range, tables, .. } = core::mem::take(self);
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

/// Another CPU may hold what is to be flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldElsewhere;
