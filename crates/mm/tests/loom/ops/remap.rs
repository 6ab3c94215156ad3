//! Loom models of `mremap`.
//!
//! * A move to where something else was mapped, beside a late fault there. The fault has found the old
//!   mapping and no page. It claims the entry just before or just after the moved page arrives. The moved
//!   page must not be lost.
//! * A move within the range of a DONTNEED: the moved page must be discarded, too.
//!
//! At most three preemptions in the quick form.

use crate::model::{PAGE, Processor, RW, World, explore};
use faultless_mm::{Outcome, Policy, advice, remap_flags};
use faultless_sync::{Mutant, with_flaw};

const MOVE: u32 = remap_flags::MAYMOVE | remap_flags::FIXED;

fn moved_over(late: u64, access: fn(&Processor<'_>, u64) -> Result<u64, Outcome>) {
    explore(Some(3), move || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 2, RW);
        world.map(2, 2, RW);
        world.cpu().store(0, 4).unwrap();
        if late == 3 {
            world.cpu().store(PAGE, 5).unwrap();
        }
        let fault = world.run(1, move |cpu| access(cpu, late * PAGE));
        let moved = world.space().mremap(0, 2 * PAGE, 2 * PAGE, MOVE, 2 * PAGE);
        assert_eq!(moved, Ok(2 * PAGE));
        let seen = fault.join().unwrap();
        assert!(seen.is_ok(), "always mapped: {seen:?}");
        let left = world.cpu().load(2 * PAGE).unwrap();
        assert_eq!(left & 4, 4, "a page is lost that was moved");
        world.finish();
    });
}

#[test]
fn a_late_read_loses_nothing() {
    moved_over(2, |cpu, at| cpu.load_file(at));
}

#[test]
fn a_late_write_loses_nothing() {
    moved_over(2, |cpu, at| cpu.set_bits_file(at, 1).map(|()| 0));
}

#[test]
fn a_late_fault_on_the_page_behind_does_no_harm() {
    moved_over(3, |cpu, at| cpu.load_file(at));
}

/// A fault withdraws its claim and overwrites the moved page.
#[test]
#[should_panic]
fn broken_claims_not_awaited() {
    with_flaw(Mutant::ClaimsNotAwaited, || {
        moved_over(2, |cpu, at| cpu.load_file(at));
    });
}

/// The last page moves to the first, which DONTNEED's walk may have passed.
fn moved_ahead_of_a_discard() {
    explore(Some(2), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 2, RW);
        world.cpu().store(PAGE, 4).unwrap();
        let discarding = world.run(1, |cpu| {
            // The result depends on whether the range has a hole by then.
            let _ = cpu.space().madvise(0, 2 * PAGE, advice::DONTNEED);
        });
        let moved = world.space().mremap(PAGE, PAGE, PAGE, MOVE, 0);
        assert_eq!(moved, Ok(0));
        discarding.join().unwrap();
        let word = world.cpu().load(0).unwrap();
        assert_eq!(word, 0, "kept, though it was there all the while");
        world.finish();
    });
}

#[test]
fn what_moves_is_discarded_too() {
    moved_ahead_of_a_discard();
}

#[test]
#[should_panic(expected = "kept, though")]
fn broken_discard_beside_a_move() {
    with_flaw(Mutant::MovesNotCounted, moved_ahead_of_a_discard);
}
