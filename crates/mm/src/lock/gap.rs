//! Choosing where a mapping goes, as Linux does on x86-64.
//!
//! A hint is taken if the pages are free. Else it is the highest hole below `mmap_base` that is
//! large enough, and if there is none, the lowest from a third of the address space on. With
//! `MAP_ABOVE4G` the first search does not go below 4 GiB; a hint may. With `MAP_32BIT` it is the
//! lowest hole between 1 GiB and 2 GiB, or a hint below 2 GiB, or nothing.
//!
//! Private anonymous memory of whole huge pages that comes without a hint lies on a huge page's
//! boundary, where there is room for a huge page more. Shared memory and files do not, as on a
//! Linux whose shared memory has no huge pages (`shmem_enabled`: never, the default).

use faultless_paging::{PAGE_SIZE, Pages};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::lock::Edit;
use crate::lock::shard::LockDomain;
use crate::lock::{Mappings, RangeWriteGuard};

/// Pages of a huge page.
const HUGE: u64 = 512;
/// Where `MAP_32BIT` looks.
const LOW: Pages = Pages {
    start: 0x4000_0000 / PAGE_SIZE,
    end: 0x8000_0000 / PAGE_SIZE,
};
/// The first page that 32 bits do not address.
const BEHIND_4G: u64 = (1 << 32) / PAGE_SIZE;

/// Which addresses will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    /// Any.
    All,
    /// Those that a program with small addresses reaches (`MAP_32BIT`).
    Low,
    /// Those that 32 bits do not address, if there are any (`MAP_ABOVE4G`).
    High,
}

/// What room is looked for.
pub(crate) struct GapRequest {
    /// The address that was named, or 0.
    pub(crate) hint: u64,
    /// How many pages.
    pub(crate) count: u64,
    /// Where.
    pub(crate) zone: Zone,
    /// Whether it is for private anonymous memory.
    pub(crate) is_private: bool,
}

/// Where a writer that has a range can have more.
pub(crate) enum Gap<'a, M: Machine> {
    /// Here, under the edit under which it was found.
    Here(Edit<'a, M>, Pages),
    /// In another lock domain: the range has to be taken there first.
    Elsewhere(Pages),
    /// Nowhere now; perhaps once what is being zapped is gone, or with every range.
    Later,
}

impl<'a, M: Machine> RangeWriteGuard<'a, M> {
    /// Looks for a gap in the lock domain of this range, or outside of all shards.
    ///
    /// # Errors
    /// `ENOMEM`: there is none, and none will come.
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
            // There may be elsewhere.
            Err(_) if part != maps.part_of_everything() || maps.is_zapping() => Ok(Gap::Later),
            Err(error) => Err(error),
        }
    }
}

impl<M: Machine> Mappings<M> {
    /// Where a mapping goes, at the hint if possible: in an arena, outside of all, or, for who has
    /// everything, anywhere.
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
                // Whether it is free can be said by who has everything.
                return Err(Errno::ENOMEM);
            }
        }
        let is_aligned = wish.is_private && hint.is_none() && count.is_multiple_of(HUGE);
        let aligned = match is_aligned {
            // From the next boundary on, if it is at one already.
            true => self
                .find_hole(edit, part, count + HUGE, zone)
                .map(|start| (start + 1).next_multiple_of(HUGE)),
            false => None,
        };
        let start = aligned.or_else(|| self.find_hole(edit, part, count, zone));
        let start = start.ok_or(Errno::ENOMEM)?;
        Ok(Pages::new(start, start + count))
    }

    /// Whether nothing is mapped in `pages`, as far as can be seen with nothing held.
    fn looks_vacant(&self, pages: Pages) -> bool {
        let _section = self.memory.enter();
        self.tree.is_vacant(pages)
    }

    /// A hole of so many pages.
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
            // No arena lies there.
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
