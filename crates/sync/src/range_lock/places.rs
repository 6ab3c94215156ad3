//! The slots of a [`super::RangeLock`], and which of them exclude each other. All of it is under the list's
//! lock.

use core::ops::Range;
use core::ptr::NonNull;

use super::request::{LockRequest, meet};
use super::set::Set;
use crate::mutant::{Mutant, mutant};

/// The number of slots with all chunks added: for holders, zaps, and waiters, which may have half of them.
/// Further requests wait for a slot.
pub const PLACES: usize = OWN + ROOMS * ROOM;

/// Slots that a list has from the beginning.
const OWN: usize = match (cfg!(loom), cfg!(shuttle)) {
    (true, _) => 3,
    (_, true) => 6,
    _ => 24,
};
/// Slots of a chunk.
const ROOM: usize = if cfg!(any(loom, shuttle)) { 4 } else { 58 };
/// Chunks that may be added.
const ROOMS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 4 };
/// A chunk is to be added when no more free slots than this are left.
const MARGIN: usize = if cfg!(any(loom, shuttle)) { 0 } else { 8 };

struct Waiter {
    /// The order of arrival: earlier requests have lower numbers.
    number: u64,
    wish: LockRequest,
}

impl Waiter {
    const FREE: Waiter = Waiter {
        number: 0,
        wish: LockRequest::to_change(0..0),
    };
}

/// Memory for more slots ([`super::RangeLock::add_room`]).
pub struct SlotChunk {
    places: [Waiter; ROOM],
    tag: u64,
}

impl SlotChunk {
    /// Returns a chunk of free slots. `tag` identifies it in [`super::RangeLock::for_each_room`].
    pub const fn new(tag: u64) -> Self {
        Self {
            places: [const { Waiter::FREE }; ROOM],
            tag,
        }
    }
}

/// All slots. A slot is free, or *taken* by a request that holds its ranges or waits for them, or *zapped*:
/// the old contents of its range are being zapped. In a *replacing* slot the new contents are already in
/// place.
pub(super) struct Places {
    own: [Waiter; OWN],
    rooms: [Option<NonNull<SlotChunk>>; ROOMS],
    /// The number of slots.
    capacity: usize,
    /// The slots that are not free, and their number.
    used: Set,
    used_count: usize,
    /// Of these, the zapped ones: their zap is running, or has ended with its marks still in place.
    pub(super) zapped: Set,
    /// The slots that wait for their range, and their number.
    waits: Set,
    waits_count: usize,
    /// The taken slots that will be zapped: the marks of the zap are visible already.
    pub(super) announced: Set,
    /// The replacing slots.
    pub(super) replacing: Set,
    /// The zapped and replacing slots that another operation ends ([`super::ZapGuard::leave`]).
    pub(super) left: Set,
    /// The number of the next request.
    pub(super) next: u64,
    /// The queue for slots: from the number of its head to the number of its next arrival.
    pub(super) queue: Range<u64>,
    /// The number of waiters of all kinds.
    pub(super) waiting: u32,
}

// SAFETY: chunks are the list's alone, and their contents are used under its lock.
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

    /// Returns a slot. A slot of a chunk that was not added is like one that is free: it has no range.
    #[inline]
    fn at(&self, number: usize) -> &Waiter {
        let slot = match number.checked_sub(OWN) {
            None => self.own.get(number),
            Some(further) => self.room_of(further).and_then(|room| {
                // SAFETY: the list's alone, and in place as long as the list ([`super::RangeLock::add_room`]).
                let room = unsafe { room.as_ref() };
                room.places.get(further % ROOM)
            }),
        };
        slot.unwrap_or(&Waiter::FREE)
    }

    /// Changes a slot, unless its chunk was not added.
    #[inline]
    fn change(&mut self, number: usize, change: impl FnOnce(&mut Waiter)) {
        let slot = match number.checked_sub(OWN) {
            None => self.own.get_mut(number),
            Some(further) => self.room_of(further).and_then(|mut room| {
                // SAFETY: as above, and the list is borrowed exclusively.
                let room = unsafe { room.as_mut() };
                room.places.get_mut(further % ROOM)
            }),
        };
        slot.map(change);
    }

    /// Returns the chunk of a slot, which is numbered from the first slot of the first chunk.
    #[inline]
    fn room_of(&self, further: usize) -> Option<NonNull<SlotChunk>> {
        self.rooms.get(further / ROOM).copied().flatten()
    }

    /// Whether slots are scarce and a chunk may be added.
    #[inline]
    pub(super) fn is_scarce(&self) -> bool {
        let is_late = self.used_count + MARGIN >= self.capacity || !self.may_wait();
        is_late && self.capacity < PLACES
    }

    /// Whether a request that has to wait may have a slot meanwhile. Half of the slots are kept for requests
    /// that need not wait.
    #[inline]
    pub(super) fn may_wait(&self) -> bool {
        self.waits_count < self.capacity / 2
    }

    /// Whether a request that need not wait may have a slot. The last free slot is reserved for the head of the
    /// queue.
    #[inline]
    pub(super) fn may_pass(&self) -> bool {
        self.queue.is_empty() || self.capacity - self.used_count >= 2
    }

    /// Records whether a slot waits for its range. Returns whether it has waited and no longer does.
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

    /// Adds a chunk if slots are scarce. Returns whether it was added.
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

    /// Returns the tags of the chunks that were added.
    pub(super) fn tags(&self) -> impl Iterator<Item = u64> {
        let rooms = self.rooms.iter().flatten();
        // SAFETY: as above.
        rooms.map(|room| unsafe { room.as_ref() }.tag)
    }

    /// Takes a slot for a request, if one is free.
    pub(super) fn take(&mut self, wish: &LockRequest) -> Option<usize> {
        let number = self.next_place()?;
        self.take_place(number);
        self.change(number, |slot| slot.wish.clone_from(wish));
        Some(number)
    }

    /// Whether no request holds, waits for, or zaps a part of some ranges, and the queue leaves a slot
    /// ([`Self::may_pass`]).
    #[inline]
    pub(super) fn are_free(&self, ranges: &[Range<u64>]) -> bool {
        let mut others = self.used.iter().map(|other| &self.at(other).wish);
        let is_met = others.any(|other| ranges.iter().any(|range| other.meets(range)));
        self.may_pass() && (!is_met || mutant(Mutant::AtOnceBesideHolder))
    }

    /// The same for one range, in which zaps may be running.
    #[inline]
    pub(super) fn is_free_beside_zaps(&self, range: &Range<u64>) -> bool {
        self.may_pass()
            && (!self.is_barred(&self.used, range) || mutant(Mutant::AtOnceBesideHolder))
    }

    /// Whether slots of a set exclude more than new mappings from a range.
    #[inline]
    fn is_barred(&self, places: &Set, range: &Range<u64>) -> bool {
        let mut barred = places.iter().flat_map(|other| self.barred(other));
        barred.any(|own| meet(own, range))
    }

    /// Returns the number of the slot that is taken next, if one is free.
    #[inline]
    pub(super) fn next_place(&self) -> Option<usize> {
        let number = self.used.first_missing();
        (number < self.capacity).then_some(number)
    }

    /// Takes that slot.
    #[inline]
    pub(super) fn take_place(&mut self, number: usize) {
        debug_assert_eq!(self.next_place(), Some(number), "not the next free slot");
        self.used.insert(number);
        self.used_count += 1;
        let next = self.next;
        self.change(number, |slot| slot.number = next);
        self.next += 1;
    }

    /// Whether no slot is in use.
    #[inline]
    pub(super) fn is_unused(&self) -> bool {
        self.used.is_empty()
    }

    /// Whether a request holds ranges or waits for them, other than zaps and replacements.
    pub(super) fn has_holders(&self) -> bool {
        let holders = self.used.without(&self.zapped).without(&self.replacing);
        !holders.is_empty()
    }

    /// The same without the slot `number`.
    pub(super) fn has_others(&self, number: usize) -> bool {
        let mut holders = self.used.without(&self.zapped).without(&self.replacing);
        holders.remove(number);
        !holders.is_empty()
    }

    /// Frees all slots of a set.
    pub(super) fn free_all(&mut self, set: &Set) {
        set.iter().for_each(|number| self.free(number));
    }

    /// Frees a slot.
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

    /// Whether one of the ranges of a slot covers `range`.
    pub(super) fn has(&self, number: usize, range: &Range<u64>) -> bool {
        let has = |own: &Range<u64>| own.start <= range.start && range.end <= own.end;
        self.at(number).wish.ranges.iter().any(has)
    }

    /// Gives a slot a second range, instead of any former second range, if no other request holds or waits
    /// for a part of it. Returns whether a range of the slot covers `range` now.
    pub(super) fn extend(&mut self, number: usize, range: &Range<u64>) -> bool {
        if self.has(number, range) {
            return true;
        }
        if self.is_barred(&self.used.without(&Set::of(number)), range) {
            return false;
        }
        self.change(number, |slot| slot.wish.ranges[1] = range.clone());
        self.has(number, range)
    }

    /// Turns a slot into a zapped one, for `range`.
    pub(super) fn begin_zap(&mut self, number: usize, range: Range<u64>) {
        self.announced.remove(number);
        self.replacing.remove(number);
        self.zapped.insert(number);
        self.change(number, |slot| slot.wish = LockRequest::to_change(range));
    }

    /// Turns a slot into a replacing one, for `range`.
    pub(super) fn begin_replace(&mut self, number: usize, range: Range<u64>) {
        self.replacing.insert(number);
        self.change(number, |slot| slot.wish = LockRequest::to_change(range));
    }

    /// Returns the ranges from which a slot excludes more than new mappings.
    fn barred(&self, number: usize) -> &[Range<u64>] {
        let ranges = &self.at(number).wish.ranges;
        match self.zapped.has(number) {
            false => ranges,
            true => &[],
        }
    }

    /// Returns the ranges of a slot. The second may be empty.
    pub(super) fn ranges(&self, number: usize) -> &[Range<u64>; 2] {
        &self.at(number).wish.ranges
    }

    /// Whether an earlier request that conflicts with this slot's request holds or awaits its ranges. Zaps and
    /// replacements do not count.
    pub(super) fn is_kept_out(&self, number: usize) -> bool {
        let own = self.at(number);
        let others = self.used.without(&self.zapped).without(&self.replacing);
        others.iter().any(|other| {
            let other = self.at(other);
            other.number < own.number && own.wish.excludes(&other.wish)
        })
    }

    /// Whether a zap, running or announced, or a replacement is in the way of a request. Zaps are in the way
    /// where the request puts new mappings. Replacements are, unless the request may run beside them. Only
    /// slots with numbers below `limit` count.
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

    /// Whether a zap or a replacement meets the ranges of a request.
    pub(super) fn meets_zaps(&self, wish: &LockRequest) -> bool {
        let zaps = self.zapped.or(&self.replacing);
        zaps.iter()
            .any(|other| self.ranges(other).iter().any(|range| wish.meets(range)))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_slot_of_no_chunk_has_no_range() {
        let mut places = Places::new();
        for number in [OWN, PLACES - 1, PLACES, usize::MAX] {
            places.change(number, |_| unreachable!("there is no such slot"));
            assert!(places.ranges(number).iter().all(Range::is_empty));
        }
        assert!(!places.extend(OWN, &(1..2)) && places.extend(0, &(1..2)));
        let mut room = SlotChunk::new(0);
        places.used_count = OWN;
        assert!(places.add_room(NonNull::from(&mut room)));
        assert!(places.extend(OWN, &(3..4)) && places.has(OWN, &(3..4)));
        assert!(places.ranges(OWN + ROOM).iter().all(Range::is_empty));
    }
}
