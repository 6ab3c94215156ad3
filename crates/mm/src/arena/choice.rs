//! Which part of a space a range belongs to, and the right to change the tree there.
//!
//! What is counted has to be exact where a limit compares with it. An arena's account says by how
//! much it has more than when accounts were last settled ([`crate::account`]). So who edits takes
//! everything all the same while a limit is *strict* (any but that of mappings), while there are
//! almost too many mappings, and when an arena has got too many more.

use faultless_paging::Pages;
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{Flaw, Ranges, flawed};

use super::{ARENAS, Arena, Arenas, Part, QUOTA, STRICT};
use crate::machine::Machine;
use crate::space::{AddressSpace, Note};
use crate::tree::{Edit, GUARD_GAP, Holes};

impl<M: Machine> AddressSpace<M> {
    /// The table of arenas, once there was one. Acquire: pairs with the release in `open`.
    #[inline]
    pub(crate) fn arenas(&self) -> Option<&Arenas> {
        // SAFETY: written before it could be found, and there until the space ends.
        unsafe { self.arenas.load(Ordering::Acquire).as_ref() }
    }

    /// How many arenas there are.
    #[inline]
    pub(crate) fn arena_count(&self) -> usize {
        self.arenas().map_or(0, Arenas::count)
    }

    /// Whether there are several edit locks.
    #[inline]
    pub(crate) fn is_divided(&self) -> bool {
        self.arenas().is_some()
    }

    /// Which part `pages` belong to, as long as there are no more arenas. So it stays while the
    /// caller has a range of that part, or its edit lock.
    #[inline]
    pub(crate) fn part_of(&self, pages: Pages) -> Part {
        match self.arenas() {
            None => Part::Central,
            Some(arenas) => arenas.part_of(pages),
        }
    }

    /// Which part an operation belongs to that has two ranges, of which one may be empty.
    pub(crate) fn part_of_both(&self, [one, other]: [Pages; 2]) -> Part {
        let part = self.part_of(one);
        match other.is_empty() || self.part_of(other) == part {
            true => part,
            false => Part::All,
        }
    }

    /// The part of everything.
    pub(crate) fn part_of_everything(&self) -> Part {
        match self.arena_count() {
            0 => Part::Central,
            _ => Part::All,
        }
    }

    /// The list in which an operation of a part has its first place.
    #[inline]
    pub(crate) fn list_of(&self, part: Part) -> &Ranges {
        match (part, self.arenas()) {
            (Part::Arena(number), Some(arenas)) => &arenas.get(number).ranges,
            _ => &self.ranges,
        }
    }

    /// The right to change the tree in a part, for who has a range of it, or asks again which part it
    /// is: that part, or everything.
    #[inline]
    pub(crate) fn edit(&self, part: Part) -> Edit<'_, M> {
        match self.arenas() {
            None => self.tree.edit(self.memory),
            Some(arenas) => self.edit_beside(arenas, part),
        }
    }

    fn edit_beside<'a>(&'a self, arenas: &'a Arenas, part: Part) -> Edit<'a, M> {
        match part {
            _ if arenas.is_strict() => {}
            Part::Arena(number) => {
                let arena = arenas.get(number);
                let edit = arena.edit(self.memory, number);
                if !arena.account.has_used_quota() {
                    return edit;
                }
            }
            Part::Central => {
                let edit = self.tree.edit(self.memory);
                if !self.is_near_limit(arenas) {
                    return edit;
                }
            }
            Part::All => {}
        }
        self.edit_all(arenas)
    }

    /// Whether somebody edits what a part is.
    pub(crate) fn is_edited(&self, part: Part) -> bool {
        match (part, self.arenas()) {
            (Part::Arena(number), Some(arenas)) => arenas.get(number).edit.is_locked(),
            _ => self.tree.is_edited(),
        }
    }

    /// The right to change everything.
    pub(super) fn edit_all<'a>(&'a self, arenas: &'a Arenas) -> Edit<'a, M> {
        let machine = self.machine();
        let edit = self
            .tree
            .edit_all(self.memory, || arenas.lock_edits(machine));
        arenas
            .all()
            .for_each(|arena| self.account.settle(&arena.account));
        arenas.set_near(self.is_near_limit(arenas));
        edit
    }

    /// The right to change `pages`, for who has no range: a stack that grows.
    pub(crate) fn edit_around(&self, pages: Pages) -> Edit<'_, M> {
        let pages = Pages::new(pages.start.saturating_sub(GUARD_GAP), pages.end);
        loop {
            let part = self.part_of(pages);
            let edit = self.edit(part);
            if part == self.part_of(pages) || flawed(Flaw::PartChosenOnce) {
                return edit;
            }
        }
    }

    /// Whether so many mappings may be that arenas could have too many.
    fn is_near_limit(&self, arenas: &Arenas) -> bool {
        let most = self
            .account
            .mappings
            .get()
            .saturating_add(arenas.count() as u64 * QUOTA);
        most > self.limits.mappings.get()
    }

    /// Says that something will be locked: a limit of that is exact from then on.
    pub(crate) fn note_locked(&self) {
        if self.has_note(Note::LOCKED) {
            return;
        }
        self.note(Note::LOCKED);
        // Partner: the fence in `open`. Either the new arena is seen here, or the note there.
        fence(Ordering::SeqCst);
        if self.arenas().is_some() {
            let _edit = self.edit(Part::All);
            self.settle_strictness();
        }
    }

    /// Whether what is counted has to be exact ([`STRICT`]).
    pub(super) fn has_strict_limits(&self) -> bool {
        let limits = self.limits();
        let is_limited = limits.address_space != u64::MAX || limits.data != u64::MAX;
        is_limited || (self.has_lock_limit() && self.has_note(Note::LOCKED))
    }

    /// Says in the table whether that is so. Under all edit locks.
    pub(crate) fn settle_strictness(&self) {
        if let Some(arenas) = self.arenas() {
            arenas.set_flag(STRICT, self.has_strict_limits());
        }
    }

    /// The arena in which this CPU finds room first, if mappings are chosen in one.
    pub(crate) fn arena_of_cpu(&self) -> Option<usize> {
        let arenas = self.arenas().filter(|arenas| !arenas.is_strict())?;
        self.machine().cpu().index().checked_rem(arenas.count())
    }

    /// Where an operation of a part may choose room: an arena's pages, or all.
    pub(crate) fn room_of(&self, part: Part) -> Option<Pages> {
        match (part, self.arenas()) {
            (Part::Arena(number), Some(arenas)) => Some(Arena::room(arenas.slots[number].pages())),
            _ => None,
        }
    }

    /// Whether an operation of a part may choose `pages`.
    pub(crate) fn may_choose(&self, part: Part, pages: Pages) -> bool {
        match part {
            Part::All => true,
            Part::Arena(_) => self
                .room_of(part)
                .is_some_and(|room| room.start <= pages.start && pages.end <= room.end),
            // What is mapped in an arena may ask for a guard gap below.
            Part::Central => {
                let end = pages.end.saturating_add(GUARD_GAP);
                self.part_of(Pages::new(pages.start, end)) == Part::Central
            }
        }
    }
}

impl Arenas {
    fn part_of(&self, pages: Pages) -> Part {
        // With what is looked at, and merged with.
        let start = pages.start.saturating_sub(1);
        let end = pages.end.saturating_add(1);
        let mut arenas = self.slots[..self.count()].iter().map(super::Slot::pages);
        let met = arenas.position(|arena| start < arena.end && arena.start < end);
        match met {
            None => Part::Central,
            Some(number) => {
                let arena = self.slots[number].pages();
                match arena.start <= start && end <= arena.end {
                    true => Part::Arena(number),
                    false => Part::All,
                }
            }
        }
    }
}

/// What it counts that somebody was in the way.
const MORE: u32 = 8;
/// What it takes back that nobody was.
const LESS: u32 = 1;
/// How much is enough.
const ENOUGH: u32 = 64;

impl<M: Machine> Edit<'_, M> {
    /// See [`Holes::is_crowded`].
    pub(crate) fn is_crowded(&mut self, was_busy: bool) -> bool {
        self.holes().is_crowded(was_busy)
    }
}

impl Holes {
    /// Whether those who choose room here have got into each other's way so often that it is time for
    /// more arenas; `was_busy`: this one did.
    fn is_crowded(&mut self, was_busy: bool) -> bool {
        let now = match was_busy {
            true => self.crowding + MORE,
            false => self.crowding.saturating_sub(LESS),
        };
        let is_crowded = now >= ENOUGH;
        self.crowding = if is_crowded { 0 } else { now };
        is_crowded
    }
}

const _: () = assert!(ARENAS.is_power_of_two());
