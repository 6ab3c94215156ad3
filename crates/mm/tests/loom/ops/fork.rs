//! Loom model (h): fork over two pages while another CPU writes one, then the other. The child is a snapshot:
//! it has the second write only if it has the first (rule R10). This holds whether the pages are in one
//! table, in two, or in none yet.
//!
//! Model (d), as far as reuse goes: CPU 1 writes a page that only its space maps, while CPU 0 forks. A page
//! that has become shared must not be written in place.
//!
//! At most four preemptions.

use std::sync::Arc;

use crate::model::{PAGE, Processor, RW, Space, World, explore, with_lazy_tlbs};
use faultless_mm::Policy;
use faultless_sync::{Mutant, with_flaw};

/// The state of a page before the fork, as seen by the writer's CPU.
#[derive(Clone, Copy)]
enum Before {
    /// Never touched.
    Untouched,
    /// Written by another CPU: in the table, not in the writer's TLB.
    Present,
    /// Written by the writer: in its TLB.
    Cached,
}

/// CPU 1 writes one page, then the other, while CPU 0 forks.
fn snapshot(bound: usize, policy: Policy, pages: [u64; 2], before: [Before; 2]) {
    explore(Some(bound), move || {
        let world = World::new(2, policy);
        let count = pages.into_iter().max().unwrap() + 1;
        world.map(0, count, RW);
        let writer = Processor::new(world.space(), 1);
        for (page, before) in pages.into_iter().zip(before) {
            match before {
                Before::Untouched => {}
                Before::Present => world.cpu().store(page * PAGE, 0).unwrap(),
                Before::Cached => writer.store(page * PAGE, 0).unwrap(),
            }
        }
        let thread = world.run(1, move |cpu| {
            for page in pages {
                cpu.store(page * PAGE, 1).unwrap();
            }
        });
        let child = world.space().fork().unwrap();
        thread.join().unwrap();
        let [first, second] = pages.map(|page| world.word_of(&child, page));
        assert!(
            second <= first,
            "the child has the second write and not the first"
        );
        for page in pages {
            assert_eq!(
                world.cpu().load(page * PAGE),
                Ok(1),
                "the parent's page {page}"
            );
            // The child does not see the parent's later stores.
            let kept = world.word_of(&child, page);
            world.cpu().store(page * PAGE, 2).unwrap();
            assert_eq!(world.word_of(&child, page), kept, "the child's page {page}");
        }
        world.finish_with(vec![child]);
    });
}

/// Two pages in one table.
const UP: [u64; 2] = [0, 1];
const DOWN: [u64; 2] = [1, 0];
/// Two pages, each in its own table.
const FAR: [u64; 2] = [0, 2];
const FAR_DOWN: [u64; 2] = [2, 0];

#[test]
fn pages_in_no_tlb() {
    snapshot(4, Policy::Speculative, UP, [Before::Present; 2]);
}

#[test]
fn pages_in_no_tlb_against_the_cursor() {
    snapshot(4, Policy::Speculative, DOWN, [Before::Present; 2]);
}

#[test]
fn pages_in_the_tlb() {
    snapshot(4, Policy::Speculative, UP, [Before::Cached; 2]);
}

/// The fork freezes the tables without the flush that makes TLBs notice.
#[test]
#[should_panic(expected = "the child")]
fn broken_fork_without_freeze() {
    with_flaw(Mutant::ForkWithoutFreeze, || {
        snapshot(
            4,
            Policy::Speculative,
            UP,
            [Before::Present, Before::Cached],
        );
    });
}

#[test]
fn the_second_in_the_tlb() {
    snapshot(
        4,
        Policy::Speculative,
        UP,
        [Before::Present, Before::Cached],
    );
}

#[test]
fn first_touches() {
    snapshot(4, Policy::Speculative, UP, [Before::Untouched; 2]);
}

#[test]
fn a_first_touch_before_a_write() {
    snapshot(
        4,
        Policy::Speculative,
        UP,
        [Before::Untouched, Before::Cached],
    );
}

#[test]
fn two_tables() {
    snapshot(
        3,
        Policy::Speculative,
        FAR,
        [Before::Present, Before::Cached],
    );
    snapshot(
        3,
        Policy::Speculative,
        FAR_DOWN,
        [Before::Present, Before::Cached],
    );
}

#[test]
fn a_first_touch_where_no_table_is() {
    snapshot(
        3,
        Policy::Speculative,
        FAR,
        [Before::Untouched, Before::Cached],
    );
    snapshot(
        3,
        Policy::Speculative,
        FAR_DOWN,
        [Before::Cached, Before::Untouched],
    );
}

#[test]
fn other_policies() {
    for policy in [Policy::Classic, Policy::VmaLock] {
        snapshot(3, policy, UP, [Before::Present, Before::Cached]);
    }
}

#[test]
#[should_panic(expected = "the second write and not the first")]
fn broken_without_a_mark() {
    with_flaw(Mutant::ForkWithoutMark, || {
        snapshot(
            4,
            Policy::Speculative,
            FAR,
            [Before::Untouched, Before::Cached],
        );
    });
}

#[test]
// The child has a write too many, or the second write without the first.
#[should_panic(expected = "the child")]
fn broken_without_a_flush() {
    with_lazy_tlbs(|| {
        snapshot(
            4,
            Policy::Speculative,
            UP,
            [Before::Present, Before::Cached],
        )
    });
}

/// CPU 1 writes a page that only its space maps any more, while CPU 0 forks.
fn reuse_against_fork(bound: usize) {
    explore(Some(bound), move || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        world.cpu().store(0, 5).unwrap();
        world.space().fork().unwrap().destroy();
        let thread = world.run(1, |cpu| cpu.store(0, 6).unwrap());
        let child = world.space().fork().unwrap();
        thread.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(6));
        assert!([5, 6].contains(&world.word_of(&child, 0)));
        world.finish_with(vec![child]);
    });
}

#[test]
fn a_reuse_and_a_fork() {
    reuse_against_fork(4);
}

#[test]
#[should_panic(expected = "a page is writable that may be shared")]
fn broken_sharing_not_checked() {
    with_flaw(Mutant::SharingNotChecked, || reuse_against_fork(4));
}

#[test]
#[should_panic(expected = "an exclusive frame is mapped elsewhere")]
fn broken_frozen_table_ignored() {
    with_flaw(Mutant::FrozenIgnored, || reuse_against_fork(4));
}

/// Two CPUs write a page that a child shares, or no longer shares. One of them replaces the page, and both
/// writes survive.
fn two_writes(bound: usize, leave: fn(Space)) {
    explore(Some(bound), move || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        world.cpu().store(0, 1).unwrap();
        let child = world.space().fork().unwrap();
        let thread = world.run(1, |cpu| cpu.set_bits(0, 2).unwrap());
        world.cpu().set_bits(0, 4).unwrap();
        thread.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(7), "a write is lost");
        assert_eq!(world.word_of(&child, 0), 1);
        leave(child);
        world.finish();
    });
}

#[test]
fn two_writes_to_a_shared_page() {
    two_writes(4, |child| {
        child.destroy();
    });
}

/// Parent and child write a page that they share. Each gets its own page; the later writer keeps the old
/// frame.
fn parent_and_child(bound: usize) {
    explore(Some(bound), move || {
        let world = World::with_others(1, 1, Policy::Speculative);
        world.map(0, 1, RW);
        world.cpu().store(0, 1).unwrap();
        let child = Arc::new(world.space().fork().unwrap());
        let thread = world.run_in(&child, 1, |cpu| {
            cpu.set_bits(0, 2).unwrap();
            assert_eq!(cpu.load(0), Ok(3));
        });
        world.cpu().set_bits(0, 4).unwrap();
        assert_eq!(world.cpu().load(0), Ok(5));
        thread.join().unwrap();
        let child = Arc::into_inner(child).unwrap();
        assert_eq!(world.finish_with(vec![child]).pages, 2);
    });
}

#[test]
fn both_write() {
    parent_and_child(4);
}

/// CPU 0 writes a page, to a new frame, beside loads by CPU 1. CPU 1's loads do not go back in time, and see
/// the write once it is done. The page is shared with a child, or is the zero page.
fn a_write_beside_a_reader(bound: usize, forked: bool) {
    explore(Some(bound), move || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        let mut children = Vec::new();
        if forked {
            world.cpu().store(0, 1).unwrap();
            children.push(world.space().fork().unwrap());
            // The broken variant must fail in the copy, not in the fork.
            let machine = world.space().memory().machine();
            machine.tlb(0).lock().unwrap().entries.clear();
        } else {
            assert_eq!(world.cpu().load(0), Ok(0));
        }
        let thread = world.run(1, |cpu| {
            let first = cpu.load(0).unwrap();
            assert!(first <= cpu.load(0).unwrap(), "a load goes back in time");
        });
        world.cpu().store(0, 2).unwrap();
        thread.join().unwrap();
        let reader = Processor::new(world.space(), 1);
        assert_eq!(reader.load(0), Ok(2), "a TLB still has the old page");
        for child in &children {
            assert_eq!(world.word_of(child, 0), 1);
        }
        world.finish_with(children);
    });
}

#[test]
fn a_copy_is_seen_by_a_reader_of_the_page() {
    a_write_beside_a_reader(4, true);
}

#[test]
fn a_first_write_is_seen_by_a_reader_of_zeroes() {
    a_write_beside_a_reader(4, false);
}

#[test]
#[should_panic(expected = "a TLB still has the old page")]
fn broken_copy_without_a_flush() {
    with_lazy_tlbs(|| a_write_beside_a_reader(4, true));
}

#[test]
#[should_panic(expected = "a TLB still has the old page")]
fn broken_first_write_without_a_flush() {
    with_lazy_tlbs(|| a_write_beside_a_reader(4, false));
}
