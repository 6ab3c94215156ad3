//! Faults on huge pages: a span of pages is validated, not one (rule R1), and nothing else has installed a page or a
//! table there.
//!
//! * A writer that changes *another* page of the span leaves no huge page behind there.
//! * Of two faults on the span, one maps the page, or a table; no store is lost.
//! * A store to the huge zero page is seen by all CPUs that had it in their TLBs.
//! * A fork is a snapshot (rule R10), whether pages of the span are mapped before, or meanwhile.
//!
//! A huge page has two pages here: 0 and 1, or 2 and 3. At most three preemptions in the quick form, four where one CPU
//! faults.

use std::sync::Arc;

use crate::model::{FIXED, PAGE, Processor, RW, Space, World, explore, with_lazy_tlbs, with_marks};
use faultless_mm::{Access, Counter, Outcome, PROT_READ, Policy, SegvCode, advice};
use faultless_sync::{Mutant, with_flaw};

const MAP_ERR: Outcome = Outcome::Segv(SegvCode::MapErr);

/// The huge pages that faults have mapped.
fn huge_pages(world: &World) -> u64 {
    world.space().memory().total(Counter::ThpFaultAlloc)
}

/// CPU 1 writes page 0, of which the span has no table, while CPU 0 changes page 1.
fn beside_a_change(policy: Policy, writer: fn(&Space)) {
    explore(Some(4), move || {
        let world = World::huge(2, policy);
        world.map(0, 2, RW);
        let fault = world.run(1, |cpu| cpu.space().fault(0, Access::Write));
        writer(world.space());
        assert_eq!(fault.join().unwrap(), Outcome::Resolved);
        assert!(huge_pages(&world) <= 1);
        let census = world.finish();
        assert!(census.pages >= 1, "the page is lost");
    });
}

fn unmap_the_other(space: &Space) {
    space.munmap(PAGE, PAGE).unwrap();
}

fn protect_the_other(space: &Space) {
    space.mprotect(PAGE, PAGE, PROT_READ).unwrap();
}

fn map_over_the_other(space: &Space) {
    space.mmap(PAGE, PAGE, PROT_READ, FIXED).unwrap();
}

#[test]
fn a_fault_beside_an_unmap_of_the_other_half() {
    let all = Policy::ALL.iter();
    all.for_each(|&policy| beside_a_change(policy, unmap_the_other));
}

#[test]
fn a_fault_beside_a_protection_of_the_other_half() {
    let all = Policy::ALL.iter();
    all.for_each(|&policy| beside_a_change(policy, protect_the_other));
}

#[test]
fn a_fault_beside_a_replacement_of_the_other_half() {
    let all = Policy::ALL.iter();
    all.for_each(|&policy| beside_a_change(policy, map_over_the_other));
}

#[test]
#[should_panic(expected = "outside any live mapping")]
fn broken_span_not_validated() {
    with_flaw(Mutant::SpanNotValidated, || {
        beside_a_change(Policy::Speculative, unmap_the_other)
    });
}

#[test]
#[should_panic(expected = "allows more than its mapping")]
fn broken_span_not_validated_by_mprotect() {
    with_flaw(Mutant::SpanNotValidated, || {
        beside_a_change(Policy::Speculative, protect_the_other)
    });
}

#[test]
#[should_panic(expected = "outside any live mapping")]
fn broken_huge_claim_without_a_fence() {
    with_flaw(Mutant::ClaimWithoutFence, || {
        beside_a_change(Policy::Speculative, unmap_the_other)
    });
}

#[test]
#[should_panic(expected = "outside any live mapping")]
fn broken_writer_without_a_fence() {
    with_flaw(Mutant::ValidationWithoutFence, || {
        beside_a_change(Policy::Speculative, unmap_the_other)
    });
}

/// CPU 1 stores to page 0 and CPU 0 to `other`, beside each other. `before` is what CPU 0 does first.
fn two_stores(before: fn(&Processor<'_>), other: u64) {
    explore(Some(3), move || {
        let world = World::huge(2, Policy::Speculative);
        world.map(0, 2, RW);
        before(&world.cpu());
        let thread = world.run(1, |cpu| cpu.set_bits(0, 2).unwrap());
        world.cpu().set_bits(other * PAGE, 4).unwrap();
        thread.join().unwrap();
        let expected = if other == 0 { [6, 0] } else { [2, 4] };
        for (page, word) in expected.into_iter().enumerate() {
            let at = page as u64 * PAGE;
            assert_eq!(world.cpu().load(at), Ok(word), "a store is lost");
            let reader = Processor::new(world.space(), 1);
            assert_eq!(reader.load(at), Ok(word), "a TLB still has the old page");
        }
        assert_eq!(huge_pages(&world), 1);
        assert_eq!(world.finish().pages, 2);
    });
}

#[test]
fn two_first_stores() {
    two_stores(|_| {}, 0);
    two_stores(|_| {}, 1);
}

/// The huge zero page, in the TLBs of both CPUs.
fn read_by_both(cpu: &Processor<'_>) {
    assert_eq!(cpu.load(0), Ok(0));
    assert_eq!(Processor::new(cpu.space(), 1).load(PAGE), Ok(0));
}

#[test]
fn two_stores_to_the_huge_zero_page() {
    two_stores(read_by_both, 0);
    two_stores(read_by_both, 1);
}

/// CPU 0 stores to page 0 of the huge zero page beside loads of CPU 1, which do not go back in time.
fn a_store_beside_a_reader() {
    explore(Some(4), || {
        let world = World::huge(2, Policy::Speculative);
        world.map(0, 2, RW);
        assert_eq!(world.cpu().load(0), Ok(0));
        let thread = world.run(1, |cpu| {
            let first = cpu.load(0).unwrap();
            assert!(first <= cpu.load(0).unwrap(), "a load goes back in time");
        });
        world.cpu().store(0, 2).unwrap();
        thread.join().unwrap();
        let reader = Processor::new(world.space(), 1);
        assert_eq!(reader.load(0), Ok(2), "a TLB still has the old page");
        world.finish();
    });
}

#[test]
fn a_store_is_seen_by_a_reader_of_the_huge_zero_page() {
    a_store_beside_a_reader();
    with_marks(a_store_beside_a_reader);
}

#[test]
#[should_panic(expected = "a TLB still has the old page")]
fn broken_huge_zero_page_not_flushed() {
    with_flaw(Mutant::HugeZeroNotFlushed, a_store_beside_a_reader);
}

#[test]
#[should_panic(expected = "a TLB still has the old page")]
fn broken_owner_of_the_huge_zero_page_not_marked() {
    with_marks(|| with_flaw(Mutant::LoadNotMarked, a_store_beside_a_reader));
}

/// CPU 1 stores to page 0 of the huge zero page while CPU 0 changes page 1, which changes the entry, too.
fn a_zero_page_beside_a_change(writer: fn(&Space)) {
    explore(Some(3), move || {
        let world = World::huge(2, Policy::Speculative);
        world.map(0, 2, RW);
        assert_eq!(world.cpu().load(0), Ok(0));
        let thread = world.run(1, |cpu| cpu.store(0, 7).unwrap());
        writer(world.space());
        thread.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(7), "a store is lost");
        world.finish();
    });
}

#[test]
fn a_store_to_the_huge_zero_page_beside_a_change() {
    a_zero_page_beside_a_change(unmap_the_other);
    a_zero_page_beside_a_change(protect_the_other);
    a_zero_page_beside_a_change(|space| space.madvise(PAGE, PAGE, advice::DONTNEED).unwrap());
}

/// CPU 1 stores to page 0 while CPU 0 reads page 1, for which it installs a table.
fn beside_a_table() {
    explore(Some(4), || {
        let world = World::huge(2, Policy::Speculative);
        world.space().memory().set_huge_zero_page(false);
        world.map(0, 2, RW);
        let thread = world.run(1, |cpu| cpu.store(0, 3).unwrap());
        assert_eq!(world.cpu().load(PAGE), Ok(0));
        thread.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(3), "a store is lost");
        world.finish();
    });
}

#[test]
fn a_fault_beside_the_installation_of_a_table() {
    beside_a_table();
}

/// The state of a page before a fork.
#[derive(Clone, Copy)]
enum Before {
    /// Never touched.
    Untouched,
    /// Written by another CPU: in no TLB of the writer.
    Present,
    /// Written by the writer: in its TLB.
    Written,
    /// The huge zero page, in the writer's TLB.
    Read,
}

/// CPU 1 writes one page, then the other, while CPU 0 forks.
fn snapshot(bound: usize, pages: [u64; 2], before: [Before; 2]) {
    explore(Some(bound), move || {
        let world = World::huge(2, Policy::Speculative);
        let count = pages.into_iter().max().unwrap() + 1;
        world.map(0, count.next_multiple_of(2), RW);
        let writer = Processor::new(world.space(), 1);
        for (page, before) in pages.into_iter().zip(before) {
            match before {
                Before::Untouched => {}
                Before::Present => world.cpu().store(page * PAGE, 0).unwrap(),
                Before::Written => writer.store(page * PAGE, 0).unwrap(),
                Before::Read => assert_eq!(writer.load(page * PAGE), Ok(0)),
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
            let kept = world.word_of(&child, page);
            world.cpu().store(page * PAGE, 2).unwrap();
            assert_eq!(world.word_of(&child, page), kept, "the child's page {page}");
        }
        world.finish_with(vec![child]);
    });
}

/// Two pages of one huge page, and of two.
const NEAR: [u64; 2] = [0, 1];
const FAR: [u64; 2] = [0, 2];

#[test]
fn a_fork_beside_first_touches() {
    snapshot(3, NEAR, [Before::Untouched; 2]);
    snapshot(3, FAR, [Before::Untouched; 2]);
}

#[test]
fn a_fork_beside_stores() {
    snapshot(3, NEAR, [Before::Written; 2]);
    snapshot(3, FAR, [Before::Written; 2]);
    snapshot(3, FAR, [Before::Present, Before::Written]);
    with_marks(|| snapshot(3, NEAR, [Before::Present, Before::Untouched]));
    with_marks(|| snapshot(3, FAR, [Before::Present, Before::Written]));
}

#[test]
fn a_fork_beside_stores_to_the_huge_zero_page() {
    snapshot(3, NEAR, [Before::Read; 2]);
    snapshot(3, FAR, [Before::Read, Before::Written]);
}

#[test]
fn a_fork_beside_a_first_touch_and_a_store() {
    snapshot(3, FAR, [Before::Untouched, Before::Written]);
    snapshot(3, FAR, [Before::Written, Before::Untouched]);
}

/// CPU 1 stores to a page that CPU 0 has mapped, twice, while CPU 0 forks: what the child has stays.
fn two_stores_beside_a_fork() {
    explore(Some(3), || {
        let world = World::huge(2, Policy::Speculative);
        world.map(0, 2, RW);
        world.cpu().store(0, 0).unwrap();
        let thread = world.run(1, |cpu| {
            cpu.store(0, 1).unwrap();
            cpu.store(0, 2).unwrap();
        });
        let child = world.space().fork().unwrap();
        let kept = world.word_of(&child, 0);
        thread.join().unwrap();
        assert_eq!(world.word_of(&child, 0), kept, "the child's page");
        assert_eq!(world.cpu().load(0), Ok(2));
        world.finish_with(vec![child]);
    });
}

#[test]
fn a_fork_beside_two_stores() {
    two_stores_beside_a_fork();
    with_marks(two_stores_beside_a_fork);
}

#[test]
#[should_panic(expected = "the child")]
fn broken_fork_without_freeze() {
    with_flaw(Mutant::ForkWithoutFreeze, || {
        snapshot(3, FAR, [Before::Present, Before::Written]);
    });
}

#[test]
#[should_panic(expected = "the child")]
fn broken_fork_without_a_flush() {
    with_lazy_tlbs(|| snapshot(3, FAR, [Before::Present, Before::Written]));
}

#[test]
#[should_panic(expected = "the second write and not the first")]
fn broken_fork_without_a_mark() {
    with_flaw(Mutant::ForkWithoutMark, || {
        snapshot(3, FAR, [Before::Untouched, Before::Written]);
    });
}

/// Parent and child write a page of a huge page that the fork has split.
#[test]
fn both_write() {
    explore(Some(3), || {
        let world = World::with_others(1, 1, Policy::Speculative);
        world
            .space()
            .memory()
            .set_huge_mode(faultless_mm::HugeMode::Always);
        world.map(0, 2, RW);
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
        world.finish_with(vec![child]);
    });
}

/// CPU 1 writes page 0 while CPU 0 unmaps the whole span.
#[test]
fn a_fault_beside_an_unmap_of_the_span() {
    explore(Some(4), || {
        let world = World::huge(2, Policy::Speculative);
        world.map(0, 2, RW);
        let fault = world.run(1, |cpu| cpu.space().fault(0, Access::Write));
        world.space().munmap(0, 2 * PAGE).unwrap();
        let outcome = fault.join().unwrap();
        assert!([Outcome::Resolved, MAP_ERR].contains(&outcome));
        assert_eq!(world.finish().pages, 0);
    });
}
