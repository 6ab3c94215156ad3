//! Pins in random interleavings of whole operations.
//!
//! Two CPUs each pin a page and use it through the pin and through the mapping, beside forks, discards and
//! unmaps. The pin and the program see each other's stores; a child sees no later store of either.

use std::sync::Arc;

use crate::model::{PAGE, RW, Space, World, explore, with_lazy_tlbs};
use faultless_mm::{Policy, Taken, advice};
use faultless_sync::{Mutant, with_flaw};

/// Pages on both sides of a table's end: one for each CPU, and one that is mapped and unmapped.
const FIRST: u64 = 2;
const PAGES: u64 = 2;
const BESIDE: u64 = FIRST + PAGES;

/// The words of a CPU's page: stored by the program, and written through the pin.
fn words(number: u32, turn: u64) -> [u64; 2] {
    let base = u64::from(number) << 32 | turn << 8;
    [base | 1, base | 2]
}

fn pins(policy: Policy) {
    let world = World::new(3, policy);
    world.map(FIRST, PAGES + 1, RW);
    let threads = [1u32, 2].map(|number| {
        world.run(number, move |cpu| {
            let (space, machine) = (cpu.space(), cpu.space().memory().machine());
            let address = (FIRST + u64::from(number) - 1) * PAGE;
            for turn in 1..5u64 {
                let [stored, written] = words(number, turn);
                let page = space.pin(address, Taken::ToWrite).ok().unwrap();
                // A second pin gets the same page.
                let again = space.pin(address, Taken::ToRead).ok().unwrap();
                assert_eq!(page.frame(), again.frame());
                drop(again);
                machine.step();
                machine.set_word(page.frame(), written);
                assert_eq!(cpu.load(address), Ok(written), "what a pin writes is lost");
                cpu.store(address, stored).unwrap();
                machine.step();
                assert_eq!(
                    machine.word(page.frame()),
                    stored,
                    "the program has another page than the one that is pinned"
                );
                if turn == 2 {
                    // A pinned page never counts as clean.
                    space.madvise(address, PAGE, advice::FREE).unwrap();
                    space.take_lazyfree();
                    assert_eq!(machine.word(page.frame()), stored);
                }
                drop(page);
                // The page may be gone by now.
                if let Ok(beside) = space.pin(BESIDE * PAGE, Taken::ToReadForLong) {
                    machine.step();
                    let word = machine.word(beside.frame());
                    assert!(word == 0 || word == BESIDE, "a frame is freed under a pin");
                }
                let left = cpu.load(address).unwrap();
                assert!(left == stored || turn == 2 && left == 0, "a store is lost");
            }
        })
    });
    let mut children: Vec<Space> = Vec::new();
    for round in 0..3 {
        world.cpu().store(BESIDE * PAGE, BESIDE).unwrap();
        let child = world.space().fork().unwrap();
        let seen = |child: &Space| [0, 1].map(|page| world.word_of(child, FIRST + page));
        let copies = seen(&child);
        match round {
            0 => world.space().madvise(BESIDE * PAGE, PAGE, advice::DONTNEED),
            1 => world.space().munmap(BESIDE * PAGE, PAGE),
            _ => Ok(()),
        }
        .unwrap();
        if round == 1 {
            world.map(BESIDE, 1, RW);
        }
        assert_eq!(seen(&child), copies, "the child sees a store");
        if round == 1 {
            child.destroy();
        } else {
            children.push(child);
        }
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    Arc::clone(&world)
        .space()
        .munmap(FIRST * PAGE, PAGE)
        .unwrap();
    world.finish_with(children);
}

#[test]
fn a_pin_and_its_program_see_each_other() {
    explore(1000, pins);
}

#[test]
#[should_panic]
fn broken_pins_not_tested() {
    with_flaw(Mutant::PinsNotTested, || explore(1000, pins));
}

#[test]
#[should_panic]
fn broken_tlbs_that_flush_late() {
    with_lazy_tlbs(|| explore(1000, pins));
}
