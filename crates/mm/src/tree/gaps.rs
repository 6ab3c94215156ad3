//! Choosing addresses: the highest hole that is large enough, as Linux does; in rare cases the lowest, by a
//! full walk.
//!
//! A walk down from the top finds the highest hole, but with many mappings that walk is long. The index
//! therefore holds, for each power of two, an address above which no hole of that many pages exists; the
//! search starts there. Filling a hole keeps such a bound true; opening a hole raises the bounds that it
//! makes false. The answer is always that of the full walk.

use faultless_paging::Pages;

use crate::base::machine::Machine;
use crate::tree::value::SlotValue;
use crate::tree::{Edit, EditLocks, Run, Subtree};
use crate::tune::GUARD_GAP;

const CLASSES: usize = 40;

/// Bounds on where holes are.
#[derive(Clone)]
pub struct GapIndex {
    ceiling: u64,
    /// No hole of `2^c` pages below the ceiling ends above `tops[c]`. None is less than the
    /// next one: where no hole is large enough, none is larger.
    tops: [u64; CLASSES],
    /// Only a fork changes the tree now: no stack grows, and no zap clears its marks.
    pub(super) is_frozen: bool,
    /// Contention among writers that choose addresses ([`crate::lock::shard`]).
    pub(crate) crowding: u32,
}

impl GapIndex {
    /// Creates bounds for searches from `ceiling` downwards; other searches do without.
    pub fn new(ceiling: u64) -> Self {
        Self {
            ceiling,
            tops: [ceiling; CLASSES],
            is_frozen: false,
            crowding: 0,
        }
    }

    /// Whether a hole that ends at `end` can raise a bound.
    #[inline]
    pub(super) fn may_rise(&self, end: u64) -> bool {
        self.tops[CLASSES - 1] < end.min(self.ceiling)
    }

    /// Records a new hole at `hole`.
    pub fn opened(&mut self, hole: Pages) {
        let end = hole.end.min(self.ceiling);
        let classes = (hole.len().max(1).ilog2() as usize + 1).min(CLASSES);
        let too_low = self.tops[..classes].iter_mut().rev();
        too_low
            .take_while(|top| **top < end)
            .for_each(|top| *top = end);
    }

    /// Records that there is no hole of `pages` pages above `top`.
    fn none_above(&mut self, top: u64, pages: u64) {
        let class = pages.next_power_of_two().ilog2() as usize;
        let too_high = self.tops[class.min(CLASSES)..].iter_mut();
        too_high
            .take_while(|note| **note > top)
            .for_each(|note| *note = top);
    }
}

impl<M: Machine, L: EditLocks> Edit<'_, M, L> {
    /// Records that pages have become free.
    pub(super) fn hole_opened(&mut self, hole: Pages) {
        // For another index the hole is at most that large, so that its bounds stay true.
        self.locks.for_each(&mut |gaps| gaps.opened(hole));
    }

    /// Returns the first page of the highest `pages` free pages between `low` and `high`: outside all shards,
    /// or in the shard that is edited.
    pub fn highest_hole(&mut self, pages: u64, low: u64, high: u64) -> Option<u64> {
        let from_ceiling = high == self.locks.own().ceiling;
        let top = match from_ceiling {
            true => *self.locks.own().tops.get(pages.ilog2() as usize)?,
            false => high,
        };
        let (found, top) = self.stem.outside().highest_hole(pages, low, top);
        if let Some((top, largest)) = top.filter(|_| from_ceiling && found.is_some()) {
            self.locks.own_mut().none_above(top, largest + 1);
        }
        found
    }

    /// The same with what is in shards, for an edit of everything.
    pub(crate) fn highest_hole_anywhere(&self, pages: u64, low: u64, high: u64) -> Option<u64> {
        self.stem.highest_hole(pages, low, high).0
    }

    /// Returns the first page of the lowest `pages` free pages between `low` and `high`: outside all shards,
    /// or in the shard that is edited.
    pub fn lowest_hole(&self, pages: u64, low: u64, high: u64) -> Option<u64> {
        self.stem.outside().lowest_hole(pages, low, high)
    }

    /// The same with what is in shards, for an edit of everything.
    pub(crate) fn lowest_hole_anywhere(&self, pages: u64, low: u64, high: u64) -> Option<u64> {
        self.stem.lowest_hole(pages, low, high)
    }

    /// Returns the last pages before `page` that are not empty ([`Subtree::last_before`]).
    pub(crate) fn last_before(&self, page: u64) -> Option<Run> {
        self.stem.last_before(page)
    }

    /// Records that the mapping at `page` no longer keeps a guard gap below it.
    pub fn guard_gone(&mut self, page: u64) {
        let start = self.stem.last_before(page).map_or(0, |run| run.pages.end);
        self.hole_opened(Pages::new(start, page));
    }

    /// Whether `pages` are free, and leave a stack above its guard gap.
    pub fn is_free(&self, pages: Pages) -> bool {
        self.stem.is_vacant(pages) && self.stem.guarded(pages.end) == pages.end
    }

    /// Returns `pages` from the first to the last that is not empty. Its ends fall between slots if only
    /// holes cross the ends of `pages`.
    pub fn extent(&self, pages: Pages) -> Pages {
        self.stem.extent(pages)
    }
}

impl Subtree {
    /// Returns the highest hole and a bound: no hole that ends above the bound's page has more than the
    /// bound's number of pages. That page is the end of the first hole that only a guard gap made too small,
    /// or else of the hole returned.
    fn highest_hole(&self, pages: u64, low: u64, top: u64) -> (Option<u64>, Option<(u64, u64)>) {
        let mut top = top;
        // The first end that a guard gap moved: from there on the search may have jumped over holes.
        let mut jumped = None;
        // No hole that ends above `top`, or above `jumped`, is larger. Holes above the starting bound are not
        // visited; they are too small for its power of two.
        let mut largest = (1 << pages.ilog2()) - 1;
        loop {
            // What lies further below does not matter yet. A shard that ends at the hole does.
            let limit = top.saturating_sub(pages + 1).max(low);
            let below = self.last_between(limit, top);
            let floor = below.map_or(limit, |run| behind(&run).max(low));
            if top >= floor && top - floor >= pages {
                let guarded = self.guarded(top);
                if guarded == top {
                    let note = (jumped.unwrap_or(top), largest);
                    return (Some(top - pages), Some(note));
                }
                // Large enough but for the guard gap of the mapping above. Linux continues below that gap,
                // and skips holes inside it.
                jumped.get_or_insert(top);
                top = guarded;
            } else {
                if jumped.is_none() {
                    largest = largest.max(top.saturating_sub(floor));
                }
                let Some(run) = below.filter(|run| run.pages.start > low) else {
                    return (None, None);
                };
                top = before(&run);
            }
            if top < low + pages {
                return (None, None);
            }
        }
    }

    /// As on Linux: a hole that is large enough but for the guard gap of the mapping above is skipped.
    fn lowest_hole(&self, pages: u64, low: u64, high: u64) -> Option<u64> {
        let mut at = low;
        loop {
            let end = at.checked_add(pages).filter(|&end| end <= high)?;
            match self.next_slot(at) {
                Some(run) if before(&run) < end => at = behind(&run),
                Some(run) if self.guarded(run.pages.start) < end => at = behind(&run),
                _ => return Some(at),
            }
        }
    }

    /// Returns the highest end up to `page` that leaves a grows-down mapping above its guard gap. `page` lies
    /// in a hole or ends one.
    fn guarded(&self, page: u64) -> u64 {
        let mut at = page;
        // A mapping that begins at `limit` leaves room for its guard gap, and a shard for that of its first.
        let limit = (page + GUARD_GAP + 1).min(self.end());
        while let Some(run) = self.next_slot_before(at, limit) {
            if run.word.is_zapping() {
                // After the zap, the mapping behind has its guard gap here.
                at = run.pages.end;
                continue;
            }
            if run.word == SlotValue::SHARD {
                return before(&run).min(page);
            }
            // SAFETY: the edit lock is held.
            return match unsafe { run.word.mapping() } {
                Some(m) if m.grows_down() && run.pages.start < page + GUARD_GAP => {
                    run.pages.start.saturating_sub(GUARD_GAP).min(page)
                }
                _ => page,
            };
        }
        page
    }
}

/// Returns where a hole below may end. An edit outside shards does not know a shard's first mapping and its
/// guard gap, and so keeps a distance.
fn before(run: &Run) -> u64 {
    match run.word == SlotValue::SHARD {
        true => run.pages.start.saturating_sub(GUARD_GAP + 1),
        false => run.pages.start,
    }
}

/// Returns where a hole above may begin.
fn behind(run: &Run) -> u64 {
    run.pages.end + u64::from(run.word == SlotValue::SHARD)
}
