//! Pages of which stores wait for a handler in user mode, under every policy.

use faultless_mm::{Counter, Filled, Message, PageState, advice, flags, remap_flags, userfault};
use faultless_soft::{SoftCpu, SoftMemory, SoftSpace};
use faultless_tests::each_policy;
use faultless_tests::userfault::{Handled, PROTECTED, fault};

use crate::reclaim::swap;

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
const AT: u64 = 1 << 36;
const WP: u64 = userfault::WRITE_PROTECT;

fn page(number: u64) -> u64 {
    AT + number * PAGE
}

fn map(cpu: &SoftCpu<'_>, pages: u64) {
    assert_eq!(cpu.space().mmap(AT, pages * PAGE, RW, ANON), Ok(AT));
}

fn sound(space: &SoftSpace) {
    space
        .verify()
        .unwrap_or_else(|violation| panic!("{violation}"));
}

fn costs(memory: &SoftMemory) -> [u64; 2] {
    [Counter::Faults, Counter::Copies].map(|counter| memory.total(counter))
}

/// Ends the protection of the page of a message.
fn let_write(to: &Handled<'_>, message: Message) {
    let at = fault(message, PROTECTED);
    assert_eq!(to.protect(at, PAGE, false), Ok(()));
}

#[test]
fn a_page_that_was_placed_protected_is_written_without_a_copy() {
    each_policy(2, 32, |cpu, space, memory| {
        map(cpu, 100);
        let handled = Handled::new(memory, space, 0);
        let modes = userfault::MISSING | WP;
        assert_eq!(handled.register(AT, 100 * PAGE, modes), Ok(()));
        for number in 0..100 {
            let placed = handled.copy(page(number), number, true);
            assert_eq!(
                placed,
                Filled {
                    pages: 1,
                    error: None
                }
            );
        }
        let frames: Vec<_> = (0..100).map(|n| space.translate(page(n))).collect();
        for number in 0..100 {
            assert_eq!(cpu.load(page(number)), Ok(number));
        }
        let before = costs(memory);
        handled.beside(let_write, || {
            for number in 0..100 {
                cpu.store(page(number) + 8, 1).unwrap();
            }
        });
        assert_eq!(handled.take_messages(), 100);
        let [faults, copies] = costs(memory);
        assert_eq!([faults - before[0], copies - before[1]], [100, 0]);
        let after: Vec<_> = (0..100).map(|n| space.translate(page(n))).collect();
        assert_eq!(frames, after, "a page was replaced");
        sound(space);
        space.close_userfault(&handled.to);
    });
}

#[test]
fn stores_after_the_protection_are_reported_once() {
    each_policy(2, 32, |cpu, space, memory| {
        map(cpu, 1000);
        let handled = Handled::new(memory, space, 0);
        handled.register(AT, 1000 * PAGE, WP).unwrap();
        for number in 0..1000 {
            cpu.store(page(number), number).unwrap();
        }
        for round in 1..3 {
            assert_eq!(handled.protect(AT, 1000 * PAGE, true), Ok(()));
            sound(space);
            handled.beside(let_write, || {
                for number in 0..1000 {
                    assert_eq!(cpu.load(page(number)), Ok(number * round));
                    cpu.store(page(number), number * (round + 1)).unwrap();
                    cpu.store(page(number) + 8, 1).unwrap();
                }
            });
            assert_eq!(handled.take_messages(), 1000);
        }
        sound(space);
        space.close_userfault(&handled.to);
    });
}

#[test]
fn protection_goes_through_swap_fork_mprotect_and_soft_dirty_bits() {
    swap::each_policy(2, 32, |cpu, space, memory, _| {
        map(cpu, 40);
        for number in 0..40 {
            cpu.store(page(number), number).unwrap();
        }
        let handled = Handled::new(memory, space, 0);
        handled.register(AT, 40 * PAGE, WP).unwrap();
        assert_eq!(handled.protect(AT, 20 * PAGE, true), Ok(()));
        assert_eq!(space.madvise(AT, 40 * PAGE, advice::PAGEOUT), Ok(()));
        assert_eq!(handled.protect(page(20), 10 * PAGE, true), Ok(()));
        assert_eq!(handled.protect(page(0), 10 * PAGE, false), Ok(()));
        sound(space);
        let child = space.fork().unwrap();
        assert_eq!(space.mprotect(AT, 40 * PAGE, 1), Ok(()));
        assert_eq!(space.mprotect(AT, 40 * PAGE, RW), Ok(()));
        space.clear_soft_dirty();
        sound(space);
        let state = |number| space.page_state(page(number)).reports_writes;
        assert_eq!(
            [state(9), state(10), state(29), state(30)],
            [false, true, true, false]
        );
        handled.beside(let_write, || {
            for number in 0..40 {
                assert_eq!(cpu.load(page(number)), Ok(number));
                cpu.store(page(number), number + 1).unwrap();
            }
        });
        assert_eq!(handled.take_messages(), 20);
        // The child is registered with nothing.
        std::thread::scope(|scope| {
            let child = &child;
            let program = move |cpu: &SoftCpu<'_>| {
                for number in 0..40 {
                    assert_eq!(cpu.load(page(number)), Ok(number));
                    cpu.store(page(number), 7).unwrap();
                    assert!(!child.page_state(page(number)).reports_writes);
                }
            };
            scope
                .spawn(move || SoftCpu::run(child, 1, program))
                .join()
                .unwrap();
        });
        sound(&child);
        child.destroy();
        sound(space);
        space.close_userfault(&handled.to);
    });
}

#[test]
fn markers_stand_where_no_page_is() {
    each_policy(2, 32, |cpu, space, memory| {
        map(cpu, 2000);
        let handled = Handled::new(memory, space, userfault::WP_UNPOPULATED);
        handled.register(AT, 2000 * PAGE, WP).unwrap();
        cpu.store(page(3), 3).unwrap();
        assert_eq!(cpu.load(page(4)), Ok(0));
        assert_eq!(handled.protect(AT, 2000 * PAGE, true), Ok(()));
        sound(space);
        let marked = PageState {
            reports_writes: true,
            marked: true,
            ..PageState::default()
        };
        assert_eq!(
            space.page_state(page(1500)),
            PageState {
                soft_dirty: true,
                ..marked
            }
        );
        handled.beside(let_write, || {
            for number in [3, 4, 5, 1500] {
                cpu.store(page(number), 1).unwrap();
            }
            // A read brings the zero page, of which stores are still reported.
            assert_eq!(cpu.load(page(6)), Ok(0));
            cpu.store(page(6), 1).unwrap();
        });
        assert_eq!(handled.take_messages(), 5);
        sound(space);
        // A move drops them, a discard too, and so does the end of the registration.
        let to = AT + (1 << 30);
        let how = remap_flags::MAYMOVE | remap_flags::FIXED;
        let half = 1000 * PAGE;
        assert_eq!(space.mremap(AT + half, half, half, how, to), Ok(to));
        assert!(!space.page_state(to + 10 * PAGE).marked);
        assert_eq!(space.madvise(page(10), PAGE, advice::DONTNEED), Ok(()));
        assert!(!space.page_state(page(10)).marked && space.page_state(page(11)).marked);
        let rest = handled.pages(AT, half);
        assert_eq!(space.unregister(&handled.to, rest), Ok(()));
        assert!(!space.page_state(page(11)).marked);
        for number in 0..1000 {
            cpu.store(page(number), 9).unwrap();
        }
        sound(space);
        space.close_userfault(&handled.to);
    });
}

#[test]
fn stores_are_only_tracked_if_that_is_asked_for() {
    each_policy(1, 32, |cpu, space, memory| {
        map(cpu, 100);
        let features = userfault::WP_ASYNC | userfault::WP_UNPOPULATED;
        let handled = Handled::new(memory, space, features);
        handled.register(AT, 100 * PAGE, WP).unwrap();
        for number in 0..50 {
            cpu.store(page(number), number).unwrap();
        }
        assert_eq!(handled.protect(AT, 100 * PAGE, true), Ok(()));
        for number in 0..100 {
            assert!(space.page_state(page(number)).reports_writes);
            if number % 2 == 0 {
                cpu.store(page(number), 1).unwrap();
            }
            let is_kept = space.page_state(page(number)).reports_writes;
            assert_eq!(is_kept, number % 2 == 1);
        }
        assert_eq!(memory.total(Counter::Copies), 0);
        sound(space);
        space.close_userfault(&handled.to);
        assert!(!space.page_state(page(1)).reports_writes);
    });
}

#[test]
fn the_kernels_stores_wait_too() {
    each_policy(2, 32, |cpu, space, memory| {
        map(cpu, 3);
        let handled = Handled::new(memory, space, userfault::WP_UNPOPULATED);
        handled.register(AT, 3 * PAGE, WP).unwrap();
        cpu.store(AT, 1).unwrap();
        handled.protect(AT, 3 * PAGE, true).unwrap();
        handled.beside(let_write, || {
            let populated = space.madvise(AT, 2 * PAGE, advice::POPULATE_WRITE);
            assert_eq!(populated, Ok(()));
            assert!(space.pin(page(2), faultless_mm::Taken::ToWrite).is_ok());
        });
        assert_eq!(handled.take_messages(), 3);
        sound(space);
        space.close_userfault(&handled.to);
    });
}
