//! `MADV_FREE`, under every policy: pages keep their content until memory is short; a page that is
//! written after the call is kept for good.

use faultless_mm::{AddressSpace, Counter, advice, flags};
use faultless_soft::{SoftCpu, SoftSpace, Trap};
use faultless_tests::each_policy;

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::NORESERVE;
const AT: u64 = 1 << 36;
/// The address of a second mapping, which consumes memory.
const MORE: u64 = AT + (1 << 30);
/// Memory of the small machine in MiB, and far more pages than it has.
const MIB: u64 = 8;
const PAGES: u64 = MIB * 256;

fn page(number: u64) -> u64 {
    AT + number * PAGE
}

fn map(space: &SoftSpace, at: u64, pages: u64) {
    let mapped = space.mmap(at, pages * PAGE, RW, ANON | flags::FIXED);
    assert_eq!(mapped, Ok(at));
}

fn free(space: &SoftSpace, first: u64, pages: u64) {
    let freed = space.madvise(page(first), pages * PAGE, advice::FREE);
    assert_eq!(freed, Ok(()));
}

/// Touches pages of another mapping until there is no frame left, and returns their number.
fn exhaust(cpu: &SoftCpu<'_>) -> u64 {
    map(cpu.space(), MORE, PAGES);
    (0..PAGES)
        .find(|number| {
            let stored = cpu.store(MORE + number * PAGE, number + 1);
            assert!(matches!(stored, Ok(()) | Err(Trap::OutOfMemory)));
            stored.is_err()
        })
        .expect("memory is not that large")
}

#[test]
fn nothing_is_lost_while_there_is_memory() {
    each_policy(1, 64, |cpu, space, memory| {
        map(space, AT, 100);
        for number in 0..100 {
            cpu.store(page(number), number + 1).unwrap();
        }
        free(space, 0, 100);
        assert_eq!(memory.total(Counter::LazyFree), 100);
        // A second call finds no page to mark.
        free(space, 0, 100);
        assert_eq!(memory.total(Counter::LazyFree), 100);
        for number in 0..100 {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
        assert_eq!(space.resident(), 100);
        assert_eq!(memory.total(Counter::LazyFreed), 0);
    });
}

#[test]
fn memory_that_is_short_takes_what_was_not_written_since() {
    each_policy(1, MIB, |cpu, space, memory| {
        let half = PAGES / 2;
        map(space, AT, half);
        for number in 0..half {
            cpu.store(page(number), number + 1).unwrap();
        }
        let without = exhaust(cpu);
        space.munmap(MORE, PAGES * PAGE).unwrap();
        free(space, 100, half - 100);
        for number in (100..half).step_by(3) {
            cpu.store(page(number) + 8, number).unwrap();
        }
        // Reading is not writing.
        for number in (101..half).step_by(3) {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
        let with = exhaust(cpu);
        let taken = memory.total(Counter::LazyFreed);
        assert_eq!(taken, (100..half).filter(|n| n % 3 != 1).count() as u64);
        assert!(with >= without + taken - 32, "{without} {with} {taken}");
        let expected = |number: u64| match number {
            0..100 => (number + 1, 0),
            _ if number % 3 == 1 => (number + 1, number),
            _ => (0, 0),
        };
        for number in (0..half).filter(|number| *number < 100 || number % 3 == 1) {
            let seen = (cpu.load(page(number)), cpu.load(page(number) + 8));
            let (first, second) = expected(number);
            assert_eq!(seen, (Ok(first), Ok(second)), "page {number}");
        }
        space.munmap(MORE, PAGES * PAGE).unwrap();
        for number in 0..half {
            let seen = (cpu.load(page(number)), cpu.load(page(number) + 8));
            let (first, second) = expected(number);
            assert_eq!(seen, (Ok(first), Ok(second)), "page {number}");
        }
        space.verify().unwrap();
    });
}

#[test]
fn what_a_child_shares_stays() {
    each_policy(2, MIB, |cpu, space, memory| {
        map(space, AT, 100);
        for number in 0..100 {
            cpu.store(page(number), number + 1).unwrap();
        }
        // Lazily freed before the fork, and after it.
        free(space, 0, 50);
        let child = space.fork().unwrap();
        free(space, 50, 50);
        exhaust(cpu);
        assert_eq!(memory.total(Counter::LazyFreed), 0);
        AddressSpace::verify_together(&[space, &child]).unwrap();
        space.munmap(MORE, PAGES * PAGE).unwrap();
        for number in 0..100 {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
        child.destroy();
        // Now only this space maps them, and the first ones are still lazily freed.
        exhaust(cpu);
        assert_eq!(memory.total(Counter::LazyFreed), 50);
        assert_eq!(cpu.load(page(50)), Ok(51));
    });
}

#[test]
fn what_cannot_be_reached_is_let_go_of_as_well() {
    each_policy(1, MIB, |cpu, space, memory| {
        map(space, AT, 10);
        for number in 0..10 {
            cpu.store(page(number), number + 1).unwrap();
        }
        space.mprotect(AT, 5 * PAGE, 0).unwrap();
        free(space, 0, 10);
        assert_eq!(memory.total(Counter::LazyFree), 10);
        space.mprotect(AT, 5 * PAGE, RW).unwrap();
        cpu.store(page(2), 7).unwrap();
        exhaust(cpu);
        assert_eq!(memory.total(Counter::LazyFreed), 9);
        assert_eq!(cpu.load(page(2)), Ok(7));
    });
}
