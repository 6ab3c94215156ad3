//! Fork against faults, writers and other forks, in random interleavings of whole operations. A child sees
//! the parent's memory at one moment; from then on neither sees the other's writes. (`loom/ops/fork.rs` shows
//! what a fork without its flush does.)

use std::sync::Arc;

use crate::model::{FIXED, PAGE, Processor, RW, Space, World, explore, explore_under};
use faultless_mm::{PROT_READ, Policy, SegvCode, advice, flags};
use faultless_sync::{Mutant, with_flaw};

fn leave(child: Arc<Space>) -> Space {
    Arc::into_inner(child).expect("all threads of the child are joined")
}

/// Two CPUs write their pages in order; a third writes what it has read from the first CPU's pages. The child
/// has a prefix of each CPU's writes, and no effect without its cause.
fn snapshot(policy: Policy) -> (Arc<World>, Space) {
    let world = World::new(4, policy);
    world.map(0, 16, RW);
    // Some pages are present, some are not, and some have no table.
    for page in [0, 2, 3, 8, 12] {
        world.cpu().store(page * PAGE, 0).unwrap();
    }
    const PAGES: [[u64; 4]; 2] = [[0, 1, 2, 3], [5, 12, 4, 13]];
    let writers = [1, 2].map(|number| {
        world.run(number, move |cpu| {
            for page in PAGES[number as usize - 1] {
                cpu.store(page * PAGE, 1).unwrap();
            }
        })
    });
    let witness = world.run(3, |cpu| {
        for page in 0..4 {
            let seen = cpu.load(page * PAGE).unwrap();
            cpu.store((8 + page) * PAGE, seen).unwrap();
        }
    });
    let child = world.space().fork().unwrap();
    writers.into_iter().for_each(|t| t.join().unwrap());
    witness.join().unwrap();
    for pages in PAGES {
        let words = pages.map(|page| world.word_of(&child, page));
        let in_order = words.is_sorted_by(|a, b| a >= b);
        assert!(in_order, "a write without an earlier one");
    }
    for page in 0..4 {
        let cause = world.word_of(&child, page);
        let effect = world.word_of(&child, 8 + page);
        assert!(effect <= cause, "an effect without its cause");
    }
    (world, child)
}

#[test]
fn the_child_is_a_snapshot() {
    explore(1500, |policy| {
        let (world, child) = snapshot(policy);
        for page in [0, 1, 2, 3, 4, 5, 12, 13] {
            assert_eq!(world.cpu().load(page * PAGE), Ok(1));
        }
        world.finish_with(vec![child]);
    });
}

#[test]
#[should_panic(expected = "without")]
fn broken_snapshot_without_marks() {
    with_flaw(Mutant::ForkWithoutMark, || {
        // The other policies do not show the flaw. Each schedule leaks its world, so there must be few.
        explore_under(&[Policy::Speculative], 1500, |policy| {
            drop(snapshot(policy));
        });
    });
}

/// The parent's other CPUs change mappings while two forks run. No page is lost, and all invariants hold.
fn beside_writers(policy: Policy) {
    let world = World::new(4, policy);
    world.map(0, 20, RW);
    (0..20).for_each(|page| world.cpu().store(page * PAGE, 100 + page).unwrap());
    let unmapper = world.run(1, |cpu| {
        cpu.space().munmap(2 * PAGE, 9 * PAGE).unwrap();
        assert_eq!(cpu.load(3 * PAGE), Err(SegvCode::MapErr));
        cpu.space().mmap(4 * PAGE, 2 * PAGE, RW, FIXED).unwrap();
        assert_eq!(cpu.load(4 * PAGE), Ok(0), "an old page");
        cpu.store(4 * PAGE, 7).unwrap();
    });
    let protector = world.run(2, |cpu| {
        let space = cpu.space();
        space.mprotect(12 * PAGE, 3 * PAGE, PROT_READ).unwrap();
        assert_eq!(cpu.store(12 * PAGE, 1), Err(SegvCode::AccErr));
        space.mprotect(12 * PAGE, 3 * PAGE, RW).unwrap();
        cpu.store(13 * PAGE, 7).unwrap();
        space
            .madvise(16 * PAGE, 2 * PAGE, advice::DONTNEED)
            .unwrap();
        assert_eq!(cpu.load(16 * PAGE), Ok(0), "what was discarded is back");
        cpu.store(16 * PAGE, 7).unwrap();
    });
    let forker = world.run(3, |cpu| {
        let child = cpu.space().fork().unwrap();
        cpu.store(19 * PAGE, 7).unwrap();
        child
    });
    let child = world.space().fork().unwrap();
    world.cpu().store(0, 7).unwrap();
    unmapper.join().unwrap();
    protector.join().unwrap();
    let other = forker.join().unwrap();
    for child in [&child, &other] {
        for page in 0..20 {
            let word = world.word_of(child, page);
            assert!([0, 7, 100 + page].contains(&word), "page {page}: {word}");
        }
    }
    for (page, word) in [(0, 7), (1, 101), (4, 7), (13, 7), (16, 7), (19, 7)] {
        assert_eq!(world.cpu().load(page * PAGE), Ok(word), "page {page}");
    }
    world.finish_with(vec![child, other]);
}

#[test]
fn fork_beside_writers() {
    explore(1000, beside_writers);
}

/// A stack grows while it is copied: the child's stack has its extent of one moment.
#[test]
fn fork_beside_a_stack_that_grows() {
    explore(2000, |policy| {
        let world = World::new(2, policy);
        let grows = FIXED | flags::GROWSDOWN;
        world.space().mmap(30 * PAGE, PAGE, RW, grows).unwrap();
        world.map(40, 1, RW);
        let grower = world.run(1, |cpu| {
            for step in 1..5u64 {
                cpu.store((30 - 5 * step) * PAGE, 1).unwrap();
                cpu.store(40 * PAGE, step).unwrap();
            }
        });
        let child = world.space().fork().unwrap();
        grower.join().unwrap();
        let steps = world.word_of(&child, 40);
        let written = (1..5).filter(|step| world.word_of(&child, 30 - 5 * step) == 1);
        let written = written.count() as u64;
        assert!(
            [steps, steps + 1].contains(&written),
            "{written} after {steps}"
        );
        let mut lowest = u64::MAX;
        child.maps(&mut |line| lowest = lowest.min(line.start / PAGE));
        assert!(
            lowest <= 30 - 5 * written,
            "the child has a page and no mapping"
        );
        world.finish_with(vec![child]);
    });
}

/// Parent and child run on two CPUs each. Neither sees the other's writes, even while one of them frees
/// pages.
fn apart() {
    explore(1000, |policy| {
        let world = World::with_others(2, 2, policy);
        world.map(0, 6, RW);
        (0..6).for_each(|page| world.cpu().store(page * PAGE, 10 + page).unwrap());
        let child = Arc::new(world.space().fork().unwrap());
        let writer = world.run(1, |cpu| {
            for page in [0, 1, 2, 3, 0, 5] {
                cpu.set_bits(page * PAGE, 0x100).unwrap();
            }
        });
        let reader = world.run_in(&child, 2, |cpu| {
            for page in [0, 1, 2, 0, 1, 2, 3, 4, 5] {
                let seen = cpu.load(page * PAGE);
                let allowed = [Ok(0), Ok(10 + page), Ok(0x1000 + 10 + page)];
                let gone = page < 3 && seen == Err(SegvCode::MapErr);
                assert!(gone || allowed.contains(&seen), "{seen:x?} is the parent's");
            }
        });
        let changer = world.run_in(&child, 3, |cpu| {
            cpu.space().munmap(0, 2 * PAGE).unwrap();
            cpu.space()
                .madvise(2 * PAGE, PAGE, advice::DONTNEED)
                .unwrap();
            cpu.set_bits(3 * PAGE, 0x1000).unwrap();
            cpu.space().mprotect(4 * PAGE, PAGE, PROT_READ).unwrap();
            let grandchild = cpu.space().fork().unwrap();
            cpu.set_bits(5 * PAGE, 0x1000).unwrap();
            grandchild
        });
        world.cpu().set_bits(4 * PAGE, 0x200).unwrap();
        let second = world.space().fork().unwrap();
        world.cpu().set_bits(4 * PAGE, 0x400).unwrap();
        writer.join().unwrap();
        reader.join().unwrap();
        let grandchild = changer.join().unwrap();
        for (page, bits) in [0x100, 0x100, 0x100, 0x100, 0x600, 0x100]
            .iter()
            .enumerate()
        {
            let page = page as u64;
            assert_eq!(world.cpu().load(page * PAGE), Ok((10 + page) | bits));
        }
        assert_eq!(world.word_of(&second, 4), 14 | 0x200);
        let words = [0, 0, 0, 13 | 0x1000, 14, 15];
        for (page, word) in (0..).zip(words) {
            assert_eq!(world.word_of(&grandchild, page), word, "page {page}");
        }
        world.finish_with(vec![leave(child), second, grandchild]);
    });
}

#[test]
fn parent_and_child_go_apart() {
    apart();
}

// The failure is a value that is read, or the machine's check of TLBs.
#[test]
#[should_panic]
fn broken_counts_that_end_before_the_flush() {
    with_flaw(Mutant::CountedTooShort, given_up);
}

/// A child unmaps pages that its parent writes.
fn given_up() {
    explore(1000, |policy| {
        let world = World::with_others(2, 2, policy);
        world.map(0, 4, RW);
        (0..4).for_each(|page| world.cpu().store(page * PAGE, 10 + page).unwrap());
        let child = Arc::new(world.space().fork().unwrap());
        let reader = world.run_in(&child, 2, |cpu| {
            for page in [0, 1, 2, 3, 0, 1, 2, 3] {
                let seen = cpu.load(page * PAGE);
                let allowed = [Ok(10 + page), Err(SegvCode::MapErr)];
                assert!(allowed.contains(&seen), "{seen:x?} is the parent's");
            }
        });
        let changer = world.run_in(&child, 3, |cpu| {
            cpu.space().munmap(0, 4 * PAGE).unwrap();
        });
        for page in 0..4 {
            world.cpu().set_bits(page * PAGE, 0x100).unwrap();
        }
        reader.join().unwrap();
        changer.join().unwrap();
        world.finish_with(vec![leave(child)]);
    });
}

#[test]
fn pages_given_up_are_not_seen_any_more() {
    given_up();
}

/// A child ends while its parent writes, forks again and unmaps.
#[test]
fn the_child_ends() {
    explore(2000, |policy| {
        let world = World::with_others(2, 1, policy);
        world.map(0, 6, RW);
        (0..6).for_each(|page| world.cpu().store(page * PAGE, 10 + page).unwrap());
        let child = world.space().fork().unwrap();
        let end = world.run(1, move |_| child.destroy());
        let next = world.space().fork().unwrap();
        for page in 0..4 {
            world.cpu().set_bits(page * PAGE, 0x100).unwrap();
        }
        world.space().munmap(3 * PAGE, 2 * PAGE).unwrap();
        end.join().unwrap();
        assert_eq!(world.cpu().load(PAGE), Ok(11 | 0x100));
        for page in 0..6 {
            assert_eq!(world.word_of(&next, page), 10 + page);
        }
        world.finish_with(vec![next]);
    });
}

/// Two CPUs of a space write its shared pages. Each write survives the replacement or the reuse of the page
/// by either CPU.
#[test]
fn two_writers_of_shared_pages() {
    explore(1500, |policy| {
        let world = World::new(3, policy);
        world.map(0, 2, RW);
        (0..2).for_each(|page| world.cpu().store(page * PAGE, 1).unwrap());
        let child = world.space().fork().unwrap();
        let writes = |cpu: &Processor<'_>| {
            for round in 0..6u64 {
                let bit = 1 << (8 * u64::from(cpu.number()) + round);
                cpu.set_bits(round % 2 * PAGE, bit).unwrap();
                let word = cpu.load(round % 2 * PAGE).unwrap();
                assert_eq!(word & bit, bit, "a write is not seen by its writer");
            }
        };
        let threads = [1, 2].map(|number| world.run(number, writes));
        child.destroy();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(world.cpu().load(0), Ok(1 | 0x15_1500));
        assert_eq!(world.cpu().load(PAGE), Ok(1 | 0x2a_2a00));
        world.finish();
    });
}
