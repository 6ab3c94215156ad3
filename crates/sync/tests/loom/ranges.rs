//! Loom models of the range lock: exclusion where ranges meet, visibility of the previous holder's writes,
//! zaps, and no lost wake-up.
//!
//! At most two preemptions in the quick form; with three threads one.

use core::ops::Range;

use crate::model::{Machine, explore};
use faultless_sync::{LockRequest, Mutant, RangeLock, Set, with_flaw};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// The lock, and the values at three positions of its ranges. Their cells report two users, one of which
/// writes, and a reader that does not see the last write as done.
struct Shared {
    ranges: RangeLock,
    machine: Machine,
    values: [UnsafeCell<u32>; 3],
}

// SAFETY: the cells are used under the lock, which is what the models check.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            ranges: RangeLock::new(),
            machine: Machine::default(),
            values: [0; 3].map(UnsafeCell::new),
        })
    }

    fn add(&self, at: usize) {
        // SAFETY: loom checks it.
        self.values[at].with_mut(|v| unsafe { *v += 1 });
    }

    fn read(&self, at: usize) -> u32 {
        // SAFETY: loom checks it.
        self.values[at].with(|v| unsafe { *v })
    }
}

fn spawn(
    shared: &Arc<Shared>,
    work: impl FnOnce(&Shared) + Send + 'static,
) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || work(&shared))
}

/// Two writers with ranges that meet at one position, and perhaps a reader.
fn exclusion(preemptions: usize, third: bool) {
    explore(Some(preemptions), move || {
        let shared = Shared::new();
        let write = |range: Range<u64>| {
            move |shared: &Shared| {
                let wish = LockRequest::to_change(range.clone());
                let _guard = shared.ranges.lock(&wish, &shared.machine);
                range.for_each(|at| shared.add(at as usize));
            }
        };
        let writer = spawn(&shared, write(0..2));
        let reader = third.then(|| {
            spawn(&shared, |shared| {
                let _guard = shared
                    .ranges
                    .lock(&LockRequest::to_keep(1..2), &shared.machine);
                assert!(shared.read(1) <= 2);
            })
        });
        write(1..3)(&shared);
        writer.join().unwrap();
        reader.into_iter().for_each(|reader| reader.join().unwrap());
        let _guard = shared
            .ranges
            .lock(&LockRequest::to_keep(0..3), &shared.machine);
        assert_eq!([0, 1, 2].map(|at| shared.read(at)), [1, 2, 1]);
    });
}

#[test]
fn overlapping_ranges_exclude_each_other() {
    exclusion(3, false);
}

#[test]
fn of_three_two_wait() {
    exclusion(1, true);
}

/// A deadlock ends loom's process, so that the model runs in one of its own.
#[test]
fn broken_wake_without_a_turn() {
    const NAME: &str = "ranges::broken_wake_without_a_turn";
    if std::env::var_os(NAME).is_some() {
        return with_flaw(Mutant::WokenWithoutTurn, || exclusion(2, false));
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(NAME, "1")
        .output()
        .unwrap();
    assert!(!output.status.success(), "the model did not notice");
    assert!(String::from_utf8_lossy(&output.stderr).contains("deadlock"));
}

/// A zap writes the zapped position without the range. Another thread puts something new there, and perhaps a
/// third changes ranges around it.
fn zaps(preemptions: usize, third: bool) {
    explore(Some(preemptions), move || {
        let shared = Shared::new();
        let zapper = spawn(&shared, |shared| {
            let wish = LockRequest::to_change(0..2);
            let guard = shared.ranges.lock(&wish, &shared.machine);
            shared.add(0);
            let _zap = guard.begin_zap(1..2);
            shared.add(1);
        });
        let mapper = spawn(&shared, |shared| {
            let wish = LockRequest::to_fill(1..3);
            let _guard = shared.ranges.lock(&wish, &shared.machine);
            shared.add(1);
            shared.add(2);
        });
        if third {
            let wish = LockRequest::to_change(0..1).and(2..3);
            let _guard = shared.ranges.lock(&wish, &shared.machine);
            shared.add(0);
            shared.add(2);
        }
        zapper.join().unwrap();
        mapper.join().unwrap();
        assert!(!shared.ranges.is_zapping(&shared.machine));
    });
}

#[test]
fn something_new_waits_for_a_zap() {
    zaps(3, false);
}

#[test]
fn no_other_cpu_does() {
    zaps(1, true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_zap_not_awaited() {
    with_flaw(Mutant::ZapsNotAwaited, || zaps(2, false));
}

/// The end of a zap is left to a thread that has the whole range.
#[test]
fn an_end_is_left_to_another() {
    explore(Some(2), || {
        let shared = Shared::new();
        let wish = LockRequest::to_change(1..2);
        let zap = shared.ranges.lock(&wish, &shared.machine).begin_zap(1..2);
        let place = zap.place();
        let mapper = spawn(&shared, |shared| {
            let wish = LockRequest::to_fill(1..2);
            let _guard = shared.ranges.lock(&wish, &shared.machine);
            shared.add(1);
        });
        let wish = LockRequest::to_change(0..3);
        {
            let _all = shared.ranges.lock(&wish, &shared.machine);
            zap.leave();
            assert!(shared.ranges.is_left(place, &shared.machine));
            shared.add(1);
            shared.ranges.end_left(&Set::of(place), &shared.machine);
        }
        mapper.join().unwrap();
        assert!(!shared.ranges.is_zapping(&shared.machine));
    });
}

/// A brief writer, if its range has no other holder, and its zap. Beside it another thread changes a range
/// that overlaps, and then puts something new there.
///
/// Position 1 stands for a slot value: a thread writes it with its range, or as a brief writer. Position 0
/// stands for a page, which the zap frees.
fn at_once(preemptions: usize) {
    explore(Some(preemptions), || {
        let shared = Shared::new();
        let zapper = spawn(&shared, |shared| {
            let kept = shared.ranges.try_keep_out([0..2], &shared.machine);
            if let Some(kept) = kept {
                shared.add(1);
                let place = kept.next_place().unwrap();
                let _zap = kept.begin_zap(place, 0..2);
                shared.add(0);
            }
        });
        {
            let wish = LockRequest::to_change(1..3);
            let _guard = shared.ranges.lock(&wish, &shared.machine);
            shared.add(1);
            shared.add(2);
        }
        {
            let wish = LockRequest::to_fill(0..1);
            let _guard = shared.ranges.lock(&wish, &shared.machine);
            shared.add(0);
        }
        zapper.join().unwrap();
        assert!(!shared.ranges.is_zapping(&shared.machine));
    });
}

#[test]
fn a_free_range_is_zapped_briefly() {
    at_once(3);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_at_once_beside_a_holder() {
    with_flaw(Mutant::AtOnceBesideHolder, || at_once(2));
}

/// A brief writer that is done when it unlocks the list has no slot there, and no thread waits for it. It has
/// two ranges.
#[test]
fn a_brief_writer_leaves_nothing() {
    explore(Some(3), || {
        let shared = Shared::new();
        let other = spawn(&shared, |shared| {
            let kept = shared.ranges.try_keep_out([0..1, 2..3], &shared.machine);
            if kept.is_some() {
                shared.add(0);
                shared.add(2);
            }
        });
        for range in [1..3, 0..1] {
            let wish = LockRequest::to_fill(range.clone());
            let guard = shared.ranges.lock(&wish, &shared.machine);
            assert!(!guard.meets_zaps() && !guard.has_company());
            range.for_each(|at| shared.add(at as usize));
        }
        other.join().unwrap();
        assert!([0, 2].iter().all(|at| shared.read(*at) <= 2));
        assert!(
            shared
                .ranges
                .try_keep_out([0..3], &shared.machine)
                .is_some()
        );
    });
}
