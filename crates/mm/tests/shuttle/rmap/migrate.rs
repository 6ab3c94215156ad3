//! Migration of pages and evacuation of ranges, in random interleavings of whole operations.
//!
//! Two CPUs fault, store and pin meanwhile, and change a neighbouring mapping. No store is lost, no child
//! changes, and every frame is accounted for. No CPU runs out of memory because frames are isolated.

use crate::model::{PAGE, Processor, RW, Space, World, explore, fails, with_lazy_tlbs};
use faultless_mm::{Cpu, FrameSource, Mover, PROT_READ, Policy, Taken, advice};
use faultless_sync::{Mutant, with_flaw};

/// Pages on both sides of a table's end: one for each CPU, and one that is unmapped meanwhile.
const FIRST: u64 = 2;
const PAGES: u64 = 2;
const BESIDE: u64 = FIRST + PAGES;

/// Migrates the page at an address if that is possible now. Returns whether it was.
fn migrate(space: &Space, address: u64) -> bool {
    let memory = space.memory();
    let machine = memory.machine();
    let Some(from) = space.translate(address) else {
        return false;
    };
    let Ok(to) = machine.allocate(Cpu(0)) else {
        return false;
    };
    let moved = Mover::new(memory).is_ok_and(|mut mover| mover.migrate(from, to).is_ok());
    machine.free(Cpu(0), if moved { from } else { to });
    moved
}

/// Stores, faults anew and pins, in a page of this CPU alone; CPU 2 also unmaps the neighbouring page.
fn use_memory(cpu: &Processor<'_>) {
    let (space, machine) = (cpu.space(), cpu.space().memory().machine());
    let number = u64::from(cpu.number());
    let address = (FIRST + number - 1) * PAGE;
    for turn in 1..6u64 {
        cpu.store(address, turn).unwrap();
        assert_eq!(cpu.load(address), Ok(turn), "a store is lost");
        match turn {
            2 => {
                let page = space.pin(address, Taken::ToWrite).ok().unwrap();
                machine.step();
                machine.set_word(page.frame(), turn + 8);
                assert_eq!(cpu.load(address), Ok(turn + 8), "a pinned page is moved");
            }
            3 => {
                space.madvise(address, PAGE, advice::DONTNEED).unwrap();
                assert_eq!(cpu.load(address), Ok(0));
            }
            4 if number == 1 => {
                space.mprotect(address, PAGE, PROT_READ).unwrap();
                assert_eq!(cpu.load(address), Ok(turn), "a store is lost");
                space.mprotect(address, PAGE, RW).unwrap();
            }
            4 => space.munmap(BESIDE * PAGE, PAGE).unwrap(),
            _ => {}
        }
    }
}

/// Migrates pages of parent and child, one by one.
fn moves(policy: Policy) {
    let world = World::new(3, policy);
    world.map(FIRST, PAGES + 1, RW);
    world.cpu().store(BESIDE * PAGE, 1).unwrap();
    let threads = [1u32, 2].map(|number| world.run(number, use_memory));
    let mut child: Option<(Space, [u64; 2])> = None;
    let seen = |child: &Space| [0, 1].map(|page| world.word_of(child, FIRST + page));
    for _ in 0..2 {
        for page in FIRST..=BESIDE {
            migrate(world.space(), page * PAGE);
            if let Some((child, copies)) = &child {
                migrate(child, page * PAGE);
                assert_eq!(&seen(child), copies, "the child sees a store");
            }
        }
        if child.is_none() {
            let forked = world.space().fork().unwrap();
            let copies = seen(&forked);
            child = Some((forked, copies));
        }
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    world.finish_with(child.into_iter().map(|(child, _)| child).collect());
}

#[test]
fn moving_pages_loses_nothing() {
    explore(1000, moves);
}

#[test]
fn broken_moved_without_flush() {
    fails("rmap::migrate::broken_moved_without_flush", || {
        with_flaw(Mutant::MovedWithoutFlush, || explore(1000, moves));
    });
}

#[test]
fn broken_moved_though_used() {
    fails("rmap::migrate::broken_moved_though_used", || {
        with_flaw(Mutant::MovedThoughUsed, || explore(1000, moves));
    });
}

#[test]
fn broken_tlbs_that_flush_late() {
    fails("rmap::migrate::broken_tlbs_that_flush_late", || {
        with_lazy_tlbs(|| explore(1000, moves));
    });
}

/// Pages that a CPU touches in turn.
const MANY: u64 = 8;

/// Needs new frames repeatedly.
fn touch_many(cpu: &Processor<'_>) {
    let first = FIRST + (u64::from(cpu.number()) - 1) * MANY;
    for page in first..first + MANY {
        cpu.store(page * PAGE, page).unwrap();
    }
    for page in first..first + MANY {
        assert_eq!(cpu.load(page * PAGE), Ok(page), "a store is lost");
    }
}

/// Evacuates nearly all memory, and then half of it. The former isolates all free frames of its range before
/// it finds one outside.
fn vacates(policy: Policy) {
    let world = World::new(3, policy);
    world.map(FIRST, 2 * MANY, RW);
    let memory = world.space().memory();
    let all = memory.machine().extent();
    let threads = [1u32, 2].map(|number| world.run(number, touch_many));
    for _ in 0..3 {
        // NoMemory if another CPU needed memory, or there was no target frame.
        let _ = memory.evacuate(0..all.end - 6);
        let _ = memory.evacuate(0..all.end / 2);
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    world.finish();
}

#[test]
fn evacuation_takes_no_memory() {
    explore(500, vacates);
}

#[test]
#[should_panic(expected = "a model has memory enough")]
fn broken_kept_from_others() {
    with_flaw(Mutant::KeptFromOthers, || explore(500, vacates));
}
