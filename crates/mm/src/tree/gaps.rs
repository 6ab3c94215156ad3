//! Choosing addresses: the highest hole that is large enough, as Linux does; in rare cases the
//! lowest, which is walked for.
//!
//! Walking down from the top finds it, but with many mappings that walk is
//! long. So the tree remembers, for each power of two, an address above which
//! no hole of that many pages exists, and starts below it. Filling a hole keeps
//! such a note true; opening one raises the notes it makes false. The answer is
//! always the one that the full walk would give.

use faultless_paging::Pages;

use crate::base::machine::Machine;
use crate::tree::value::SlotValue;
use crate::tree::{Edit, EditLocks, Run, Subtree};
use crate::tune::GUARD_GAP;

const CLASSES: usize = 40;

/// Notes about holes.
#[derive(Clone)]
pub struct GapIndex {
    ceiling: u64,
    /// No hole of `2^c` pages below the ceiling ends above `tops[c]`. None is less than the
    /// next one: where no hole is large enough, none is larger.
    tops: [u64; CLASSES],
    /// Nobody but a fork changes the tree now: no mapping grows, and no note goes.
    pub(super) is_frozen: bool,
    /// How often those who choose room have got into each other's way ([`crate::lock::shard`]).
    pub(crate) crowding: u32,
}

impl GapIndex {
    /// Notes for searches from `ceiling` downwards; others do without.
    pub fn new(ceiling: u64) -> Self {
        Self {
            ceiling,
            tops: [ceiling; CLASSES],
            is_frozen: false,
            crowding: 0,
        }
    }

    /// A hole is now at `hole`.
    pub fn opened(&mut self, hole: Pages) {
        let end = hole.end.min(self.ceiling);
        let classes = (hole.len().max(1).ilog2() as usize + 1).min(CLASSES);
        let too_low = self.tops[..classes].iter_mut().rev();
        too_low
            .take_while(|top| **top < end)
            .for_each(|top| *top = end);
    }

    /// Above `top` there is no hole of `pages` pages.
    fn none_above(&mut self, top: u64, pages: u64) {
        let class = pages.next_power_of_two().ilog2() as usize;
        let too_high = self.tops[class.min(CLASSES)..].iter_mut();
        too_high
            .take_while(|note| **note > top)
            .for_each(|note| *note = top);
    }
}

impl<M: Machine, L: EditLocks> Edit<'_, M, L> {
    /// Notes that something is free now that was not.
    pub(super) fn hole_opened(&mut self, hole: Pages) {
        // In another index what is free of its part is less than that.
        self.locks.for_each(&mut |gaps| gaps.opened(hole));
    }

    /// The highest `pages` free pages between `low` and `high`, by their first page: in no arena,
    /// or, for who edits one, in that.
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

    /// The same, with what is in arenas. For who edits everything.
    pub(crate) fn highest_hole_anywhere(&self, pages: u64, low: u64, high: u64) -> Option<u64> {
        self.stem.highest_hole(pages, low, high).0
    }

    /// The lowest `pages` free pages between `low` and `high`, by their first page: in no arena, or,
    /// for who edits one, in that.
    pub fn lowest_hole(&self, pages: u64, low: u64, high: u64) -> Option<u64> {
        self.stem.outside().lowest_hole(pages, low, high)
    }

    /// The same, with what is in arenas. For who edits everything.
    pub(crate) fn lowest_hole_anywhere(&self, pages: u64, low: u64, high: u64) -> Option<u64> {
        self.stem.lowest_hole(pages, low, high)
    }

    /// The last pages before `page` that are not empty ([`Subtree::last_before`]).
    pub(crate) fn last_before(&self, page: u64) -> Option<Run> {
        self.stem.last_before(page)
    }

    /// Notes that what lies below `page` no longer keeps a guard gap.
    pub fn guard_gone(&mut self, page: u64) {
        let start = self.stem.last_before(page).map_or(0, |run| run.pages.end);
        self.hole_opened(Pages::new(start, page));
    }

    /// Whether `pages` are free, and leave their upper neighbour room to grow.
    pub fn is_free(&self, pages: Pages) -> bool {
        // The pages are free, so that their end is in a hole or ends one.
        self.stem.is_vacant(pages) && self.stem.guarded(pages.end) >= pages.end
    }

    /// `pages` from the first to the last that is not empty. So it begins and ends between slots,
    /// if nothing but holes of `pages` is uncut.
    pub fn extent(&self, pages: Pages) -> Pages {
        self.stem.extent(pages)
    }
}

impl Subtree {
    /// The highest hole; and, if it was not the first that was large enough but for guard gaps,
    /// or was, above which page there is none, and how many pages the largest there has.
    fn highest_hole(&self, pages: u64, low: u64, top: u64) -> (Option<u64>, Option<(u64, u64)>) {
        let mut top = top;
        // Where the first guard gap moved the search: it may have jumped over holes.
        let mut jumped = None;
        // No hole that ends above `top`, or above `jumped`, is larger. Those above the note, which
        // are not looked at, are too small for the note's power of two.
        let mut largest = (1 << pages.ilog2()) - 1;
        loop {
            let below = self.last_before(top);
            let floor = below.map_or(low, |run| behind(&run).max(low));
            if top >= floor && top - floor >= pages {
                let guarded = self.guarded(top);
                if guarded == top {
                    let note = (jumped.unwrap_or(top), largest);
                    return (Some(top - pages), Some(note));
                }
                // Large enough but for the guard gap of what is above. Linux looks
                // on below that gap, and passes over holes inside it.
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

    /// As Linux does it: a hole that is large enough but for the guard gap of what is above is
    /// passed over.
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

    /// `page`, which ends a hole or lies in one, or less: a mapping above that
    /// grows down keeps its guard gap.
    fn guarded(&self, page: u64) -> u64 {
        if page > self.base && self.slot_of(page - 1).is_some() {
            return page;
        }
        let mut at = page;
        while let Some(run) = self.next_slot(at) {
            if run.word.is_zapping() {
                // What is behind that will have its gap here.
                at = run.pages.end;
                continue;
            }
            if run.word == SlotValue::ARENA {
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

/// Where a hole below may end: who changes what is in no arena keeps away from what is in one, whose
/// neighbours and whose guard gap he does not know.
fn before(run: &Run) -> u64 {
    match run.word == SlotValue::ARENA {
        true => run.pages.start.saturating_sub(GUARD_GAP + 1),
        false => run.pages.start,
    }
}

/// Where a hole above may begin.
fn behind(run: &Run) -> u64 {
    run.pages.end + u64::from(run.word == SlotValue::ARENA)
}
