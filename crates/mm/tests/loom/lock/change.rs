//! Loom models of writers beside the CPUs that use the changed pages.
//!
//! * Once one CPU has seen a change, no other CPU uses the old page (rule R2). The flush comes before a fault
//!   can see the change.
//! * A page that a fault puts into a live mapping stays there.
//!
//! At most two preemptions in the quick form with three CPUs, four with two.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::model::{FIXED, PAGE, Processor, RW, Space, World, explore, with_lazy_tlbs};
use faultless_mm::{PROT_READ, Policy, SegvCode, advice};
use faultless_sync::{Mutant, with_flaw};

/// The content of page 0 before the change.
const OLD: u64 = 7;

/// CPU 0 changes page 0, and CPUs 1 and 2 check whether they find the change. CPU 1 has the page in its TLB.
/// With `forked` a child shares the page, so that its frame is not freed.
fn what_one_sees(forked: bool, change: fn(&Space), finds: fn(&Processor<'_>) -> bool) {
    explore(Some(2), move || {
        let world = World::new(3, Policy::Speculative);
        world.map(0, 1, RW);
        let cached = Processor::new(world.space(), 1);
        cached.store(0, OLD).unwrap();
        let children = match forked {
            true => vec![world.space().fork().unwrap()],
            false => Vec::new(),
        };
        cached.load(0).unwrap();
        // From std: loom switches no threads at it.
        let seen = Arc::new(AtomicBool::new(false));
        let first = {
            let seen = seen.clone();
            world.run(2, move |cpu| seen.store(finds(cpu), Relaxed))
        };
        let second = world.run(1, move |cpu| {
            let late = seen.load(Relaxed);
            assert!(finds(cpu) || !late, "a change is undone");
        });
        change(world.space());
        first.join().unwrap();
        second.join().unwrap();
        assert!(finds(&world.cpu()), "nothing has changed");
        world.finish_with(children);
    });
}

fn is_zero(cpu: &Processor<'_>) -> bool {
    let word = cpu.load(0).unwrap();
    assert!([0, OLD].contains(&word));
    word == 0
}

fn discarded() {
    let discard: fn(&Space) = |space| space.madvise(0, PAGE, advice::DONTNEED).unwrap();
    what_one_sees(true, discard, is_zero);
}

#[test]
fn a_discarded_page_is_gone_for_all() {
    discarded();
}

#[test]
#[should_panic(expected = "a change is undone")]
fn broken_discard_without_a_flush() {
    with_lazy_tlbs(discarded);
}

fn replaced() {
    let map_over: fn(&Space) = |space| {
        space.mmap(0, PAGE, RW, FIXED).unwrap();
    };
    what_one_sees(false, map_over, is_zero);
}

#[test]
fn a_replaced_mapping_is_gone_for_all() {
    replaced();
}

#[test]
#[should_panic(expected = "a change is undone")]
fn broken_replacement_without_a_mark() {
    with_flaw(Mutant::ReplacedWithoutMark, replaced);
}

fn protected() {
    let protect: fn(&Space) = |space| space.mprotect(0, PAGE, PROT_READ).unwrap();
    what_one_sees(false, protect, |cpu| {
        cpu.store(0, OLD) == Err(SegvCode::AccErr)
    });
}

#[test]
fn a_lowered_protection_is_lowered_for_all() {
    protected();
}

/// The same in a range that becomes a shard first: a fault's earlier slot value, which covered the whole
/// range, is no longer valid.
#[test]
fn likewise_in_what_becomes_a_shard() {
    explore(Some(3), || {
        let world = World::with_frames(20, 2, 0, Policy::Speculative);
        world.space().set_brk(1 << 30);
        world.map(0, 4, RW);
        let fault = world.run(1, |cpu| {
            let stored = cpu.store(PAGE, OLD);
            assert!(matches!(stored, Ok(()) | Err(SegvCode::AccErr)));
        });
        assert!(world.space().shard_around(0));
        world.space().mprotect(PAGE, PAGE, PROT_READ).unwrap();
        assert_eq!(world.cpu().store(PAGE, 9), Err(SegvCode::AccErr));
        let before = world.cpu().load(PAGE).unwrap();
        fault.join().unwrap();
        assert_eq!(world.cpu().load(PAGE), Ok(before), "a store came too late");
        world.finish();
    });
}

#[test]
#[should_panic(expected = "a change is undone")]
fn broken_protection_without_a_flush() {
    with_lazy_tlbs(protected);
}

/// A writable mapping replaces a read-only one. A store that succeeds has found the new mapping.
fn stored_in_a_replacement(policy: Policy) {
    explore(Some(4), move || {
        let world = World::new(2, policy);
        world.map(0, 1, PROT_READ);
        assert_eq!(world.cpu().load(0), Ok(0));
        let writer = world.run(1, |cpu| cpu.store(0, 5));
        world.map(0, 1, RW);
        let stored = match writer.join().unwrap() {
            Ok(()) => 5,
            Err(code) => {
                assert_eq!(code, SegvCode::AccErr);
                0
            }
        };
        assert_eq!(world.cpu().load(0), Ok(stored), "a store is lost");
        world.finish();
    });
}

#[test]
fn a_store_in_a_replacement_stays() {
    Policy::ALL
        .iter()
        .for_each(|&policy| stored_in_a_replacement(policy));
}

#[test]
#[should_panic(expected = "a store is lost")]
fn broken_store_in_a_replacement_without_a_mark() {
    with_flaw(Mutant::ReplacedWithoutMark, || {
        stored_in_a_replacement(Policy::Speculative);
    });
}

/// A fault that was about to copy a shared page finds it discarded: its prepared frame is not zeroed.
fn discarded_before_a_copy() {
    explore(Some(4), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        world.cpu().store(0, 1).unwrap();
        let child = world.space().fork().unwrap();
        let writer = world.run(1, |cpu| cpu.set_bits(0, 2).unwrap());
        world.space().madvise(0, PAGE, advice::DONTNEED).unwrap();
        writer.join().unwrap();
        let word = world.cpu().load(0).unwrap();
        assert!([0, 2].contains(&word), "a new page is not zeroed: {word:x}");
        assert_eq!(world.word_of(&child, 0), 1);
        world.finish_with(vec![child]);
    });
}

#[test]
fn a_new_page_is_zeroed_whatever_was_tried() {
    discarded_before_a_copy();
}

#[test]
#[should_panic(expected = "a new page is not zeroed")]
fn broken_not_zeroed_again() {
    with_flaw(Mutant::NotZeroedAgain, discarded_before_a_copy);
}
