//! `mlock` beside stores, `munmap`, `mprotect` and `fork`, and limits beside a growing stack, in random
//! interleavings of whole operations.
//!
//! Populating faults like any access, so no store is lost, and no other operation waits for it. The counts of
//! mapped and locked pages are right at the end (`World::finish` counts again), and no limit is exceeded.

use crate::model::{FIXED, PAGE, Processor, RW, World, explore};
use faultless_mm::{Errno, Limits, PROT_READ, SegvCode, advice, flags, lock_flags};

/// Sets a bit for each round in each of `pages`, which are always mapped and writable.
fn store_bits(cpu: &Processor<'_>, pages: &[u64]) {
    for round in 0..4 {
        for &page in pages {
            let bit = 1 << (8 * cpu.number() + round);
            cpu.set_bits(page * PAGE, bit).expect("always mapped");
        }
    }
}

fn bits(number: u32) -> u64 {
    0b1111 << (8 * number)
}

/// Locks and unlocks repeatedly; a hole is the only error.
fn lock_and_unlock(cpu: &Processor<'_>, pages: u64) {
    for flags in [0, lock_flags::ONFAULT, 0] {
        let locked = cpu.space().mlock(0, pages * PAGE, flags);
        assert!(matches!(locked, Ok(()) | Err(Errno::ENOMEM)), "{locked:?}");
        let unlocked = cpu.space().munlock(PAGE, PAGE);
        assert!(matches!(unlocked, Ok(()) | Err(Errno::ENOMEM)));
    }
}

#[test]
fn locking_beside_other_writers() {
    explore(1500, |policy| {
        let world = World::new(4, policy);
        world.map(0, 6, RW);
        let locker = world.run(1, |cpu| lock_and_unlock(cpu, 6));
        let replacer = world.run(2, |cpu| {
            cpu.space().munmap(2 * PAGE, 2 * PAGE).unwrap();
            assert_eq!(cpu.load(2 * PAGE), Err(SegvCode::MapErr));
            cpu.space().mmap(2 * PAGE, 2 * PAGE, RW, FIXED).unwrap();
            assert_eq!(cpu.load(3 * PAGE), Ok(0));
        });
        let storer = world.run(3, |cpu| store_bits(cpu, &[0, 1]));
        world.space().mprotect(4 * PAGE, PAGE, PROT_READ).unwrap();
        let discarded = world.space().madvise(5 * PAGE, PAGE, advice::DONTNEED);
        assert!(matches!(discarded, Ok(()) | Err(Errno::EINVAL)));
        world.space().mprotect(4 * PAGE, PAGE, RW).unwrap();
        locker.join().unwrap();
        replacer.join().unwrap();
        storer.join().unwrap();
        for page in [0, 1] {
            assert_eq!(world.cpu().load(page * PAGE), Ok(bits(3)));
        }
        world.space().mlock(0, 6 * PAGE, 0).unwrap();
        let totals = world.space().totals();
        assert_eq!((totals.locked, totals.mappings), (6, 1));
        let census = world.finish();
        assert_eq!((census.pages, census.mapped), (6, 6));
    });
}

/// Each side has the stores from before the fork; the child has no locks.
#[test]
fn locking_beside_a_fork() {
    explore(1500, |policy| {
        let world = World::with_others(3, 1, policy);
        world.map(0, 4, RW);
        world.cpu().store(0, 1 << 40).unwrap();
        let locker = world.run(1, |cpu| {
            lock_and_unlock(cpu, 4);
            cpu.space().mlock(0, 4 * PAGE, 0).unwrap();
        });
        let storer = world.run(2, |cpu| store_bits(cpu, &[0, 2]));
        let child = world.space().fork().unwrap();
        locker.join().unwrap();
        storer.join().unwrap();
        // No operation has zapped a page.
        for page in 0..4 {
            assert!(world.space().translate(page * PAGE).is_some());
        }
        assert_eq!(world.space().totals().locked, 4);
        let totals = child.totals();
        assert_eq!((totals.locked, totals.mapped, totals.mappings), (0, 4, 1));
        assert_eq!(world.word_of(&child, 0) >> 40, 1);
        assert_eq!(world.cpu().load(2 * PAGE), Ok(bits(2)));
        world.finish_with(vec![child]);
    });
}

/// Of three changes that each fit the limit alone, two succeed, whichever they are.
#[test]
fn growth_beside_mapping_keeps_to_the_limit() {
    explore(3000, |policy| {
        const GROWS: u32 = flags::GROWSDOWN;
        let world = World::new(3, policy);
        world.map(30, 1, RW);
        world
            .space()
            .mmap(20 * PAGE, PAGE, RW, FIXED | GROWS)
            .unwrap();
        world.space().set_limits(&Limits {
            address_space: 6 * PAGE,
            ..Limits::NONE
        });
        let grower = world.run(1, |cpu| cpu.store(18 * PAGE, 1).is_ok());
        let mapper = world.run(2, |cpu| {
            let mapped = cpu.space().mmap(0, 2 * PAGE, RW, FIXED);
            assert!(matches!(mapped, Ok(_) | Err(Errno::ENOMEM)));
            mapped.is_ok()
        });
        let protected = world.space().mmap(4 * PAGE, 2 * PAGE, 0, FIXED);
        let came_in = [
            grower.join().unwrap(),
            mapper.join().unwrap(),
            protected.is_ok(),
        ];
        assert_eq!(came_in.iter().filter(|&&one| one).count(), 2);
        let totals = world.space().totals();
        assert_eq!((totals.mapped, totals.peak), (6, 6));
        world.finish();
    });
}
