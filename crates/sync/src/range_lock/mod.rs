//! A lock for ranges: who uses ranges that do not meet never waits.
//!
//! Places, each with a range or two that somebody has or waits for, under a
//! spin lock that is held for one look at them. There is memory for some; more is added when these are almost
//! all taken ([`RangeLock::add_room`]). A wish waits for those wishes before it that it
//! cannot be beside, and for no others: first come, first served, so that nobody starves, whole
//! spaces and single pages alike. Half of the places are for who need not wait; where there is none for who
//! has to, he waits for one, in order too, and may be passed by those.
//!
//! A range that somebody has alone may become one that is being *zapped*; where nobody has anything,
//! it may be so at once. From then on nobody
//! waits for it but who would put something new there: what was there is gone for everybody, and
//! is being cleared away. If something new was put there already, the range is *replacing*: then
//! only those pass who ask for it. Who waits for either has nothing at first: whoever came later, and
//! passes, is not to wait for him.
//!
//! No deadlock: who has a range waits for no other one, and who zaps waits for none at all.
//!
//! Written lines: the lock's, those of the sets of places, and the place's, by each lock and each unlock; and, if
//! somebody waits, the word on which waiters park.

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

/// How often who waits for a zap, or where something is replaced, gives way to others, before he keeps
/// them out while he waits.
const ROUNDS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 4 };

/// The lock. What the ranges are of is the user's to say.
pub struct RangeLock {
    class: Class,
    places: SpinLock<Places>,
    /// Counts what waiters may have waited for.
    turn: AtomicU32,
    /// 1 if there are almost no places left.
    scarce: AtomicU32,
}

impl Default for RangeLock {
    #[track_caller]
    fn default() -> Self {
        Self::new()
    }
}

impl RangeLock {
    /// Nobody has anything.
    #[track_caller]
    pub fn new() -> Self {
        Self {
            class: Class::new(Kind::Parking),
            places: SpinLock::new(Places::new()),
            turn: AtomicU32::new(0),
            scarce: AtomicU32::new(0),
        }
    }

    /// What is wished for, if it can be had at once; or waits for it.
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
        // No other zap begins there now.
        self.await_zaps(wish, machine);
        self.release(machine, |places| _ = places.set_waits(place, false));
        guard
    }

    /// What is wished for, if it can be had at once.
    #[inline]
    pub fn try_lock<'a, W: Wait + ?Sized>(
        &'a self,
        wish: &LockRequest,
        machine: &'a W,
    ) -> Option<RangeGuard<'a, W>> {
        let taken = self.try_take(wish, machine);
        taken.map(|taken| self.guard(taken, machine))
    }

    /// The guard of what was taken, which has none yet.
    #[inline]
    fn guard<'a, W: Wait + ?Sized>(&'a self, taken: Taken, machine: &'a W) -> RangeGuard<'a, W> {
        RangeGuard {
            ranges: self,
            machine,
            taken,
            _held: self.class.hold(),
        }
    }

    /// A place with what is wished for, if that can be had at once.
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
            // Nobody has seen it, so that nobody waits for it.
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

    /// Waits for what is wished for; and says whether somebody zaps, or replaces something, there who may not.
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
                // There may be another place, for who is next in the queue.
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

    /// Waits for the end of all zaps that are in the way of a wish when this is called.
    pub fn await_zaps<W: Wait + ?Sized>(&self, wish: &LockRequest, machine: &W) {
        let mut limit = None;
        self.wait(machine, |places| {
            let limit = *limit.get_or_insert(places.next);
            (!places.is_in_the_way(wish, limit)).then_some(())
        });
    }

    /// Whether somebody zaps, or replaces something, where that is in a wish's way.
    pub fn is_in_the_way<W: Wait + ?Sized>(&self, wish: &LockRequest, machine: &W) -> bool {
        self.places.lock(machine).is_in_the_way(wish, u64::MAX)
    }

    /// Whether anything is being zapped, or will be.
    pub fn is_zapping<W: Wait + ?Sized>(&self, machine: &W) -> bool {
        let places = self.places.lock(machine);
        !places.zapped.or(&places.announced).is_empty()
    }

    /// Calls `visit` with each range that is being zapped or replacing, or was and is noted still,
    /// and with its place, which may have two. Under the lock, so that it may only look.
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

    /// The places of all these.
    pub fn zaps<W: Wait + ?Sized>(&self, machine: &W) -> Set {
        let places = self.places.lock(machine);
        places.zapped.or(&places.replacing)
    }

    /// The ranges of one of them: of a move two, of others the second is empty, and both if that has ended.
    pub fn ranges_of<W: Wait + ?Sized>(&self, place: usize, machine: &W) -> [Range<u64>; 2] {
        let places = self.places.lock(machine);
        match places.zapped.has(place) || places.replacing.has(place) {
            true => places.ranges(place).clone(),
            false => [0..0, 0..0],
        }
    }

    /// The guard of a place that was kept without one ([`RangeGuard::into_place`]).
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

    /// The same of one that is being zapped ([`ZapGuard::into_place`]).
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

    /// Whether the zap of a place was left ([`ZapGuard::leave`]). It goes on until it is ended.
    pub fn is_left<W: Wait + ?Sized>(&self, place: usize, machine: &W) -> bool {
        self.places.lock(machine).left.has(place)
    }

    /// Whether a place is replacing: all that is in its range is its own. A zap may have others in its range.
    pub fn is_replacing<W: Wait + ?Sized>(&self, place: usize, machine: &W) -> bool {
        self.places.lock(machine).replacing.has(place)
    }

    /// Ends those of a set of zaps that were left.
    pub fn end_left<W: Wait + ?Sized>(&self, set: &Set, machine: &W) {
        self.release(machine, |places| places.free_all(&places.left.and(set)));
    }

    /// Whether there are almost no places left, and room may be added. A look without the lock.
    #[inline]
    pub fn is_scarce(&self) -> bool {
        self.scarce.load(Ordering::Relaxed) != 0
    }

    /// Adds room for more places, if there are almost none left, and may be more; whether it is added, and
    /// the list's from then on.
    ///
    /// # Safety
    /// It is the caller's alone, and stays where it is as long as the list.
    pub unsafe fn add_room<W: Wait + ?Sized>(&self, room: NonNull<SlotChunk>, machine: &W) -> bool {
        let mut is_added = false;
        self.release(machine, |places| {
            is_added = places.add_room(room);
            self.note_scarcity(places);
        });
        is_added
    }

    /// Calls `visit` with the tag of each room that was added.
    pub fn for_each_room<W: Wait + ?Sized>(&self, machine: &W, visit: impl FnMut(u64)) {
        self.places.lock(machine).tags().for_each(visit);
    }

    /// Says, when a place was taken, whether there are almost none left.
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

    /// Waits until `look` has an answer: it looks again after each release.
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
            // Counted up under the lock, too: no release comes in between.
            let turn = self.turn.load(Ordering::Relaxed);
            drop(places);
            while backoff.turns() < SPIN && self.turn.load(Ordering::Relaxed) == turn {
                backoff.turn(machine);
            }
            check_park();
            machine.park(&self.turn, turn);
        }
    }

    /// Changes places so that others may go on, and wakes them.
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

/// A place for a wish, if there is one and nobody waits for it who came before; `queued` is the
/// number of who waits.
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
