//! The memory use of a range, as `/proc/PID/smaps` shows it.
//!
//! Entries and their frames' descriptors are read inside read sections, concurrently with writers and without a
//! lock, as for `pagemap`. It takes time by pages. For a whole space, [`crate::Rss`] is counted as pages come
//! and go.

use core::ops::{AddAssign, Range};

use faultless_frames::{Flags, FrameSource};
use faultless_paging::{PAGE_SIZE, Pages};

use crate::base::machine::Machine;
use crate::space::AddressSpace;
use crate::table::huge_share::mappings_of;
use crate::table::pages::Span;

/// Pages read in one section.
const BATCH: u64 = 4096;

/// A number of bytes divided among the mappings that share them, in fractions of a byte, as on Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share(u64);

impl Share {
    const PARTS: u32 = 12;

    /// The share of each of so many mappings of a page.
    fn of_page(map_count: u64) -> Self {
        Self((PAGE_SIZE << Self::PARTS) / map_count.max(1))
    }

    /// Returns the whole bytes.
    pub fn bytes(self) -> u64 {
        self.0 >> Self::PARTS
    }
}

impl AddAssign for Share {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

/// The memory use of a range in bytes, without the shared zero page and devices. A page is *shared* if more
/// than one entry maps it, here or in another address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All pages, including those that no access may reach.
    pub resident: u64,
    /// This range's share of all pages.
    pub share: Share,
    /// Its share of pages that were written.
    pub share_dirty: Share,
    /// Its share of anonymous pages.
    pub share_anonymous: Share,
    /// Pages that are shared, and not written through this mapping.
    pub shared_clean: u64,
    /// Pages that are shared, and written.
    pub shared_dirty: u64,
    /// Pages that are neither shared nor written.
    pub private_clean: u64,
    /// Pages that are not shared, and written.
    pub private_dirty: u64,
    /// Pages used since accessed bits were cleared ([`AddressSpace::clear_accessed`]).
    pub referenced: u64,
    /// Pages that no memory object has.
    pub anonymous: u64,
    /// Anonymous pages that were lazily freed (`MADV_FREE`) and not written since.
    pub lazily_free: u64,
    /// Pages of huge pages that are mapped as a whole (`AnonHugePages`), without the huge zero page.
    pub huge: u64,
    /// The same of memory objects (`ShmemPmdMapped`).
    pub object_huge: u64,
    /// Pages of the pool of huge pages, not counted above, that several entries map (`Shared_Hugetlb`).
    pub shared_pooled: u64,
    /// Those that one entry maps (`Private_Hugetlb`).
    pub private_pooled: u64,
    /// Pages that were swapped out.
    pub swapped: u64,
    /// This range's share of these.
    pub share_swapped: Share,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.resident += other.resident;
        self.share += other.share;
        self.share_dirty += other.share_dirty;
        self.share_anonymous += other.share_anonymous;
        self.shared_clean += other.shared_clean;
        self.shared_dirty += other.shared_dirty;
        self.private_clean += other.private_clean;
        self.private_dirty += other.private_dirty;
        self.referenced += other.referenced;
        self.anonymous += other.anonymous;
        self.lazily_free += other.lazily_free;
        self.huge += other.huge;
        self.object_huge += other.object_huge;
        self.shared_pooled += other.shared_pooled;
        self.private_pooled += other.private_pooled;
        self.swapped += other.swapped;
        self.share_swapped += other.share_swapped;
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Returns the memory use of a byte range, in whole pages.
    pub fn usage(&self, range: Range<u64>) -> Usage {
        let pages = Pages::of_bytes(range.start..range.end.min(self.layout().end));
        let mut usage = Usage::default();
        let mut at = self.tables().first_table(pages.start, pages.end);
        while at < pages.end {
            let batch = Pages::new(at, pages.end.min(at.saturating_add(BATCH)));
            let section = self.memory().enter();
            self.tables().visit_spans(batch, &mut |span| {
                match span {
                    Span::Table(table, part) => {
                        self.tables().for_each_in(table, part, &mut |entry, _| {
                            self.add_entry(self.tables().settled(entry), &mut usage);
                        });
                    }
                    Span::Huge(_, value, part) => {
                        for page in part.start..part.end {
                            self.add_entry(self.tables().part_of(value, page), &mut usage);
                        }
                        let bytes = part.len() * PAGE_SIZE;
                        let is_pooled =
                            self.machine().frames().is_pooled(Self::FORMAT.frame(value));
                        if is_pooled || self.tables().is_huge_zero(value) {
                            return true;
                        }
                        match self.tables().is_huge_of_object(value) {
                            true => usage.object_huge += bytes,
                            false => usage.huge += bytes,
                        }
                    }
                }
                true
            });
            drop(section);
            at = self.tables().first_table(batch.end, pages.end);
        }
        usage
    }

    fn add_entry(&self, value: u64, usage: &mut Usage) {
        let format = Self::FORMAT;
        if let Some(swapped) = self.tables().swap_of(value) {
            usage.swapped += PAGE_SIZE;
            usage.share_swapped += Share::of_page(self.memory().slot_uses(&swapped));
            return;
        }
        if !format.has_page(value) {
            return;
        }
        let Some(descriptor) = self.tables().counted(value) else {
            return;
        };
        let map_count = match descriptor.flags().has(Flags::FILE) {
            true => descriptor.map_count(),
            false => mappings_of(self.machine().frames(), format.frame(value)),
        };
        let map_count = u64::from(map_count);
        if self.machine().frames().is_pooled(format.frame(value)) {
            match map_count > 1 {
                true => usage.shared_pooled += PAGE_SIZE,
                false => usage.private_pooled += PAGE_SIZE,
            }
            return;
        }
        let share = Share::of_page(map_count);
        let is_dirty = format.is_dirty(value);
        usage.resident += PAGE_SIZE;
        usage.share += share;
        if !descriptor.flags().has(Flags::FILE) {
            usage.anonymous += PAGE_SIZE;
            usage.share_anonymous += share;
            if !is_dirty {
                usage.lazily_free += PAGE_SIZE;
            }
        }
        if format.is_used(value) {
            usage.referenced += PAGE_SIZE;
        }
        if is_dirty {
            usage.share_dirty += share;
        }
        *match (map_count > 1, is_dirty) {
            (true, false) => &mut usage.shared_clean,
            (true, true) => &mut usage.shared_dirty,
            (false, false) => &mut usage.private_clean,
            (false, true) => &mut usage.private_dirty,
        } += PAGE_SIZE;
    }
}
