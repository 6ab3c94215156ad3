//! Forks beside moves, with threads that run: each child has the moving pages at one place, as they were at one
//! moment, and later stores of the parent do not reach the child.

use std::sync::atomic::{AtomicBool, Ordering};

use faultless_mm::{AddressSpace, Counter, Policy, remap_flags};
use faultless_soft::{SoftCpu, SoftSpace};
use faultless_tests::cpus::FIXED;
use faultless_tests::{available, budget, space};

const PAGE: u64 = 4096;
const RW: u32 = 3;
/// The two places have different offsets within their tables: a table's pages move to two tables.
const PLACES: [u64; 2] = [0x20_0000_0000, 0x30_0000_0000 + 7 * PAGE];
const PAGES: u64 = 3000;
/// Every page at a multiple of this number is present; the others are not.
const USED: usize = 59;
/// Memory that does not move, written before and after the moving pages.
const BESIDE: u64 = 0x10_0000_0000;

fn used() -> impl Iterator<Item = u64> {
    (0..PAGES).step_by(USED)
}

/// Stores round numbers: first to the fixed page, then to the moving pages, at either place, then to the second
/// fixed page.
fn write(cpu: &SoftCpu<'_>, is_over: &AtomicBool) {
    let mut round = 1;
    while !is_over.load(Ordering::Relaxed) {
        round += 1;
        cpu.store(BESIDE, round).unwrap();
        for page in used() {
            while !PLACES
                .iter()
                .any(|place| cpu.store(place + page * PAGE, round).is_ok())
            {}
        }
        cpu.store(BESIDE + PAGE, round).unwrap();
    }
}

/// Moves all of it back and forth; the old place may stay mapped for a while.
fn move_about(space: &SoftSpace, stays: bool, is_over: &AtomicBool) {
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) || number % 2 != 0 {
        let (from, to) = (PLACES[number % 2], PLACES[1 - number % 2]);
        let how = remap_flags::MAYMOVE | remap_flags::FIXED;
        let how = how | (u32::from(stays) * remap_flags::DONTUNMAP);
        let moved = space.mremap(from, PAGES * PAGE, PAGES * PAGE, how, to);
        assert_eq!(moved, Ok(to));
        if stays {
            space.munmap(from, PAGES * PAGE).unwrap();
        }
        number += 1;
    }
}

/// Checks a child: its stores are in order, and all pages are at one place.
fn check(child: &SoftCpu<'_>) {
    let words = |place: u64| used().map(move |page| child.load(place + page * PAGE).unwrap_or(0));
    let first = child.load(BESIDE).unwrap();
    let last = child.load(BESIDE + PAGE).unwrap();
    let is_there = PLACES.map(|place| words(place).next() != Some(0));
    assert!(is_there[0] != is_there[1], "at both places, or at none");
    let [here, elsewhere] = match is_there[0] {
        true => PLACES,
        false => [PLACES[1], PLACES[0]],
    };
    assert!(words(elsewhere).all(|word| word == 0), "a page was left");
    let mut before = first;
    for word in words(here).chain([last]) {
        assert!(word <= before, "a store without an earlier one");
        before = word;
    }
    assert!(last >= 1 && first <= last + 1, "a store is lost");
}

/// Sets the flag when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn beside_moves(policy: Policy, stays: bool) {
    let (memory, space) = space(3, 32, policy);
    let before = available(memory);
    let is_over = AtomicBool::new(false);
    SoftCpu::run(&space, 0, |cpu| {
        space.mmap(BESIDE, 2 * PAGE, RW, FIXED).unwrap();
        space.mmap(PLACES[0], PAGES * PAGE, RW, FIXED).unwrap();
        cpu.store(BESIDE, 1).unwrap();
        used().for_each(|page| cpu.store(PLACES[0] + page * PAGE, 1).unwrap());
        cpu.store(BESIDE + PAGE, 1).unwrap();
    });
    let with_pages = available(memory);
    std::thread::scope(|scope| {
        scope.spawn(|| SoftCpu::run(&space, 1, |_| move_about(&space, stays, &is_over)));
        if !stays {
            // With `MREMAP_DONTUNMAP` stores could reach both places.
            scope.spawn(|| SoftCpu::run(&space, 2, |cpu| write(cpu, &is_over)));
        }
        // Also if this thread panics.
        let _over = Over(&is_over);
        for _ in budget(4_000).rounds() {
            let child = SoftCpu::run(&space, 0, |_| space.fork().unwrap());
            SoftCpu::run(&child, 0, check);
            // The child is a normal address space.
            SoftCpu::run(&child, 0, |cpu| {
                let place = PLACES.iter().find(|place| cpu.store(**place, 9).is_ok());
                assert!(place.is_some(), "nothing is mapped");
            });
            SoftCpu::attend(memory, 0, || child.destroy());
        }
    });
    SoftCpu::run(&space, 0, check);
    SoftCpu::attend(memory, 0, || AddressSpace::verify_together(&[&space])).unwrap();
    assert!(available(memory) >= with_pages - 64, "frames were lost");
    assert!(memory.total(Counter::Fork) > 0);
    SoftCpu::attend(memory, 0, || space.destroy());
    let after = available(memory);
    assert!(after >= before, "frames were lost: {before} and {after}");
}

#[test]
fn children_have_what_moves_at_one_place() {
    for &policy in Policy::ALL {
        beside_moves(policy, false);
    }
}

#[test]
fn children_have_what_moves_where_it_goes() {
    for &policy in Policy::ALL {
        beside_moves(policy, true);
    }
}
