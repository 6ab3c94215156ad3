//! Tests of the lock-order checker.
#![cfg(shuttle)]

use std::sync::Arc;

use faultless_sync::atomic::AtomicU32;
use faultless_sync::{LockRequest, RangeLock, RwLock, SpinLock, Wait};

struct Machine;

impl Wait for Machine {
    fn relax(&self, _turn: u32) {
        shuttle::thread::yield_now();
    }

    fn park(&self, _word: &AtomicU32, _expected: u32) {
        shuttle::thread::yield_now();
    }

    fn wake(&self, _word: &AtomicU32, _count: u32) {}
}

/// Runs a test in one thread: the checker does not need two threads that collide.
fn run(test: fn()) {
    shuttle::check_random(test, 1);
}

#[test]
fn one_order_is_right() {
    run(|| {
        let (first, second) = (RwLock::new(), SpinLock::new(()));
        for _ in 0..2 {
            let _first = first.read(&Machine);
            let _second = second.lock(&Machine);
        }
    });
}

#[test]
#[should_panic(expected = "the order of locks")]
fn two_orders_are_noticed() {
    run(|| {
        let first = SpinLock::new(());
        let second = SpinLock::new(());
        {
            let _first = first.lock(&Machine);
            let _second = second.lock(&Machine);
        }
        let _second = second.lock(&Machine);
        let _first = first.lock(&Machine);
    });
}

#[test]
#[should_panic(expected = "the order of locks")]
fn so_is_a_ring_of_three() {
    run(|| {
        let one = SpinLock::new(());
        let two = RwLock::new();
        let three = SpinLock::new(());
        {
            let _two = two.write(&Machine).downgrade();
            let _one = one.lock(&Machine);
        }
        {
            let _one = one.lock(&Machine);
            let _three = three.lock(&Machine);
        }
        let _three = three.lock(&Machine);
        let _two = two.read(&Machine);
    });
}

#[test]
#[should_panic(expected = "the order of locks")]
fn a_range_holder_waits_for_no_range() {
    run(|| {
        let ranges = RangeLock::new();
        let _one = ranges.lock(&LockRequest::to_change(0..1), &Machine);
        let _two = ranges.lock(&LockRequest::to_change(1..2), &Machine);
    });
}

#[test]
fn a_lock_that_is_tried_for_has_no_order() {
    run(|| {
        let ranges = RangeLock::new();
        let spin = SpinLock::new(());
        {
            let _spin = spin.lock(&Machine);
            assert!(
                ranges
                    .try_lock(&LockRequest::to_change(0..1), &Machine)
                    .is_some()
            );
        }
        let _one = ranges.lock(&LockRequest::to_change(0..1), &Machine);
        let _two = ranges.try_lock(&LockRequest::to_change(1..2), &Machine);
        let _spin = spin.lock(&Machine);
    });
}

#[test]
#[should_panic(expected = "a thread parks with the spin lock")]
fn no_thread_parks_with_a_spin_lock() {
    run(|| {
        let shared = Arc::new((RwLock::new(), SpinLock::new(())));
        let other = shared.clone();
        let _write = shared.0.write(&Machine);
        let parks = shuttle::thread::spawn(move || {
            let _spin = other.1.lock(&Machine);
            let _read = other.0.read(&Machine);
        });
        parks.join().unwrap();
    });
}
