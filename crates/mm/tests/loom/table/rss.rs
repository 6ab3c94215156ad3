//! Loom models of RSS counts: one CPU adds pages while another removes them, and the sum is what is mapped.
//!
//! At most three preemptions in the quick form.

use crate::model::{PAGE, RW, Space, World, explore};
use faultless_mm::{Policy, Rss, advice};
use faultless_sync::{Mutant, with_flaw};

/// CPU 1 faults pages in while CPU 0 zaps them. `World::finish` verifies the counts.
fn beside_faults(policy: Policy, take: fn(&Space)) {
    explore(Some(3), move || {
        let world = World::new(2, policy);
        world.map(0, 2, RW);
        world.cpu().store(0, 1).unwrap();
        let other = world.run(1, |cpu| {
            // A store fails if the mapping has gone.
            let _ = cpu.store(PAGE, 2);
            let _ = cpu.store(0, 3);
        });
        take(world.space());
        other.join().unwrap();
        world.finish();
    });
}

fn discard(space: &Space) {
    space.madvise(0, 2 * PAGE, advice::DONTNEED).unwrap();
}

fn unmap(space: &Space) {
    space.munmap(0, 2 * PAGE).unwrap();
    let Rss {
        anonymous, tables, ..
    } = space.rss();
    assert!(anonymous <= 2 && tables <= 3, "{anonymous} {tables}");
}

#[test]
fn discarded_beside_faults() {
    let all = Policy::ALL.iter();
    all.for_each(|&policy| beside_faults(policy, discard));
}

#[test]
fn unmapped_beside_faults() {
    let all = Policy::ALL.iter();
    all.for_each(|&policy| beside_faults(policy, unmap));
}

#[test]
#[should_panic(expected = "was not counted right")]
fn broken_gone_not_counted() {
    with_flaw(Mutant::GoneNotCounted, || {
        beside_faults(Policy::Speculative, discard);
    });
}
