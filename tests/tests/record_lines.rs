//! Which lines faults write, exactly (recording builds: `--cfg record`).
//!
//! Under speculative, two faults more than 8 pages apart in one mapping have no
//! line in common, the mapping's first fault included. The same recorder sees
//! the lock of `classic` and the reference count of `vma-lock`, which is how we
//! know that it looks.
#![cfg(record)]

use std::collections::BTreeSet;

use faultless_mm::{Access, Outcome, Policy, flags};
use faultless_soft::SoftCpu;
use faultless_sync::record;
use faultless_tests::space;

const BASE: u64 = 0x10_0000_0000;
const PAGE: u64 = 4096;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;

/// The lines written by one fault, batched work left out.
fn lines(space: &faultless_soft::SoftSpace, page: u64, access: Access) -> BTreeSet<usize> {
    let mut outcome = Outcome::OutOfMemory;
    let written = record::lines(|| outcome = space.fault(BASE + page * PAGE, access));
    assert_eq!(outcome, Outcome::Resolved);
    assert!(!written.is_empty(), "the recorder is off");
    written
        .into_iter()
        .filter(|(_, w)| w.direct > 0)
        .map(|(line, _)| line)
        .collect()
}

/// Lines that a fault on CPU 0 and one on CPU 1 both write, `distance` pages apart.
fn shared(policy: Policy, distance: u64, access: Access) -> usize {
    let (_, space) = space(2, 16, policy);
    SoftCpu::run(&space, 0, |_| {
        // The table is there; the mapping is new.
        space.mmap(BASE, 512 * PAGE, 3, ANON).unwrap();
        assert_eq!(space.fault(BASE, Access::Write), Outcome::Resolved);
        space.mmap(BASE, 512 * PAGE, 3, ANON).unwrap();
    });
    let first = SoftCpu::run(&space, 0, |_| lines(&space, 16, access));
    let second = std::thread::scope(|scope| {
        scope
            .spawn(|| SoftCpu::run(&space, 1, |_| lines(&space, 16 + distance, access)))
            .join()
    });
    first.intersection(&second.unwrap()).count()
}

#[test]
fn speculative_faults_share_no_line() {
    for access in [Access::Read, Access::Write] {
        for distance in [8, 9, 64, 400] {
            assert_eq!(
                shared(Policy::Speculative, distance, access),
                0,
                "{distance} {access:?}"
            );
        }
    }
}

#[test]
fn neighbours_share_the_line_of_their_entries_only() {
    assert_eq!(shared(Policy::Speculative, 1, Access::Write), 1);
}

#[test]
fn the_lock_of_classic_and_the_count_of_vma_lock_are_seen() {
    assert_eq!(shared(Policy::Classic, 64, Access::Write), 1);
    assert_eq!(shared(Policy::VmaLock, 64, Access::Write), 1);
}
