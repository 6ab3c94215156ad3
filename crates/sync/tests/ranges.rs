//! Tests of the range lock: which requests wait for which, and in what order.
#![cfg(not(any(loom, shuttle)))]

use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use faultless_sync::atomic::AtomicU32;
use faultless_sync::{LockRequest, PLACES, RangeGuard, RangeLock, Set, SlotChunk, Wait};

#[derive(Default)]
struct Machine {
    parked: AtomicUsize,
    queue: Mutex<()>,
    woken: Condvar,
}

impl Wait for Machine {
    fn relax(&self, _turn: u32) {
        thread::yield_now();
    }

    fn park(&self, word: &AtomicU32, expected: u32) {
        let queue = self.queue.lock().unwrap();
        if word.load(SeqCst) == expected {
            self.parked.fetch_add(1, SeqCst);
            drop(self.woken.wait(queue).unwrap());
            self.parked.fetch_sub(1, SeqCst);
        }
    }

    fn wake(&self, _word: &AtomicU32, _count: u32) {
        drop(self.queue.lock().unwrap());
        self.woken.notify_all();
    }
}

impl Machine {
    /// Waits until `count` threads are parked.
    fn await_parked(&self, count: usize) {
        while self.parked.load(SeqCst) != count {
            thread::sleep(Duration::from_micros(100));
        }
    }
}

#[test]
fn only_ranges_that_meet_keep_each_other_out() {
    let (ranges, machine) = (RangeLock::new(), Machine::default());
    let change = |range| ranges.try_lock(&LockRequest::to_change(range), &machine);
    let keep = |range| ranges.try_lock(&LockRequest::to_keep(range), &machine);
    let one = change(10..20).unwrap();
    assert!(change(20..30).is_some() && change(0..10).is_some());
    assert!(change(19..20).is_none() && change(0..11).is_none() && change(12..14).is_none());
    assert!(keep(10..11).is_none());
    assert!(change(15..15).is_some(), "an empty range meets nothing");
    drop(one);
    let one = keep(10..20).unwrap();
    assert!(keep(0..100).is_some() && change(0..100).is_none());
    drop(one);
    let two = LockRequest::to_change(1..2).and(5..6);
    let two = ranges.try_lock(&two, &machine).unwrap();
    assert!(change(5..7).is_none() && change(2..5).is_some() && keep(1..2).is_none());
    drop(two);
    assert!(change(0..u64::MAX).is_some());
}

#[test]
fn a_free_range_is_kept_from_others() {
    let (ranges, machine) = (RangeLock::new(), Machine::default());
    let keep_out = |range| ranges.try_keep_out([range, 90..91], &machine).is_some();
    let beside_zaps = |range| ranges.try_keep_out_beside_zaps(range, &machine).is_some();
    let hold = |range| {
        ranges
            .try_lock(&LockRequest::to_change(range), &machine)
            .unwrap()
    };
    assert!(
        keep_out(0..u64::MAX),
        "nothing is held, and an attempt leaves nothing behind"
    );
    let one = hold(10..20);
    assert!(!keep_out(19..20) && keep_out(20..30) && !beside_zaps(10..11));
    one.announce_zap();
    assert!(!beside_zaps(10..11), "the range is still held");
    let zap = one.begin_zap(12..14);
    assert!(keep_out(10..12) && !keep_out(13..15) && beside_zaps(13..15));
    let replacing = hold(30..40).begin_replace(30..40);
    assert!(!keep_out(39..40) && !beside_zaps(39..40));
    drop((zap, replacing));
    let other = hold(90..100);
    assert!(
        !keep_out(0..1) && beside_zaps(0..1),
        "of two ranges either may be had"
    );
    drop(other);

    let kept = ranges.try_keep_out([0..10, 20..21], &machine).unwrap();
    let place = kept.next_place().unwrap();
    let zap = kept.begin_zap(place, 2..4);
    assert!(zap.place() == place && ranges.is_zapping(&machine));
    assert!(!keep_out(3..4) && keep_out(4..10));
    drop(zap);
    let all = fill(&ranges, &machine);
    let kept = ranges.try_keep_out([0..10, 20..21], &machine).unwrap();
    assert!(kept.next_place().is_none() && kept.has_company());
    drop((kept, all));
    assert!(!ranges.is_zapping(&machine) && keep_out(0..u64::MAX));
}

#[test]
fn a_second_range_is_had_at_once_or_not() {
    let (ranges, machine) = (RangeLock::new(), Machine::default());
    let one = ranges.lock(&LockRequest::to_change(0..10), &machine);
    assert!(one.try_extend(&(2..3)), "it is had already");
    let other = ranges.lock(&LockRequest::to_keep(20..30), &machine);
    assert!(!one.try_extend(&(29..40)));
    assert!(one.try_extend(&(30..40)));
    assert!(
        ranges
            .try_lock(&LockRequest::to_keep(39..50), &machine)
            .is_none()
    );
    assert!(one.try_extend(&(40..50)));
    let third = ranges.try_lock(&LockRequest::to_change(30..40), &machine);
    assert!(third.is_some(), "the one before went");
    drop((one, other, third));
    assert!(
        ranges
            .try_lock(&LockRequest::to_change(0..100), &machine)
            .is_some()
    );
}

#[test]
fn a_zap_keeps_out_only_what_is_new() {
    let (ranges, machine) = (RangeLock::new(), Machine::default());
    let guard = ranges.lock(&LockRequest::to_change(0..100), &machine);
    assert!(!guard.meets_zaps());
    let zap = guard.begin_zap(10..20);
    let change = ranges
        .try_lock(&LockRequest::to_change(0..100), &machine)
        .unwrap();
    assert!(change.meets_zaps());
    drop(change);
    let beside = ranges
        .try_lock(&LockRequest::to_change(20..100), &machine)
        .unwrap();
    assert!(!beside.meets_zaps());
    drop(beside);
    assert!(
        ranges
            .try_lock(&LockRequest::to_fill(19..30), &machine)
            .is_none()
    );
    assert!(
        ranges
            .try_lock(&LockRequest::to_fill(20..30), &machine)
            .is_some()
    );
    let mut seen = Vec::new();
    ranges.for_each_zap(&machine, |range, place| seen.push((range, place)));
    assert_eq!(seen, [(10..20, zap.place())]);
    drop(zap);
    assert!(!ranges.is_zapping(&machine));
    assert!(
        ranges
            .try_lock(&LockRequest::to_fill(19..30), &machine)
            .is_some()
    );
}

/// A waiter for a replacement keeps no request out that need not wait for the replacement.
#[test]
fn a_waiter_at_a_replacement_keeps_no_request_out() {
    let (ranges, machine) = (RangeLock::new(), Machine::default());
    let all = LockRequest::to_change(0..100).beside_replacing();
    thread::scope(|scope| {
        let guard = ranges.lock(&LockRequest::to_change(0..100), &machine);
        let replacing = guard.begin_replace(10..20);
        for number in 0..2 {
            let (ranges, machine) = (&ranges, &machine);
            let wish = match number {
                0 => LockRequest::to_keep(15..16),
                _ => LockRequest::to_change(5..12),
            };
            assert!(ranges.try_lock(&wish, machine).is_none());
            scope.spawn(move || drop(ranges.lock(&wish, machine)));
            machine.await_parked(number + 1);
            let whole = ranges.try_lock(&all, machine).unwrap();
            assert!(whole.meets_zaps());
            assert!(
                ranges
                    .try_lock(&LockRequest::to_keep(50..51), machine)
                    .is_none()
            );
        }
        drop(replacing);
    });
    assert!(ranges.try_lock(&all, &machine).is_some());
}

/// Takes all slots of the list, with ranges from 100 on.
fn fill<'a>(ranges: &'a RangeLock, machine: &'a Machine) -> Vec<RangeGuard<'a, Machine>> {
    let wish = |at: u64| LockRequest::to_change(100 + at..101 + at);
    (0..)
        .map_while(|at| ranges.try_lock(&wish(at), machine))
        .collect()
}

fn add_room(ranges: &RangeLock, machine: &Machine) -> bool {
    let room = NonNull::from(Box::leak(Box::new(SlotChunk::new(7))));
    // SAFETY: leaked, and the list's from now on.
    unsafe { ranges.add_room(room, machine) }
}

#[test]
fn room_is_added_where_places_are_scarce() {
    let (ranges, machine) = (RangeLock::new(), Machine::default());
    assert!(!ranges.is_scarce());
    let first = fill(&ranges, &machine);
    assert!(ranges.is_scarce());
    drop(first);
    assert!(!ranges.is_scarce());
    let mut rooms = 0;
    let mut all = Vec::new();
    loop {
        let before = all.len();
        let wish = |at: usize| LockRequest::to_change(at as u64..at as u64 + 1);
        while let Some(guard) = ranges.try_lock(&wish(all.len()), &machine) {
            all.push(guard);
        }
        assert!(all.len() > before, "there is no room");
        if !add_room(&ranges, &machine) {
            break;
        }
        rooms += 1;
        assert!(!ranges.is_scarce());
    }
    assert_eq!(all.len(), PLACES);
    assert!(!ranges.is_scarce(), "there can be no more");
    let places: HashSet<_> = all.iter().map(RangeGuard::place).collect();
    assert_eq!(places.len(), PLACES);
    let mut tags = Vec::new();
    ranges.for_each_room(&machine, |tag| tags.push(tag));
    assert_eq!(tags, vec![7; rooms]);
    // Ranges in added chunks are zapped like any others.
    let zaps: Vec<_> = all
        .into_iter()
        .enumerate()
        .map(|(at, guard)| guard.begin_zap(at as u64..at as u64 + 1))
        .collect();
    assert!(ranges.zaps(&machine).iter().eq(0..PLACES));
    for zap in &zaps {
        let [range, none] = ranges.ranges_of(zap.place(), &machine);
        assert!(range.end - range.start == 1 && none.is_empty());
    }
    let mut left = Set::default();
    for (at, zap) in zaps.into_iter().enumerate() {
        if at % 2 == 0 {
            left.insert(zap.place());
            zap.leave();
        }
    }
    assert_eq!(ranges.zaps(&machine), left);
    ranges.end_left(&left, &machine);
    assert!(ranges.zaps(&machine).is_empty());
}

/// However many requests wait for one range, a request for another range succeeds immediately.
#[test]
fn waiters_leave_slots_for_other_requests() {
    let (ranges, machine) = (RangeLock::new(), Machine::default());
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        let first = ranges.lock(&LockRequest::to_change(0..10), &machine);
        for number in 0..40 {
            let (ranges, machine, done) = (&ranges, &machine, &done);
            scope.spawn(move || {
                drop(ranges.lock(&LockRequest::to_change(5..20), machine));
                done.fetch_add(1, SeqCst);
            });
            machine.await_parked(number + 1);
            let elsewhere = ranges.try_lock(&LockRequest::to_change(200..300), machine);
            assert!(elsewhere.is_some(), "{number} wait");
        }
        drop(first);
    });
    assert_eq!(done.load(SeqCst), 40);
}

#[test]
fn a_waiter_is_not_passed() {
    let (ranges, machine) = (RangeLock::new(), Machine::default());
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let first = ranges.lock(&LockRequest::to_keep(0..10), &machine);
        // Each waits for the one before, although `first` would let the second one in.
        for (number, wish) in [
            LockRequest::to_change(5..20),
            LockRequest::to_keep(15..16),
            LockRequest::to_change(0..100),
        ]
        .into_iter()
        .enumerate()
        {
            let (ranges, machine, order) = (&ranges, &machine, &order);
            scope.spawn(move || {
                let _guard = ranges.lock(&wish, machine);
                order.lock().unwrap().push(number);
            });
            machine.await_parked(number + 1);
            assert!(
                ranges
                    .try_lock(&LockRequest::to_keep(15..16), machine)
                    .is_none()
            );
            assert!(
                ranges
                    .try_lock(&LockRequest::to_keep(200..300), machine)
                    .is_some()
            );
        }
        drop(first);
    });
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
}

#[test]
fn places_are_given_in_order_too() {
    let (ranges, machine) = (RangeLock::new(), Machine::default());
    let order = Mutex::new(Vec::new());
    let wish = |at: usize| LockRequest::to_change(at as u64..at as u64 + 1);
    thread::scope(|scope| {
        let mut held = fill(&ranges, &machine);
        assert!(ranges.try_lock(&wish(1000), &machine).is_none());
        for number in 0..3 {
            let (ranges, machine, order, wish) = (&ranges, &machine, &order, &wish);
            scope.spawn(move || {
                let _guard = ranges.lock(&wish(1000), machine);
                order.lock().unwrap().push(number);
            });
            machine.await_parked(number + 1);
        }
        held.truncate(held.len() - 2);
    });
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
}

/// More threads than slots, with ranges that meet in many ways. No page has a second user beside an exclusive
/// one, and all threads end.
#[test]
fn many_threads() {
    beside_each_other(false);
}

/// The same with an added chunk of slots.
#[test]
fn many_threads_with_room() {
    beside_each_other(true);
}

fn beside_each_other(has_room: bool) {
    const PAGES: usize = 64;
    let (ranges, machine) = (RangeLock::new(), Machine::default());
    if has_room {
        let all = fill(&ranges, &machine);
        assert!(add_room(&ranges, &machine));
        drop(all);
    }
    // Users are counted in the low 16 bits, zaps above.
    let users: [AtomicU64; PAGES] = std::array::from_fn(|_| AtomicU64::new(0));
    thread::scope(|scope| {
        for seed in 0..48u64 {
            let (ranges, machine, users) = (&ranges, &machine, &users);
            scope.spawn(move || {
                let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
                let mut draw = |below: u64| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state % below
                };
                for _ in 0..300 {
                    let start = draw(PAGES as u64);
                    let range = start..(start + 1 + draw(8)).min(PAGES as u64);
                    let pages = || range.clone().map(|at| &users[at as usize]);
                    match draw(4) {
                        3 => {
                            let kept = ranges.try_keep_out([range.clone()], machine);
                            let Some(kept) = kept else { continue };
                            for page in pages() {
                                assert_eq!(page.fetch_add(1, SeqCst), 0);
                            }
                            let Some(place) = kept.next_place() else {
                                for page in pages() {
                                    page.fetch_sub(1, SeqCst);
                                }
                                continue;
                            };
                            for page in pages() {
                                page.fetch_add((1 << 16) - 1, SeqCst);
                            }
                            let zap = kept.begin_zap(place, range.clone());
                            for page in pages() {
                                page.fetch_sub(1 << 16, SeqCst);
                            }
                            drop(zap);
                        }
                        0 => {
                            let guard =
                                ranges.lock(&LockRequest::to_change(range.clone()), machine);
                            for page in pages() {
                                assert_eq!(page.fetch_add(1, SeqCst) & 0xffff, 0);
                            }
                            for page in pages() {
                                page.fetch_add((1 << 16) - 1, SeqCst);
                            }
                            let zap = guard.begin_zap(range.clone());
                            for page in pages() {
                                page.fetch_sub(1 << 16, SeqCst);
                            }
                            drop(zap);
                        }
                        1 => {
                            let _guard = ranges.lock(&LockRequest::to_fill(range.clone()), machine);
                            for page in pages() {
                                assert_eq!(page.fetch_add(1, SeqCst), 0);
                            }
                            for page in pages() {
                                page.fetch_sub(1, SeqCst);
                            }
                        }
                        _ => {
                            let _guard = ranges.lock(&LockRequest::to_keep(range.clone()), machine);
                            for page in pages() {
                                assert_eq!(page.load(SeqCst) & 0xffff, 0);
                            }
                        }
                    }
                }
            });
        }
    });
    assert!(
        ranges
            .try_lock(&LockRequest::to_fill(0..u64::MAX), &machine)
            .is_some()
    );
}
