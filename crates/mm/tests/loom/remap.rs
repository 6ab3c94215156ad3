//! Loom model of a move to where something else was mapped, beside a fault there that is
//! late: it has found the old mapping and no page, and claims the entry when the page that
//! is moved is about to come, or has come. The page must not be lost.
//!
//! At most three preemptions in the quick form.

use crate::model::{PAGE, Processor, RW, World, explore};
use faultless_mm::{Outcome, Policy, remap_flags};
use faultless_sync::{Flaw, with_flaw};

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

/// The claim of a fault that withdraws writes over the page that has come.
#[test]
#[should_panic]
fn broken_claims_not_awaited() {
    with_flaw(Flaw::ClaimsNotAwaited, || {
        moved_over(2, |cpu, at| cpu.load_file(at));
    });
}
