//! A huge page that a fork has shared, by one entry in each space: splits, writes, exits and forks in several spaces at
//! once. No write reaches another space, no page is lost or freed twice, and the last space writes without a copy.
//!
//! A huge page has two pages here: 0 and 1. So there is room for the tables of two spaces.
//!
//! At most three preemptions in the quick form.

use std::sync::Arc;

use crate::model::{PAGE, Processor, RW, Space, World, explore};
use faultless_mm::{Counter, HugeMode, Policy, advice};
use faultless_sync::{Mutant, with_flaw};

/// A huge page with the words 1 and 2 that parent and child share. CPU 0 runs the parent, and CPU 1 may run the child.
fn family() -> (Arc<World>, Arc<Space>) {
    let world = World::with_others(1, 1, Policy::Speculative);
    world.space().memory().set_huge_mode(HugeMode::Always);
    world.map(0, 2, RW);
    world.cpu().store(0, 1).unwrap();
    world.cpu().store(PAGE, 2).unwrap();
    let child = world.space().fork().unwrap();
    assert_eq!(world.space().memory().total(Counter::ThpSplit), 0);
    (world, Arc::new(child))
}

fn words(world: &World) -> [u64; 2] {
    [0, 1].map(|page| world.cpu().load(page * PAGE).unwrap())
}

/// Parent and child write a page each.
fn both_write(page: u64) {
    explore(Some(3), move || {
        let (world, child) = family();
        let thread = world.run_in(&child, 1, move |cpu| {
            cpu.set_bits(page * PAGE, 8).unwrap();
            [0, 1].map(|page| cpu.load(page * PAGE).unwrap())
        });
        world.cpu().set_bits(0, 4).unwrap();
        assert_eq!(words(&world), [5, 2]);
        let expected = if page == 0 { [9, 2] } else { [1, 10] };
        assert_eq!(thread.join().unwrap(), expected);
        let child = Arc::into_inner(child).unwrap();
        let copies = world.space().memory().total(Counter::Copies);
        assert!(copies <= 2, "{copies} copies");
        world.finish_with(vec![child]);
    });
}

#[test]
fn both_write_the_same_page() {
    both_write(0);
}

#[test]
fn both_write_another_page() {
    both_write(1);
}

#[test]
#[should_panic]
fn broken_parts_counted_too_late() {
    with_flaw(Mutant::PartsCountedTooLate, || both_write(0));
}

/// The child does `work` on CPU 1 while the parent writes page 0.
fn a_write_beside(work: fn(&Processor<'_>)) {
    explore(Some(3), move || {
        let (world, child) = family();
        let thread = world.run_in(&child, 1, work);
        world.cpu().set_bits(0, 4).unwrap();
        thread.join().unwrap();
        assert_eq!(words(&world), [5, 2]);
        let child = Arc::into_inner(child).unwrap();
        world.finish_with(vec![child]);
    });
}

#[test]
fn a_write_beside_the_childs_reads() {
    a_write_beside(|cpu| assert_eq!([0, 1].map(|page| cpu.load(page * PAGE)), [Ok(1), Ok(2)]));
}

#[test]
fn a_write_beside_the_childs_split() {
    a_write_beside(|cpu| cpu.space().madvise(PAGE, PAGE, advice::COLD).unwrap());
}

#[test]
fn a_write_beside_the_childs_discard() {
    a_write_beside(|cpu| {
        cpu.space().madvise(0, 2 * PAGE, advice::DONTNEED).unwrap();
        assert_eq!(cpu.load(0), Ok(0));
    });
    a_write_beside(|cpu| cpu.space().madvise(0, PAGE, advice::DONTNEED).unwrap());
}

#[test]
fn a_write_beside_the_childs_unmap() {
    a_write_beside(|cpu| cpu.space().munmap(0, 2 * PAGE).unwrap());
    a_write_beside(|cpu| cpu.space().munmap(PAGE, PAGE).unwrap());
}

/// The child ends while the parent writes.
fn a_write_beside_an_exit() {
    explore(Some(3), || {
        let (world, child) = family();
        let thread = world.run(1, move |cpu| {
            let _ = cpu.number();
            Arc::into_inner(child).unwrap().destroy();
        });
        world.cpu().set_bits(0, 4).unwrap();
        thread.join().unwrap();
        assert_eq!(words(&world), [5, 2]);
        world.finish();
    });
}

#[test]
fn a_write_beside_the_childs_exit() {
    a_write_beside_an_exit();
}

#[test]
fn the_last_space_writes_without_a_copy() {
    explore(Some(2), || {
        let (world, child) = family();
        Arc::into_inner(child).unwrap().destroy();
        world.cpu().set_bits(0, 4).unwrap();
        assert_eq!(words(&world), [5, 2]);
        let memory = world.space().memory();
        let counts = [Counter::Copies, Counter::ThpSplit].map(|counter| memory.total(counter));
        assert_eq!(counts, [0, 0]);
        world.finish();
    });
}

/// The parent forks once more, for which there is no room, while the child splits its entry, or writes.
fn another_fork(work: fn(&Processor<'_>)) {
    explore(Some(2), move || {
        let (world, child) = family();
        let thread = world.run_in(&child, 1, work);
        let second = world.space().fork().unwrap();
        thread.join().unwrap();
        world.cpu().set_bits(PAGE, 4).unwrap();
        assert_eq!(words(&world), [1, 6]);
        assert_eq!([0, 1].map(|page| world.word_of(&second, page)), [1, 2]);
        let child = Arc::into_inner(child).unwrap();
        world.finish_with(vec![child, second]);
    });
}

#[test]
fn another_fork_beside_a_split() {
    another_fork(|cpu| cpu.space().madvise(PAGE, PAGE, advice::COLD).unwrap());
}

#[test]
fn another_fork_beside_a_write() {
    another_fork(|cpu| cpu.set_bits(0, 8).unwrap());
}

#[test]
fn another_fork_beside_a_discard() {
    another_fork(|cpu| cpu.space().madvise(0, 2 * PAGE, advice::DONTNEED).unwrap());
}

/// Two CPUs of the parent write while the child has the page, and then no more.
#[test]
fn two_writes_of_the_parent() {
    explore(Some(3), || {
        let world = World::huge(2, Policy::Speculative);
        world.map(0, 2, RW);
        world.cpu().store(0, 1).unwrap();
        let child = world.space().fork().unwrap();
        let thread = world.run(1, |cpu| cpu.set_bits(0, 2).unwrap());
        world.cpu().set_bits(0, 4).unwrap();
        thread.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(7), "a write is lost");
        assert_eq!(world.word_of(&child, 0), 1);
        world.finish_with(vec![child]);
    });
}

/// Two CPUs of the last space write: one takes the huge page over, and both write in place.
fn two_writes_of_the_last() {
    explore(Some(3), || {
        let world = World::huge(2, Policy::Speculative);
        world.map(0, 2, RW);
        world.cpu().store(0, 1).unwrap();
        world.space().fork().unwrap().destroy();
        let thread = world.run(1, |cpu| cpu.set_bits(PAGE, 2).unwrap());
        world.cpu().set_bits(0, 4).unwrap();
        thread.join().unwrap();
        assert_eq!(words(&world), [5, 2], "a write is lost");
        assert_eq!(world.space().memory().total(Counter::Copies), 0);
        world.finish();
    });
}

#[test]
fn two_writes_of_the_last_space() {
    two_writes_of_the_last();
}

/// CPU 1 writes a huge page that only its space maps any more, while CPU 0 forks.
fn reuse_against_fork() {
    explore(Some(3), || {
        let world = World::huge(2, Policy::Speculative);
        world.map(0, 2, RW);
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
    reuse_against_fork();
}

#[test]
#[should_panic]
fn broken_huge_sharing_not_checked() {
    with_flaw(Mutant::HugeTakenOverUnasked, || both_write(0));
}
