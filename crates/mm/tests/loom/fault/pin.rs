//! Loom models of pinned pages.
//!
//! * Beside fork: the child must not get the pinned page.
//! * Beside `munmap`: the last unpin must not free a frame that a TLB still maps.
//! * Beside reclaim of lazily freed pages.
//! * A read pin of a shared page.
//!
//! At most three preemptions.

use std::sync::Arc;

use crate::model::{Model, PAGE, Processor, RW, World, explore};
use faultless_mm::{PROT_READ, Policy, Taken, UserPage, advice};
use faultless_sync::atomic::{AtomicU32, Ordering};
use faultless_sync::{Mutant, with_flaw};

const OLD: u64 = 1;
const PINNED: u64 = 2;
const NEW: u64 = 4;

fn machine(world: &Arc<World>) -> &'static Model {
    world.space().memory().machine()
}

/// Pins page 0 and, for a write pin, writes it through the pin.
fn pin(cpu: &Processor<'_>, taken: Taken) -> UserPage<Model> {
    let page = cpu.space().pin(0, taken).unwrap();
    let machine = cpu.space().memory().machine();
    machine.step();
    if taken == Taken::ToWrite {
        let word = machine.word(page.frame());
        machine.set_word(page.frame(), word | PINNED);
    }
    page
}

/// Checks that a store by the program is visible through the pin.
fn is_the_programs(world: &Arc<World>, page: &UserPage<Model>) {
    world.cpu().store(0, NEW).unwrap();
    assert_eq!(
        machine(world).word(page.frame()),
        NEW,
        "the program has another page than the one that is pinned"
    );
}

/// CPU 1 pins a page while CPU 0 forks. With `read_only` the entry is the same after a fork.
fn beside_a_fork(policy: Policy, taken: Taken, read_only: bool) {
    explore(Some(3), move || {
        let world = World::new(2, policy);
        world.map(0, 1, RW);
        world.cpu().store(0, OLD).unwrap();
        if read_only {
            world.space().mprotect(0, PAGE, PROT_READ).unwrap();
        }
        let pinning = world.run(1, move |cpu| pin(cpu, taken));
        let child = world.space().fork().unwrap();
        let page = pinning.join().unwrap();
        if read_only {
            world.space().mprotect(0, PAGE, RW).unwrap();
        }
        let written = if taken == Taken::ToWrite { PINNED } else { 0 };
        assert_eq!(world.cpu().load(0), Ok(OLD | written));
        let copy = world.word_of(&child, 0);
        assert!(copy == OLD || copy == OLD | written, "the child has {copy}");
        is_the_programs(&world, &page);
        assert_eq!(world.word_of(&child, 0), copy, "the child sees a store");
        drop(page);
        world.finish_with(vec![child]);
    });
}

#[test]
fn a_pin_to_write_and_a_fork() {
    for &policy in Policy::ALL {
        beside_a_fork(policy, Taken::ToWrite, false);
    }
}

#[test]
fn a_pin_to_read_and_a_fork() {
    beside_a_fork(Policy::Speculative, Taken::ToReadForLong, false);
    beside_a_fork(Policy::Speculative, Taken::ToRead, true);
}

#[test]
#[should_panic(expected = "the program has another page")]
fn broken_pins_not_tested() {
    with_flaw(Mutant::PinsNotTested, || {
        beside_a_fork(Policy::Speculative, Taken::ToWrite, false);
    });
}

/// The pin falls between fork's look at the page and its count of the child's mapping.
#[test]
#[should_panic]
fn broken_link_not_validated() {
    with_flaw(Mutant::LinkNotValidated, || {
        beside_a_fork(Policy::Speculative, Taken::ToRead, true);
    });
}

/// The fork ended before the claim, and the entry has its old value again.
#[test]
#[should_panic]
fn broken_sharing_not_checked() {
    with_flaw(Mutant::SharingNotChecked, || {
        beside_a_fork(Policy::Speculative, Taken::ToRead, true);
    });
}

/// CPU 1 pins a page that is in its TLB and unpins it, while CPU 0 unmaps it.
fn beside_an_unmapping(policy: Policy) {
    explore(Some(3), move || {
        let world = World::new(2, policy);
        world.map(0, 1, RW);
        Processor::new(world.space(), 1).store(0, OLD).unwrap();
        let pinning = world.run(1, |cpu| {
            let page = cpu.space().pin(0, Taken::ToWrite).ok()?;
            let machine = cpu.space().memory().machine();
            machine.step();
            let word = machine.word(page.frame());
            drop(page);
            Some(word)
        });
        world.space().munmap(0, PAGE).unwrap();
        let seen = pinning.join().unwrap();
        assert!(
            matches!(seen, None | Some(OLD)),
            "a pinned page holds {seen:?}"
        );
        world.finish();
    });
}

#[test]
fn a_pin_and_an_unmapping() {
    Policy::ALL
        .iter()
        .for_each(|&policy| beside_an_unmapping(policy));
}

#[test]
#[should_panic(expected = "a TLB holds a frame that is freed")]
fn broken_given_up_before_the_flush() {
    with_flaw(Mutant::CountedTooShort, || {
        beside_an_unmapping(Policy::Speculative);
    });
}

/// DONTNEED does not mark the mapping as *changing*; it claims entries.
#[test]
fn a_pin_and_a_discarding() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        Processor::new(world.space(), 1).store(0, OLD).unwrap();
        let pinning = world.run(1, |cpu| {
            let page = cpu.space().pin(0, Taken::ToWrite).unwrap();
            let machine = cpu.space().memory().machine();
            machine.step();
            (machine.word(page.frame()), page)
        });
        world.space().madvise(0, PAGE, advice::DONTNEED).unwrap();
        let (word, page) = pinning.join().unwrap();
        assert!(word == OLD || word == 0, "a pinned page holds {word}");
        let is_mapped = world.space().translate(0) == Some(page.frame());
        assert!(is_mapped || word == OLD);
        drop(page);
        world.finish();
    });
}

/// CPU 1 writes a lazily freed page through a pin, while CPU 0 reclaims it.
fn beside_the_taking() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        world.cpu().store(0, OLD).unwrap();
        world.space().madvise(0, PAGE, advice::FREE).unwrap();
        let writer = world.run(1, |cpu| drop(pin(cpu, Taken::ToWrite)));
        machine(&world).step();
        world.space().take_lazyfree();
        writer.join().unwrap();
        let word = world.cpu().load(0).unwrap();
        assert_eq!(word & PINNED, PINNED, "a write through a pin is lost");
        world.finish();
    });
}

#[test]
fn a_pin_and_the_taking_of_what_was_let_go_of() {
    beside_the_taking();
}

/// CPU 1 writes a page through a pin while CPU 0 marks it lazily freed. A write after that mark is kept.
fn beside_the_letting_go() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        world.cpu().store(0, OLD).unwrap();
        let gone = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&gone);
        let writer = world.run(1, move |cpu| {
            let page = cpu.space().pin(0, Taken::ToWrite).unwrap();
            let is_later = seen.load(Ordering::Acquire) != 0;
            let machine = cpu.space().memory().machine();
            machine.set_word(page.frame(), PINNED);
            drop(page);
            is_later
        });
        world.space().madvise(0, PAGE, advice::FREE).unwrap();
        gone.store(1, Ordering::Release);
        let is_later = writer.join().unwrap();
        world.space().take_lazyfree();
        let word = world.cpu().load(0).unwrap();
        assert!(word == PINNED || !is_later, "a write through a pin is lost");
        world.finish();
    });
}

#[test]
fn a_pin_and_the_letting_go() {
    beside_the_letting_go();
}

#[test]
#[should_panic(expected = "a write through a pin is lost")]
fn broken_let_go_though_pinned() {
    with_flaw(Mutant::PinsNotTested, beside_the_letting_go);
}

#[test]
#[should_panic(expected = "a write through a pin is lost")]
fn broken_taken_though_written() {
    with_flaw(Mutant::TakenThoughWritten, beside_the_taking);
}

/// A read pin unshares a page that a child shares, while the parent stores to it.
#[test]
fn a_pin_to_read_a_shared_page() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        world.cpu().store(0, OLD).unwrap();
        let child = world.space().fork().unwrap();
        let pinning = world.run(1, |cpu| pin(cpu, Taken::ToRead));
        world.cpu().set_bits(0, NEW).unwrap();
        let page = pinning.join().unwrap();
        assert_eq!(machine(&world).word(page.frame()), OLD | NEW);
        is_the_programs(&world, &page);
        assert_eq!(world.word_of(&child, 0), OLD);
        drop(page);
        world.finish_with(vec![child]);
    });
}
