//! Translation look-aside buffers: what a machine must do, and what is asked of it.

use core::ops::Range;

use faultless_sync::CpuSet;

use crate::address::{Frame, PAGE_SIZE, Page};

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
}

/// Collects what one operation must flush, so that it flushes once.
#[derive(Debug, Default)]
pub struct Gather {
    range: Option<Range<u64>>,
    tables: bool,
}

impl Gather {
    /// Nothing to flush.
    pub fn new() -> Self {
        Self::default()
    }

    /// One page.
    pub fn of_page(page: Page) -> Self {
        let mut gather = Self::new();
        gather.add(page.address(), PAGE_SIZE);
        gather
    }

    /// An entry that TLBs may hold was changed.
    #[inline]
    pub fn add(&mut self, address: u64, bytes: u64) {
        let end = address + bytes;
        self.range = Some(match self.range.take() {
            Some(range) => range.start.min(address)..range.end.max(end),
            None => address..end,
        });
    }

    /// A table that walk caches may hold was unlinked, or what leads to it was changed.
    pub fn add_table(&mut self, address: u64, bytes: u64) {
        self.add(address, bytes);
        self.tables = true;
    }

    /// Whether there is nothing to flush.
    pub fn is_empty(&self) -> bool {
        self.range.is_none()
    }

    /// Flushes what was collected, if anything, and forgets it. What it was.
    pub fn flush<T: Tlb + ?Sized>(
        &mut self,
        tlb: &T,
        cpus: &CpuSet,
        space: SpaceId,
    ) -> Option<Flush> {
        let tables = core::mem::take(&mut self.tables);
        let range = self.range.take()?;
        let flush = Flush {
            start: range.start,
            end: range.end,
            tables,
        };
        tlb.flush(cpus, space, flush);
        Some(flush)
    }
}
