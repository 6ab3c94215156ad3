//! Splits of huge pages beside what uses them meanwhile, and what takes them whole.
//!
//! * Of several operations that split a huge page, one does; the others go on in its table.
//! * A split takes nothing from a CPU that uses the page: no store is lost, and every CPU that may hold a page of it is
//!   flushed before that page is freed.
//! * A huge page that is zapped whole is in no TLB when its frames and its table are freed.
//! * What is zapped or discarded in parts leaves nothing.
//!
//! A huge page has two pages here: 0 and 1. At most three preemptions in the quick form.

use crate::model::{PAGE, RW, Space, World, explore, with_breaks, with_lazy_tlbs, with_marks};
use faultless_mm::{Access, Counter, Outcome, PROT_READ, Policy, SegvCode, advice};
use faultless_sync::{Mutant, with_flaw};

/// A huge page with the words 1 and 2, written by CPU 0.
fn written(cpus: u32) -> std::sync::Arc<World> {
    let world = World::huge(cpus, Policy::Speculative);
    world.map(0, 2, RW);
    world.cpu().store(0, 1).unwrap();
    world.cpu().store(PAGE, 2).unwrap();
    assert_eq!(world.space().memory().total(Counter::ThpFaultAlloc), 1);
    world
}

fn splits(world: &World) -> u64 {
    world.space().memory().total(Counter::ThpSplit)
}

/// Splits the huge page around `page`.
fn split(space: &Space, page: u64) {
    space.madvise(page * PAGE, PAGE, advice::COLD).unwrap();
}

/// CPU 1 loads and stores, and faults for nothing, while CPU 0 splits the page.
fn a_split_and_accesses() {
    explore(Some(3), || {
        let world = written(2);
        let thread = world.run(1, |cpu| {
            cpu.set_bits(PAGE, 8).unwrap();
            cpu.speculate(0);
            assert_eq!(cpu.load(0), Ok(1));
            assert_eq!(cpu.space().fault(0, Access::Write), Outcome::Resolved);
        });
        split(world.space(), 0);
        thread.join().unwrap();
        assert_eq!(world.cpu().load(PAGE), Ok(10), "a store is lost");
        assert_eq!(splits(&world), 1);
        assert_eq!(world.finish().pages, 2);
    });
}

#[test]
fn a_split_beside_accesses() {
    a_split_and_accesses();
}

/// Where a TLB must not hold a huge page and a page of it.
#[test]
fn a_split_beside_accesses_that_breaks_before_it_makes() {
    with_breaks(a_split_and_accesses);
}

#[test]
#[should_panic(expected = "a TLB holds a huge page and a page of it")]
fn broken_split_without_a_flush() {
    with_breaks(|| with_flaw(Mutant::SplitNotFlushed, a_split_and_accesses));
}

fn two_at_once() {
    explore(Some(3), || {
        let world = written(2);
        let other = world.run(1, |cpu| split(cpu.space(), 1));
        split(world.space(), 0);
        other.join().unwrap();
        assert_eq!(splits(&world), 1);
        assert_eq!(
            [0, 1].map(|page| world.cpu().load(page * PAGE)),
            [Ok(1), Ok(2)]
        );
        let census = world.finish();
        assert_eq!((census.pages, census.tables), (2, 2));
    });
}

#[test]
fn two_splits() {
    two_at_once();
    with_breaks(two_at_once);
}

/// CPU 1 splits the page while CPU 0 unmaps page 0.
fn a_split_beside_a_zap() {
    explore(Some(3), || {
        let world = written(2);
        let other = world.run(1, |cpu| split(cpu.space(), 1));
        world.space().munmap(0, PAGE).unwrap();
        other.join().unwrap();
        assert_eq!(world.cpu().load(PAGE), Ok(2));
        let census = world.finish();
        assert_eq!((census.pages, census.tables), (1, 2));
    });
}

#[test]
fn a_split_beside_a_zap_of_a_part() {
    a_split_beside_a_zap();
    with_breaks(a_split_beside_a_zap);
}

#[test]
#[should_panic(expected = "a huge page without a table")]
fn broken_deposit_taken_before_the_claim() {
    with_flaw(Mutant::DepositTakenBeforeClaim, a_split_beside_a_zap);
}

/// Two CPUs unmap one half each: nothing is left.
#[test]
fn two_zaps_of_parts() {
    explore(Some(3), || {
        let world = written(2);
        let other = world.run(1, |cpu| cpu.space().munmap(PAGE, PAGE).unwrap());
        world.space().munmap(0, PAGE).unwrap();
        other.join().unwrap();
        let census = world.finish();
        assert_eq!((census.pages, census.mapped), (0, 0));
        assert_eq!(census.tables, 1, "a table is left");
    });
}

/// CPU 1 loads page 1 while CPU 0 splits the page, and then discards page 1.
fn a_split_and_a_discard() {
    explore(Some(3), || {
        let world = written(2);
        let reader = world.run(1, |cpu| {
            assert!([Ok(2), Ok(0)].contains(&cpu.load(PAGE)));
        });
        world.space().madvise(PAGE, PAGE, advice::DONTNEED).unwrap();
        reader.join().unwrap();
        assert_eq!(world.cpu().load(PAGE), Ok(0));
        assert_eq!(world.cpu().load(0), Ok(1));
        world.finish();
    });
}

#[test]
fn a_discard_of_one_page_beside_a_load() {
    a_split_and_a_discard();
    with_marks(a_split_and_a_discard);
    with_breaks(a_split_and_a_discard);
}

#[test]
#[should_panic(expected = "a TLB holds a frame that is freed")]
fn broken_parts_as_read() {
    with_marks(|| with_flaw(Mutant::PartsAsRead, a_split_and_a_discard));
}

#[test]
#[should_panic(expected = "a TLB holds a frame that is freed")]
fn broken_discard_without_a_flush() {
    with_lazy_tlbs(a_split_and_a_discard);
}

/// CPU 1 stores to both pages while CPU 0 discards one.
#[test]
fn a_discard_of_one_page_beside_stores() {
    explore(Some(3), || {
        let world = written(2);
        let writer = world.run(1, |cpu| {
            cpu.set_bits(0, 4).unwrap();
            cpu.set_bits(PAGE, 4).unwrap();
        });
        world.space().madvise(0, PAGE, advice::DONTNEED).unwrap();
        writer.join().unwrap();
        let word = world.cpu().load(0).unwrap();
        assert!([0, 4].contains(&word), "{word}");
        assert_eq!(world.cpu().load(PAGE), Ok(6), "a store is lost");
        world.finish();
    });
}

/// CPU 1 accesses the page while CPU 0 unmaps it whole.
fn a_whole_zap() {
    explore(Some(3), || {
        let world = written(2);
        let other = world.run(1, |cpu| {
            let loaded = cpu.load(PAGE);
            assert!([Ok(2), Err(SegvCode::MapErr)].contains(&loaded));
            let stored = cpu.store(0, 5);
            assert!([Ok(()), Err(SegvCode::MapErr)].contains(&stored));
        });
        world.space().munmap(0, 2 * PAGE).unwrap();
        other.join().unwrap();
        assert_eq!(splits(&world), 0);
        let census = world.finish();
        assert_eq!((census.pages, census.tables), (0, 1));
    });
}

#[test]
fn a_zap_of_the_whole_page_beside_accesses() {
    a_whole_zap();
    with_marks(a_whole_zap);
}

#[test]
#[should_panic(expected = "a TLB holds a frame that is freed")]
fn broken_whole_zap_without_a_flush() {
    with_lazy_tlbs(a_whole_zap);
}

#[test]
#[should_panic(expected = "a TLB holds a frame that is freed")]
fn broken_load_of_a_huge_page_not_marked() {
    with_marks(|| with_flaw(Mutant::LoadNotMarked, a_whole_zap));
}

/// CPU 1 splits the page while CPU 0 unmaps it whole, and maps another there.
#[test]
fn a_zap_of_the_whole_page_beside_a_split() {
    explore(Some(3), || {
        let world = written(2);
        let other = world.run(1, |cpu| {
            // It may be unmapped.
            let _ = cpu.space().madvise(PAGE, PAGE, advice::COLD);
        });
        world.space().munmap(0, 2 * PAGE).unwrap();
        world.map(0, 2, RW);
        world.cpu().store(0, 3).unwrap();
        other.join().unwrap();
        assert_eq!(
            [0, 1].map(|page| world.cpu().load(page * PAGE)),
            [Ok(3), Ok(0)]
        );
        world.finish();
    });
}

/// CPU 1 loads page 1 of the huge zero page, and stores to it, while CPU 0 splits that.
#[test]
fn a_split_of_the_huge_zero_page() {
    explore(Some(3), || {
        let world = World::huge(2, Policy::Speculative);
        world.map(0, 2, RW);
        assert_eq!(world.cpu().load(0), Ok(0));
        let other = world.run(1, |cpu| {
            assert_eq!(cpu.load(PAGE), Ok(0));
            cpu.store(PAGE, 4).unwrap();
        });
        split(world.space(), 0);
        other.join().unwrap();
        assert_eq!(
            [0, 1].map(|page| world.cpu().load(page * PAGE)),
            [Ok(0), Ok(4)]
        );
        world.finish();
    });
}

/// CPU 1 takes the huge zero page in parts while CPU 0 splits it, or takes it whole: its table is used once.
#[test]
fn the_table_of_the_huge_zero_page() {
    let takes: [fn(&Space); 2] = [
        |space| split(space, 0),
        |space| space.madvise(0, 2 * PAGE, advice::DONTNEED).unwrap(),
    ];
    for take in takes {
        explore(Some(3), move || {
            let world = World::huge(2, Policy::Speculative);
            world.map(0, 2, RW);
            assert_eq!(world.cpu().load(0), Ok(0));
            let other = world.run(1, |cpu| {
                cpu.space().madvise(PAGE, PAGE, advice::DONTNEED).unwrap();
                assert_eq!(cpu.load(PAGE), Ok(0));
            });
            take(world.space());
            other.join().unwrap();
            world.finish();
        });
    }
}

/// CPU 1 splits the page, and CPU 0 makes it read-only and writable again, as a whole or in parts.
#[test]
fn a_split_beside_a_protection() {
    explore(Some(3), || {
        let world = written(2);
        let other = world.run(1, |cpu| split(cpu.space(), 1));
        for prot in [PROT_READ, RW] {
            world.space().mprotect(0, 2 * PAGE, prot).unwrap();
        }
        other.join().unwrap();
        assert_eq!(
            [0, 1].map(|page| world.cpu().load(page * PAGE)),
            [Ok(1), Ok(2)]
        );
        world.cpu().store(0, 3).unwrap();
        world.finish();
    });
}

/// CPU 1 stores while CPU 0 makes the page read-only, as a whole.
fn a_protection_beside_a_store() {
    explore(Some(3), || {
        let world = written(2);
        let writer = world.run(1, |cpu| {
            let stored = cpu.store(PAGE, 5);
            assert!([Ok(()), Err(SegvCode::AccErr)].contains(&stored));
        });
        world.space().mprotect(0, 2 * PAGE, PROT_READ).unwrap();
        let before = world.cpu().load(PAGE).unwrap();
        writer.join().unwrap();
        assert_eq!(world.cpu().load(PAGE), Ok(before), "a store after mprotect");
        world.finish();
    });
}

#[test]
fn a_protection_of_the_whole_page_beside_a_store() {
    a_protection_beside_a_store();
    with_marks(a_protection_beside_a_store);
}

/// CPU 1 stores to both pages while CPU 0 discards them as a whole.
fn a_whole_discard() {
    explore(Some(3), || {
        let world = written(2);
        let writer = world.run(1, |cpu| {
            cpu.set_bits(0, 4).unwrap();
            cpu.set_bits(PAGE, 4).unwrap();
        });
        world
            .space()
            .madvise(0, 2 * PAGE, advice::DONTNEED)
            .unwrap();
        writer.join().unwrap();
        let words = [0, 1].map(|page| world.cpu().load(page * PAGE).unwrap());
        assert!([[0, 0], [4, 4], [0, 4]].contains(&words), "{words:?}");
        assert_eq!(splits(&world), 0);
        world.finish();
    });
}

#[test]
fn a_discard_of_the_whole_page_beside_stores() {
    a_whole_discard();
    with_marks(a_whole_discard);
}

#[test]
#[should_panic(expected = "a TLB holds a frame that is freed")]
fn broken_whole_discard_without_a_flush() {
    with_lazy_tlbs(a_whole_discard);
}

/// CPU 1 unmaps page 1 while CPU 0 discards both pages.
#[test]
fn a_discard_of_the_whole_page_beside_an_unmap() {
    explore(Some(3), || {
        let world = written(2);
        let other = world.run(1, |cpu| cpu.space().munmap(PAGE, PAGE).unwrap());
        // Page 1 may be unmapped.
        let _ = world.space().madvise(0, 2 * PAGE, advice::DONTNEED);
        other.join().unwrap();
        assert_eq!(world.cpu().load(PAGE), Err(SegvCode::MapErr));
        world.finish();
    });
}
