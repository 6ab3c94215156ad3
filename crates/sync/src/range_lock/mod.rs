//! A lock for ranges: operations on ranges that do not overlap never wait for each other.
//!
//! The lock is a list of slots. A slot has the range, or the two ranges, that a request holds or waits for. A
//! spin lock over the list is held for one look at the slots. The list has memory for some slots; more is
//! added when almost all are taken ([`RangeLock::add_room`]).
//!
//! * First come, first served: a request waits for earlier requests that it conflicts with, and for no
//!   others. So no request starves, whether it is for a whole space or for a single page.
//! * Waiters may use at most half of the slots. A request that has to wait and gets no slot queues for one,
//!   also in order of arrival. Requests that need not wait may pass the queue.
//! * A range that is held exclusively may become *zapped*. On the brief path ([`BriefGuard`]) it may be
//!   zapped from the beginning. From then on only a new mapping in the range waits: all other operations
//!   treat the old contents as gone.
//! * If the new mapping is already in place, the range is *replacing*. Then only requests that ask for it
//!   ([`LockRequest::beside_replacing`]) pass.
//! * A request that waits for either has no slot at first, so later requests that pass do not wait for it.
//! * No deadlock: the holder of a range waits for no other range of the list, and a zap waits for none at all.
//!
//! *Writes*: the lock's line, those of the sets of slots, and the slot's, by each lock and each unlock; with
//! waiters, also the word on which they park.

mod brief;
mod guard;
mod places;
mod request;
mod set;

use core::ops::Range;
use core::ptr::NonNull;

use crate::atomic::{AtomicU32, Ordering};
use crate::mutant::{Mutant, mutant};
use crate::order::{Class, Held, Kind, check_park};
use crate::spin::SpinLock;
use crate::wait::{Backoff, Wait};

pub use brief::BriefGuard;
use guard::Taken;
pub use guard::{RangeGuard, ZapGuard};
use places::Places;
pub use places::{PLACES, SlotChunk};
pub use request::LockRequest;
pub use set::Set;

/// Turns of spinning before a waiter parks.
const SPIN: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 64 };

/// Rounds in which a request that waits for a zap or a replacement lets other requests pass. Afterwards it
/// excludes them while it waits.
const ROUNDS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 4 };

/// A lock for ranges of numbers. Their meaning is the user's choice.
pub struct RangeLock {
    class: Class,
    places: SpinLock<Places>,
    /// Counts changes that may let waiters proceed. Waiters park on it.
    turn: AtomicU32,
    /// 1 if slots are scarce.
    scarce: AtomicU32,
}

impl Default for RangeLock {
    #[track_caller]
    fn default() -> Self {
        Self::new()
    }
}

impl RangeLock {
    /// Returns an unlocked lock.
    #[track_caller]
    pub fn new() -> Self {
        Self {
            class: Class::new(Kind::Parking),
            places: SpinLock::new(Places::new()),
            turn: AtomicU32::new(0),
            scarce: AtomicU32::new(0),
        }
    }

    /// Acquires the ranges of a request, and waits if necessary.
    #[inline]
    pub fn lock<'a, W: Wait + ?Sized>(
        &'a self,
        wish: &LockRequest,
        machine: &'a W,
    ) -> RangeGuard<'a, W> {
        self.class.check();
        match self.try_take(wish, machine) {
            Some(taken) => self.guard(taken, machine),
            None => self.lock_in_turn(wish, machine),
        }
    }

    #[cold]
    fn lock_in_turn<'a, W: Wait + ?Sized>(
        &'a self,
        wish: &LockRequest,
        machine: &'a W,
    ) -> RangeGuard<'a, W> {
        for _ in 0..ROUNDS {
            let (guard, is_in_the_way) = self.lock_beside_zaps(wish, machine);
            if !is_in_the_way || mutant(Mutant::ZapsNotAwaited) {
                return guard;
            }
            drop(guard);
            self.await_zaps(wish, machine);
        }
        let (guard, _) = self.lock_beside_zaps(wish, machine);
        let place = guard.place();
        self.release(machine, |places| _ = places.set_waits(place, true));
        // The range is held, so no other zap begins there.
        self.await_zaps(wish, machine);
        self.release(machine, |places| _ = places.set_waits(place, false));
        guard
    }

    /// Acquires the ranges of a request if this needs no wait.
    #[inline]
    pub fn try_lock<'a, W: Wait + ?Sized>(
        &'a self,
        wish: &LockRequest,
        machine: &'a W,
    ) -> Option<RangeGuard<'a, W>> {
        let taken = self.try_take(wish, machine);
        taken.map(|taken| self.guard(taken, machine))
    }

    /// Returns the guard of a slot that was taken and has none yet.
    #[inline]
    fn guard<'a, W: Wait + ?Sized>(&'a self, taken: Taken, machine: &'a W) -> RangeGuard<'a, W> {
        RangeGuard {
            ranges: self,
            machine,
            taken,
            _held: self.class.hold(),
        }
    }

    /// Takes a slot with the ranges of a request if this needs no wait.
    fn try_take<W: Wait + ?Sized>(&self, wish: &LockRequest, machine: &W) -> Option<Taken> {
        let mut places = self.places.lock(machine);
        let is_alone = places.is_unused();
        if !places.may_pass() {
            return None;
        }
        let place = places.take(wish)?;
        if is_alone {
            return Some(Taken::alone(place));
        }
        let meets_zaps = places.meets_zaps(wish);
        if places.is_kept_out(place) || places.is_in_the_way(wish, u64::MAX) {
            // The list was locked all the time, so nothing has begun to wait for this slot.
            places.free(place);
            return None;
        }
        self.note_taken(&places);
        Some(Taken {
            meets_zaps,
            has_company: places.has_others(place),
            ..Taken::alone(place)
        })
    }

    /// Acquires the ranges of a request, where zaps and replacements may be running. Returns also whether one
    /// of them is in the way of the request.
    fn lock_beside_zaps<'a, W: Wait + ?Sized>(
        &'a self,
        wish: &LockRequest,
        machine: &'a W,
    ) -> (RangeGuard<'a, W>, bool) {
        let mut place = None;
        let mut queued = None;
        let (place, meets_zaps, is_in_the_way) = self.wait(machine, |places| {
            let is_new = place.is_none();
            if is_new {
                place = take_in_turn(places, wish, &mut queued);
            }
            let place = place?;
            let is_kept_out = places.is_kept_out(place);
            let is_over = places.set_waits(place, is_kept_out);
            if is_new {
                self.note_taken(places);
            }
            if !places.queue.is_empty() && (is_over || is_new && queued.is_some()) {
                // The head of the queue may get a slot now.
                self.turn.fetch_add(1, Ordering::Relaxed);
                machine.wake(&self.turn, u32::MAX);
            }
            (!is_kept_out).then(|| {
                let is_in_the_way = places.is_in_the_way(wish, u64::MAX);
                (place, places.meets_zaps(wish), is_in_the_way)
            })
        });
        let taken = Taken {
            meets_zaps,
            has_company: true,
            has_waited: true,
            ..Taken::alone(place)
        };
        (self.guard(taken, machine), is_in_the_way)
    }

    /// Waits for the end of all zaps and replacements that are in the way of a request at the time of the call.
    pub fn await_zaps<W: Wait + ?Sized>(&self, wish: &LockRequest, machine: &W) {
        let mut limit = None;
        self.wait(machine, |places| {
            let limit = *limit.get_or_insert(places.next);
            (!places.is_in_the_way(wish, limit)).then_some(())
        });
    }

    /// Whether a zap or a replacement is in the way of a request.
    pub fn is_in_the_way<W: Wait + ?Sized>(&self, wish: &LockRequest, machine: &W) -> bool {
        self.places.lock(machine).is_in_the_way(wish, u64::MAX)
    }

    /// Whether a zap is running or announced.
    pub fn is_zapping<W: Wait + ?Sized>(&self, machine: &W) -> bool {
        let places = self.places.lock(machine);
        !places.zapped.or(&places.announced).is_empty()
    }

    /// Calls `visit` with each range that is zapped or replacing, and its slot. The zap may have ended with its
    /// marks still in place. A slot may have two ranges. `visit` runs under the lock, and may only look.
    pub fn for_each_zap<W: Wait + ?Sized>(
        &self,
        machine: &W,
        mut visit: impl FnMut(Range<u64>, usize),
    ) {
        let places = self.places.lock(machine);
        for place in places.zapped.or(&places.replacing).iter() {
            let ranges = places.ranges(place).iter();
            let ranges = ranges.filter(|range| !range.is_empty());
            ranges.for_each(|range| visit(range.clone(), place));
        }
    }

    /// Returns the slots of all these.
    pub fn zaps<W: Wait + ?Sized>(&self, machine: &W) -> Set {
        let places = self.places.lock(machine);
        places.zapped.or(&places.replacing)
    }

    /// Returns the ranges of one of them: two for a move, else the second is empty. Both are empty if it has
    /// ended.
    pub fn ranges_of<W: Wait + ?Sized>(&self, place: usize, machine: &W) -> [Range<u64>; 2] {
        let places = self.places.lock(machine);
        match places.zapped.has(place) || places.replacing.has(place) {
            true => places.ranges(place).clone(),
            false => [0..0, 0..0],
        }
    }

    /// Returns the guard of a slot that was kept without one ([`RangeGuard::into_place`]).
    pub fn guard_of<'a, W: Wait + ?Sized>(
        &'a self,
        place: usize,
        machine: &'a W,
    ) -> RangeGuard<'a, W> {
        RangeGuard {
            ranges: self,
            machine,
            taken: Taken::alone(place),
            _held: Held::none(),
        }
    }

    /// The same for a slot that is zapped or replacing ([`ZapGuard::into_place`]).
    pub fn zap_guard_of<'a, W: Wait + ?Sized>(
        &'a self,
        place: usize,
        machine: &'a W,
    ) -> ZapGuard<'a, W> {
        ZapGuard {
            ranges: self,
            machine,
            place,
        }
    }

    /// Whether the zap of a slot was left ([`ZapGuard::leave`]). It stays in the list until it is ended.
    pub fn is_left<W: Wait + ?Sized>(&self, place: usize, machine: &W) -> bool {
        self.places.lock(machine).left.has(place)
    }

    /// Whether a slot is replacing. All marks in its range are then its own; the range of a zap may have
    /// marks of other zaps.
    pub fn is_replacing<W: Wait + ?Sized>(&self, place: usize, machine: &W) -> bool {
        self.places.lock(machine).replacing.has(place)
    }

    /// Ends the zaps of a set that were left.
    pub fn end_left<W: Wait + ?Sized>(&self, set: &Set, machine: &W) {
        self.release(machine, |places| places.free_all(&places.left.and(set)));
    }

    /// Whether slots are scarce and a chunk may be added. Reads a hint, without the lock.
    #[inline]
    pub fn is_scarce(&self) -> bool {
        self.scarce.load(Ordering::Relaxed) != 0
    }

    /// Adds a chunk if slots are scarce. Returns whether it was added, and belongs to the list from now on.
    ///
    /// # Safety
    /// The chunk is the caller's alone, and stays in place as long as the list.
    pub unsafe fn add_room<W: Wait + ?Sized>(&self, room: NonNull<SlotChunk>, machine: &W) -> bool {
        let mut is_added = false;
        self.release(machine, |places| {
            is_added = places.add_room(room);
            self.note_scarcity(places);
        });
        is_added
    }

    /// Calls `visit` with the tag of each chunk that was added.
    pub fn for_each_room<W: Wait + ?Sized>(&self, machine: &W, visit: impl FnMut(u64)) {
        self.places.lock(machine).tags().for_each(visit);
    }

    /// Updates the hint after a slot was taken.
    #[inline]
    fn note_taken(&self, places: &Places) {
        if places.is_scarce() {
            self.note_scarcity(places);
        }
    }

    #[cold]
    fn note_scarcity(&self, places: &Places) {
        let is_scarce = u32::from(places.is_scarce());
        if self.scarce.load(Ordering::Relaxed) != is_scarce {
            self.scarce.store(is_scarce, Ordering::Relaxed);
        }
    }

    /// Waits until `look` returns an answer. It is called again after each release.
    fn wait<W: Wait + ?Sized, T>(
        &self,
        machine: &W,
        mut look: impl FnMut(&mut Places) -> Option<T>,
    ) -> T {
        let mut backoff = Backoff::new();
        let mut waits = false;
        loop {
            let mut places = self.places.lock(machine);
            if let Some(answer) = look(&mut places) {
                places.waiting -= u32::from(waits);
                return answer;
            }
            places.waiting += u32::from(!waits);
            waits = true;
            // Also incremented under the lock: no release comes between the look and this load.
            let turn = self.turn.load(Ordering::Relaxed);
            drop(places);
            while backoff.turns() < SPIN && self.turn.load(Ordering::Relaxed) == turn {
                backoff.turn(machine);
            }
            check_park();
            machine.park(&self.turn, turn);
        }
    }

    /// Changes slots so that waiters may proceed, and wakes them.
    fn release<W: Wait + ?Sized>(&self, machine: &W, change: impl FnOnce(&mut Places)) {
        let mut places = self.places.lock(machine);
        change(&mut places);
        if self.is_scarce() {
            self.note_scarcity(&places);
        }
        if places.waiting == 0 {
            return;
        }
        if !mutant(Mutant::WokenWithoutTurn) {
            self.turn.fetch_add(1, Ordering::Relaxed);
        }
        drop(places);
        machine.wake(&self.turn, u32::MAX);
    }
}

/// Takes a slot for a request, if one is available and no earlier request queues for it. `queued` is the
/// number of the request in the queue.
fn take_in_turn(
    places: &mut Places,
    wish: &LockRequest,
    queued: &mut Option<u64>,
) -> Option<usize> {
    let own = match *queued {
        Some(own) => own,
        None if places.queue.is_empty() && places.may_wait() => match places.take(wish) {
            Some(place) => return Some(place),
            None => join(places, queued),
        },
        None => join(places, queued),
    };
    if own != places.queue.start || !places.may_wait() {
        return None;
    }
    let place = places.take(wish)?;
    places.queue.start += 1;
    Some(place)
}

fn join(places: &mut Places, queued: &mut Option<u64>) -> u64 {
    let own = places.queue.end;
    places.queue.end += 1;
    *queued = Some(own);
    own
}
