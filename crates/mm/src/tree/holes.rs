//! Choosing addresses: the highest hole that is large enough, as Linux does; in rare cases the
//! lowest, which is walked for.
//!
//! Walking down from the top finds it, but with many mappings that walk is
//! long. So the tree remembers, for each power of two, an address above which
//! no hole of that many pages exists, and starts below it. Filling a hole keeps
//! such a note true; opening one raises the notes it makes false. The answer is
//! always the one that the full walk would give.

use faultless_paging::Pages;

use super::Edit;
use crate::machine::Machine;

/// Pages that stay free below a mapping that grows down (Linux: `stack_guard_gap`).
pub const GUARD_GAP: u64 = if cfg!(any(loom, shuttle)) { 1 } else { 256 };

const CLASSES: usize = 40;

/// Notes about holes.
#[derive(Clone)]
pub struct Holes {
    ceiling: u64,
    /// No hole of `2^c` pages below the ceiling ends above `tops[c]`. None is less than the
    /// next one: where no hole is large enough, none is larger.
    tops: [u64; CLASSES],
    /// Nobody but a fork changes the tree now: no mapping grows, and no note goes.
    pub(super) is_still: bool,
}

impl Holes {
    /// Notes for searches from `ceiling` downwards; others do without.
    pub fn new(ceiling: u64) -> Self {
        Self {
            ceiling,
            tops: [ceiling; CLASSES],
            is_still: false,
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

impl<M: Machine> Edit<'_, M> {
    /// The highest `pages` free pages between `low` and `high`, by their first page.
    pub fn highest_hole(&mut self, pages: u64, low: u64, high: u64) -> Option<u64> {
        let from_ceiling = high == self.holes.ceiling;
        let mut top = if from_ceiling {
            *self.holes.tops.get(pages.ilog2() as usize)?
        } else {
            high
        };
        // Where the first guard gap moved the search: it may have jumped over holes.
        let mut jumped = None;
        // No hole that ends above `top`, or above `jumped`, is larger. Those above the note, which
        // are not looked at, are too small for the note's power of two.
        let mut largest = (1 << pages.ilog2()) - 1;
        loop {
            let below = self.tree.last_before(top);
            let floor = below.map_or(low, |run| run.pages.end.max(low));
            if top >= floor && top - floor >= pages {
                let guarded = self.guarded(top);
                if guarded == top {
                    if from_ceiling {
                        self.holes.none_above(jumped.unwrap_or(top), largest + 1);
                    }
                    return Some(top - pages);
                }
                // Large enough but for the guard gap of what is above. Linux looks
                // on below that gap, and passes over holes inside it.
                jumped.get_or_insert(top);
                top = guarded;
            } else {
                if jumped.is_none() {
                    largest = largest.max(top.saturating_sub(floor));
                }
                top = below.filter(|run| run.pages.start > low)?.pages.start;
            }
            if top < low + pages {
                return None;
            }
        }
    }

    /// The lowest `pages` free pages between `low` and `high`, by their first page.
    ///
    /// As Linux does it: a hole that is large enough but for the guard gap of what is above is
    /// passed over.
    pub fn lowest_hole(&self, pages: u64, low: u64, high: u64) -> Option<u64> {
        let mut at = low;
        loop {
            let end = at.checked_add(pages).filter(|&end| end <= high)?;
            match self.tree.next_slot(at) {
                Some(run) if run.pages.start < end => at = run.pages.end,
                Some(run) if self.guarded(run.pages.start) < end => at = run.pages.end,
                _ => return Some(at),
            }
        }
    }

    /// Notes that what lies below `page` no longer keeps a guard gap.
    pub fn guard_gone(&mut self, page: u64) {
        let start = self.tree.last_before(page).map_or(0, |run| run.pages.end);
        self.holes.opened(Pages::new(start, page));
    }

    /// Whether `pages` are free, and leave their upper neighbour room to grow.
    pub fn is_free(&self, pages: Pages) -> bool {
        // The pages are free, so that their end is in a hole or ends one.
        self.tree.is_vacant(pages) && self.guarded(pages.end) >= pages.end
    }

    /// `page`, which ends a hole or lies in one, or less: a mapping above that
    /// grows down keeps its guard gap.
    fn guarded(&self, page: u64) -> u64 {
        if page > 0 && !self.tree.find(page - 1).word.is_empty() {
            return page;
        }
        let mut at = page;
        while let Some(run) = self.tree.next_slot(at) {
            if run.word.is_zapping() {
                // What is behind that will have its gap here.
                at = run.pages.end;
                continue;
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
