//! Choosing where a mapping goes, as Linux does on x86-64.
//!
//! A hint is taken if the pages are free. Otherwise the address is the highest hole below `mmap_base` that is
//! large enough. If there is none, it is the lowest from a third of the address space on. With `MAP_ABOVE4G`
//! the first search does not go below 4 GiB; a hint may. With `MAP_32BIT` it is the lowest hole between 1 GiB
//! and 2 GiB, or a hint below 2 GiB, or nothing.
//!
//! Private anonymous memory of whole huge pages, requested without a hint, is aligned to a huge page. This
//! needs a hole with room for one huge page more. Shared memory and files are not aligned, as on Linux
//! without huge pages in shared memory (`shmem_enabled`: never, the default).

use faultless_paging::{PAGE_SIZE, Pages};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::lock::Edit;
use crate::lock::shard::LockDomain;
use crate::lock::{Mappings, RangeWriteGuard};

/// Pages of a huge page.
pub(crate) const HUGE: u64 = 512;
/// The range that `MAP_32BIT` searches.
const LOW: Pages = Pages {
    start: 0x4000_0000 / PAGE_SIZE,
    end: 0x8000_0000 / PAGE_SIZE,
};
/// The first page beyond 32-bit addresses.
const BEHIND_4G: u64 = (1 << 32) / PAGE_SIZE;

/// Which addresses are acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    /// Any address.
    All,
    /// Addresses for programs with small pointers (`MAP_32BIT`).
    Low,
    /// Addresses beyond 32 bits, if there are any (`MAP_ABOVE4G`).
    High,
}

/// A request for free pages.
pub(crate) struct GapRequest {
    /// The address that the program named, or 0.
    pub(crate) hint: u64,
    /// The number of pages.
    pub(crate) count: u64,
    /// Which addresses are acceptable.
    pub(crate) zone: Zone,
    /// Where in a huge page it should begin, if it is to have some: the number of the page.
    pub(crate) huge_offset: Option<u64>,
    /// Whether it must begin there.
    pub(crate) is_pooled: bool,
}

/// Where a writer that holds a range can get another one.
pub(crate) enum Gap<'a, M: Machine> {
    /// Here, under the edit that found it.
    Here(Edit<'a, M>, Pages),
    /// In another lock domain, where the range must be acquired first.
    Elsewhere(Pages),
    /// Nowhere now; perhaps after the zaps in progress, or with every range held.
    Later,
}

impl<'a, M: Machine> RangeWriteGuard<'a, M> {
    /// Finds a gap in the lock domain of this range, or outside all shards.
    ///
    /// # Errors
    /// `ENOMEM`: no gap is large enough, and no zap in progress will open one.
    pub(crate) fn find_gap(&self, wish: &GapRequest) -> Result<Gap<'a, M>, Errno> {
        let maps = self.mappings();
        let part = self.part();
        let mut edit = self.edit();
        match maps.find_unmapped_area(&mut edit, part, wish) {
            Ok(gap) => Ok(Gap::Here(edit, gap)),
            Err(_) if matches!(part, LockDomain::Shard(_)) => {
                drop(edit);
                let mut edit = maps.edit(LockDomain::Central);
                let gap = maps.find_unmapped_area(&mut edit, LockDomain::Central, wish);
                Ok(gap.map_or(Gap::Later, Gap::Elsewhere))
            }
            // There may be one elsewhere, or after a zap.
            Err(_) if part != maps.part_of_everything() || maps.is_zapping() => Ok(Gap::Later),
            Err(error) => Err(error),
        }
    }
}

impl<M: Machine> Mappings<M> {
    /// Returns the pages for a mapping, at the hint if possible: in a shard, outside all shards, or, under an
    /// edit of everything, anywhere.
    pub(crate) fn find_unmapped_area(
        &self,
        edit: &mut Edit<'_, M>,
        part: LockDomain,
        wish: &GapRequest,
    ) -> Result<Pages, Errno> {
        let &GapRequest { count, zone, .. } = wish;
        let layout = &self.layout;
        let (low, end) = (layout.lowest.div_ceil(PAGE_SIZE), layout.end / PAGE_SIZE);
        if count > end - low {
            return Err(Errno::ENOMEM);
        }
        // Linux rounds a hint down to a page, and too low a hint up to the lowest address.
        let hint = match wish.hint / PAGE_SIZE {
            0 => None,
            page => Some(page.max(low)),
        };
        let end_of_hints = match zone {
            Zone::Low => LOW.end.min(end),
            _ => end,
        };
        let at_hint = hint
            .map(|start| Pages::new(start, start.saturating_add(count)))
            .filter(|pages| pages.end <= end_of_hints);
        if let Some(pages) = at_hint {
            if self.may_choose(part, pages) {
                if edit.is_free(pages) {
                    return Ok(pages);
                }
            } else if self.looks_vacant(pages) {
                // Only an edit of everything can decide whether it is free.
                return Err(Errno::ENOMEM);
            }
        }
        let aligned = wish
            .huge_offset
            .filter(|_| hint.is_none() || wish.is_pooled)
            .and_then(|at| {
                let start = self.find_hole(edit, part, count + HUGE, zone)?;
                // From the next such place on, even if the hole begins at one.
                Some(start + 1 + at.wrapping_sub(start + 1) % HUGE)
            });
        let start = match wish.is_pooled {
            true => aligned,
            false => aligned.or_else(|| self.find_hole(edit, part, count, zone)),
        };
        let start = start.ok_or(Errno::ENOMEM)?;
        Ok(Pages::new(start, start + count))
    }

    /// Whether nothing seems to be mapped in `pages`, judged with nothing held.
    fn looks_vacant(&self, pages: Pages) -> bool {
        let _section = self.memory.enter();
        self.tree.is_vacant(pages)
    }

    /// Returns the first page of a hole of `count` pages.
    fn find_hole(
        &self,
        edit: &mut Edit<'_, M>,
        part: LockDomain,
        count: u64,
        zone: Zone,
    ) -> Option<u64> {
        if let Some(room) = self.room_of(part) {
            return edit.highest_hole(count, room.start, room.end);
        }
        let layout = &self.layout;
        let (low, end) = (layout.lowest.div_ceil(PAGE_SIZE), layout.end / PAGE_SIZE);
        let base = layout.mmap_base.min(layout.end) / PAGE_SIZE;
        let bottom = (layout.end / 3).div_ceil(PAGE_SIZE);
        let floor = match zone {
            Zone::All => low,
            Zone::High => low.max(BEHIND_4G),
            // No shard lies there.
            Zone::Low => return edit.lowest_hole(count, LOW.start.max(low), LOW.end.min(end)),
        };
        let lowest = bottom.max(low);
        let outside = edit
            .highest_hole(count, floor, base)
            .or_else(|| edit.lowest_hole(count, lowest, end));
        if outside.is_some() || part != LockDomain::All {
            return outside;
        }
        edit.highest_hole_anywhere(count, floor, base)
            .or_else(|| edit.lowest_hole_anywhere(count, lowest, end))
    }
}
