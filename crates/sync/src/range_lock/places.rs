//! What is in the places of a [`super::RangeLock`], and who keeps whom out. Under its lock.

use core::ops::Range;
use core::ptr::NonNull;

use super::request::{LockRequest, meet};
use super::set::Set;
use crate::mutant::{Mutant, mutant};

/// How many may have ranges, or zap, at once, if there is room for all; and half as many wait for them. Others wait
/// for a place.
pub const PLACES: usize = OWN + ROOMS * ROOM;

/// So many there are from the beginning.
const OWN: usize = match (cfg!(loom), cfg!(shuttle)) {
    (true, _) => 3,
    (_, true) => 6,
    _ => 24,
};
/// In a room that is added.
const ROOM: usize = if cfg!(any(loom, shuttle)) { 4 } else { 58 };
/// So many rooms may be added.
const ROOMS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 4 };
/// Room is to be added before there are no more places than this.
const MARGIN: usize = if cfg!(any(loom, shuttle)) { 0 } else { 8 };

struct Waiter {
    /// When it was taken: who came before has less.
    number: u64,
    wish: LockRequest,
}

impl Waiter {
    const FREE: Waiter = Waiter {
        number: 0,
        wish: LockRequest::to_change(0..0),
    };
}

/// Memory for more places ([`super::RangeLock::add_room`]).
pub struct SlotChunk {
    places: [Waiter; ROOM],
    tag: u64,
}

impl SlotChunk {
    /// With free places; `tag` is for who finds it again ([`super::RangeLock::for_each_room`]).
    pub const fn new(tag: u64) -> Self {
        Self {
            places: [const { Waiter::FREE }; ROOM],
            tag,
        }
    }
}

/// All places. Each is free, *taken* by somebody who has what he wished for or waits for it, or
/// *zapped*: what was in its range is being cleared away. In one that is *replacing* something has
/// already taken the place of that.
pub(super) struct Places {
    own: [Waiter; OWN],
    rooms: [Option<NonNull<SlotChunk>>; ROOMS],
    /// How many there are.
    capacity: usize,
    /// Those that are not free, and how many these are.
    used: Set,
    used_count: usize,
    /// Of these: those that are being zapped, or were, and are noted still.
    pub(super) zapped: Set,
    /// Those of which the range is waited for, and how many these are.
    waits: Set,
    waits_count: usize,
    /// The taken ones that will be zapped: what is there says so already.
    pub(super) announced: Set,
    /// Those that are replacing.
    pub(super) replacing: Set,
    /// Of both: those of which somebody else is to say that they were.
    pub(super) left: Set,
    /// The number of the next wish.
    pub(super) next: u64,
    /// Who waits for a place: the number of who gets the next one, and of who comes next.
    pub(super) queue: Range<u64>,
    /// How many wait for anything.
    pub(super) waiting: u32,
}

// SAFETY: rooms are the list's alone, and what is in them is used under its lock.
unsafe impl Send for Places {}

impl Places {
    pub(super) fn new() -> Self {
        Self {
            own: [const { Waiter::FREE }; OWN],
            rooms: [None; ROOMS],
            capacity: OWN,
            used: Set::EMPTY,
            used_count: 0,
            waits: Set::EMPTY,
            waits_count: 0,
            zapped: Set::EMPTY,
            announced: Set::EMPTY,
            replacing: Set::EMPTY,
            left: Set::EMPTY,
            next: 0,
            queue: 0..0,
            waiting: 0,
        }
    }

    /// A place that there is room for.
    #[inline]
    fn at(&self, number: usize) -> &Waiter {
        match number.checked_sub(OWN) {
            None => &self.own[number],
            Some(further) => {
                let room = self.rooms[further / ROOM].expect("there is room for it");
                // SAFETY: the list's alone, and there as long as it ([`super::RangeLock::add_room`]).
                &unsafe { room.as_ref() }.places[further % ROOM]
            }
        }
    }

    #[inline]
    fn at_mut(&mut self, number: usize) -> &mut Waiter {
        match number.checked_sub(OWN) {
            None => &mut self.own[number],
            Some(further) => {
                let mut room = self.rooms[further / ROOM].expect("there is room for it");
                // SAFETY: as above.
                &mut unsafe { room.as_mut() }.places[further % ROOM]
            }
        }
    }

    /// Whether there should be more room, and may be.
    #[inline]
    pub(super) fn is_scarce(&self) -> bool {
        let is_late = self.used_count + MARGIN >= self.capacity || !self.may_wait();
        is_late && self.capacity < PLACES
    }

    /// Whether who has to wait may have a place for as long: half of them are kept for who need not.
    #[inline]
    pub(super) fn may_wait(&self) -> bool {
        self.waits_count < self.capacity / 2
    }

    /// Whether who need not wait may have a place: the last one is for who waits for a place.
    #[inline]
    pub(super) fn may_pass(&self) -> bool {
        self.queue.is_empty() || self.capacity - self.used_count >= 2
    }

    /// Says whether a place's range is waited for; whether that was so, and is not any more.
    pub(super) fn set_waits(&mut self, number: usize, waits: bool) -> bool {
        let has_waited = self.waits.has(number);
        match (has_waited, waits) {
            (false, true) => {
                self.waits.insert(number);
                self.waits_count += 1;
            }
            (true, false) => {
                self.waits.remove(number);
                self.waits_count -= 1;
            }
            _ => {}
        }
        has_waited && !waits
    }

    /// Adds room, if there should be more.
    pub(super) fn add_room(&mut self, room: NonNull<SlotChunk>) -> bool {
        let is_scarce = self.is_scarce();
        let free = self.rooms.iter_mut().find(|room| room.is_none());
        let Some(free) = free.filter(|_| is_scarce) else {
            return false;
        };
        *free = Some(room);
        self.capacity += ROOM;
        true
    }

    /// The tags of rooms that were added.
    pub(super) fn tags(&self) -> impl Iterator<Item = u64> {
        let rooms = self.rooms.iter().flatten();
        // SAFETY: as above.
        rooms.map(|room| unsafe { room.as_ref() }.tag)
    }

    /// Takes a place, if there is one.
    pub(super) fn take(&mut self, wish: &LockRequest) -> Option<usize> {
        let number = self.next_place()?;
        self.take_place(number);
        self.at_mut(number).wish.clone_from(wish);
        Some(number)
    }

    /// Whether nobody has, waits for, or zaps anything of some ranges; and nobody waits for a place.
    #[inline]
    pub(super) fn are_nobodys(&self, ranges: &[Range<u64>]) -> bool {
        let mut others = self.used.iter().map(|other| &self.at(other).wish);
        let is_met = others.any(|other| ranges.iter().any(|range| other.meets(range)));
        self.may_pass() && (!is_met || mutant(Mutant::AtOnceBesideHolder))
    }

    /// The same of one, whoever zaps there.
    #[inline]
    pub(super) fn is_nobodys_beside_zaps(&self, range: &Range<u64>) -> bool {
        self.may_pass()
            && (!self.is_barred(&self.used, range) || mutant(Mutant::AtOnceBesideHolder))
    }

    /// Whether those of some places keep others than what is new out of a range.
    #[inline]
    fn is_barred(&self, places: &Set, range: &Range<u64>) -> bool {
        let mut barred = places.iter().flat_map(|other| self.barred(other));
        barred.any(|own| meet(own, range))
    }

    /// The number of the place that is taken next, if there is one.
    #[inline]
    pub(super) fn next_place(&self) -> Option<usize> {
        let number = self.used.first_missing();
        (number < self.capacity).then_some(number)
    }

    /// Takes it.
    #[inline]
    pub(super) fn take_place(&mut self, number: usize) {
        debug_assert_eq!(self.next_place(), Some(number), "it is another's");
        self.used.insert(number);
        self.used_count += 1;
        self.at_mut(number).number = self.next;
        self.next += 1;
    }

    /// Whether nobody has anything, waits, or zaps.
    #[inline]
    pub(super) fn is_unused(&self) -> bool {
        self.used.is_empty()
    }

    /// Whether anybody has something, or waits, who does not zap.
    pub(super) fn has_holders(&self) -> bool {
        let holders = self.used.without(&self.zapped).without(&self.replacing);
        !holders.is_empty()
    }

    /// Whether anybody else has something, or waits, who does not zap.
    pub(super) fn has_others(&self, number: usize) -> bool {
        let mut holders = self.used.without(&self.zapped).without(&self.replacing);
        holders.remove(number);
        !holders.is_empty()
    }

    /// Frees all places of a set.
    pub(super) fn free_all(&mut self, set: &Set) {
        set.iter().for_each(|number| self.free(number));
    }

    /// Frees a place.
    #[inline]
    pub(super) fn free(&mut self, number: usize) {
        debug_assert!(self.used.has(number), "it is free");
        self.used.remove(number);
        self.used_count -= 1;
        self.set_waits(number, false);
        self.zapped.remove(number);
        self.announced.remove(number);
        self.replacing.remove(number);
        self.left.remove(number);
    }

    /// Whether one of the ranges of a place has all of `range`.
    pub(super) fn has(&self, number: usize, range: &Range<u64>) -> bool {
        let has = |own: &Range<u64>| own.start <= range.start && range.end <= own.end;
        self.at(number).wish.ranges.iter().any(has)
    }

    /// Gives a place a second range, instead of the one that it may have had, if nobody has that or
    /// waits for it.
    pub(super) fn extend(&mut self, number: usize, range: &Range<u64>) -> bool {
        if self.has(number, range) {
            return true;
        }
        if self.is_barred(&self.used.without(&Set::of(number)), range) {
            return false;
        }
        self.at_mut(number).wish.ranges[1] = range.clone();
        true
    }

    /// From here on a place is one that is zapped.
    pub(super) fn begin_zap(&mut self, number: usize, range: Range<u64>) {
        self.announced.remove(number);
        self.replacing.remove(number);
        self.zapped.insert(number);
        self.at_mut(number).wish = LockRequest::to_change(range);
    }

    /// From here on a place is one that is replacing.
    pub(super) fn begin_replace(&mut self, number: usize, range: Range<u64>) {
        self.replacing.insert(number);
        self.at_mut(number).wish = LockRequest::to_change(range);
    }

    /// Of a place the ranges that keep out not only what is new.
    fn barred(&self, number: usize) -> &[Range<u64>] {
        let ranges = &self.at(number).wish.ranges;
        match self.zapped.has(number) {
            false => ranges,
            true => &[],
        }
    }

    /// The ranges of a place; the second may be empty.
    pub(super) fn ranges(&self, number: usize) -> &[Range<u64>; 2] {
        &self.at(number).wish.ranges
    }

    /// Whether somebody who came before has, or waits for, what this place excludes: not who zaps, or
    /// replaces something.
    pub(super) fn is_kept_out(&self, number: usize) -> bool {
        let own = self.at(number);
        let others = self.used.without(&self.zapped).without(&self.replacing);
        others.iter().any(|other| {
            let other = self.at(other);
            other.number < own.number && own.wish.excludes(&other.wish)
        })
    }

    /// Whether somebody zaps, or will, where a wish puts something new, or replaces something where it may
    /// not be beside that; and came before `limit`.
    pub(super) fn is_in_the_way(&self, wish: &LockRequest, limit: u64) -> bool {
        let zaps = self.zapped.or(&self.announced);
        zaps.or(&self.replacing).iter().any(|number| {
            let other = self.at(number);
            let is_zap = zaps.has(number);
            let is_replacing = self.replacing.has(number) && !wish.is_beside_replacing;
            let is_barred = || self.barred(number).iter().any(|range| wish.meets(range));
            let is_met = is_zap && other.wish.meets(&wish.new) || is_replacing && is_barred();
            other.number < limit && is_met
        })
    }

    /// Whether somebody zaps, or replaces something, in the range of a wish.
    pub(super) fn meets_zaps(&self, wish: &LockRequest) -> bool {
        let zaps = self.zapped.or(&self.replacing);
        zaps.iter()
            .any(|other| self.ranges(other).iter().any(|range| wish.meets(range)))
    }
}
