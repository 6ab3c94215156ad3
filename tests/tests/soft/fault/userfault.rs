//! Missing pages that a handler in user mode brings, under every policy.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use faultless_mm::{Counter, Errno, Filled, Message, advice, flags, remap_flags, userfault};
use faultless_soft::{SoftCpu, SoftSpace, Trap};
use faultless_tests::each_policy;
use faultless_tests::userfault::{Handled, fault};

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
const AT: u64 = 1 << 36;

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

fn all_of(pages: u64) -> Filled {
    Filled { pages, error: None }
}

fn failed(error: Errno) -> Filled {
    Filled {
        pages: 0,
        error: Some(error),
    }
}

#[test]
fn the_handler_brings_each_page_once() {
    each_policy(2, 32, |cpu, space, memory| {
        map(cpu, 100);
        let handled = Handled::new(memory, space, 0);
        assert_eq!(handled.register(AT, 100 * PAGE, userfault::MISSING), Ok(()));
        let bring = |to: &Handled<'_>, message| {
            let at = fault(message, 0);
            assert_eq!(to.copy(at, at, false), all_of(1));
        };
        handled.beside(bring, || {
            for number in 0..100 {
                assert_eq!(cpu.load(page(number)), Ok(page(number)));
            }
        });
        assert_eq!(handled.take_messages(), 100);
        // Written without another fault, and without a copy.
        let before = (memory.total(Counter::Faults), memory.total(Counter::Copies));
        for number in 0..100 {
            assert_eq!(cpu.store(page(number), number), Ok(()));
        }
        let after = (memory.total(Counter::Faults), memory.total(Counter::Copies));
        assert_eq!(before, after);
        sound(space);
        space.close_userfault(&handled.to);
    });
}

#[test]
fn a_store_says_so_and_addresses_are_exact_if_asked_for() {
    each_policy(2, 32, |cpu, space, memory| {
        map(cpu, 10);
        let handled = Handled::new(memory, space, userfault::EXACT_ADDRESS);
        handled.register(AT, 10 * PAGE, userfault::MISSING).unwrap();
        let bring = |to: &Handled<'_>, message| {
            let at = fault(message, userfault::FLAG_WRITE);
            assert_eq!(at, page(3) + 16);
            to.copy(at, 1, false);
        };
        handled.beside(bring, || cpu.store(page(3) + 16, 7).unwrap());
        assert_eq!((cpu.load(page(3)), cpu.load(page(3) + 16)), (Ok(1), Ok(7)));
        assert_eq!(handled.take_messages(), 1);
        space.close_userfault(&handled.to);
    });
}

#[test]
fn a_fault_that_is_woken_without_a_page_waits_again() {
    each_policy(2, 32, |cpu, space, memory| {
        map(cpu, 1);
        let handled = Handled::new(memory, space, 0);
        handled.register(AT, PAGE, userfault::MISSING).unwrap();
        let seen = AtomicU64::new(0);
        let bring = |to: &Handled<'_>, message| {
            assert_eq!(fault(message, 0), AT);
            if seen.fetch_add(1, Ordering::Relaxed) < 2 {
                return to.to.wake(to.pages(AT, PAGE));
            }
            to.copy(AT, 5, false);
        };
        assert_eq!(handled.beside(bring, || cpu.load(AT)), Ok(5));
        assert_eq!(handled.take_messages(), 3);
        space.close_userfault(&handled.to);
    });
}

#[test]
fn a_handler_that_goes_lets_faults_go_on() {
    each_policy(2, 32, |cpu, space, memory| {
        map(cpu, 10);
        let handled = Handled::new(memory, space, 0);
        handled.register(AT, 10 * PAGE, userfault::MISSING).unwrap();
        let close = |to: &Handled<'_>, _| to.space.close_userfault(&to.to);
        assert_eq!(handled.beside(close, || cpu.load(AT)), Ok(0));
        assert_eq!(cpu.store(page(1), 1), Ok(()));
        assert_eq!(handled.take_messages(), 1);
        // The mapping is ordinary again.
        assert!(space.lookup(AT).unwrap().handler.is_none());
        sound(space);
    });
}

#[test]
fn the_end_of_the_registration_wakes() {
    each_policy(2, 32, |cpu, space, memory| {
        map(cpu, 10);
        let handled = Handled::new(memory, space, 0);
        handled.register(AT, 10 * PAGE, userfault::MISSING).unwrap();
        let end = |to: &Handled<'_>, message| {
            assert_eq!(fault(message, userfault::FLAG_WRITE), page(4));
            let pages = to.pages(page(4), PAGE);
            assert_eq!(to.space.unregister(&to.to, pages), Ok(()));
        };
        handled.beside(end, || cpu.store(page(4), 1).unwrap());
        assert_eq!(cpu.load(page(4)), Ok(1));
        let modes = |number| space.lookup(page(number)).unwrap().handler.modes();
        assert_eq!((modes(3), modes(4), modes(5)), (1, 0, 1));
        space.close_userfault(&handled.to);
        assert_eq!((modes(3), modes(4), modes(5)), (0, 0, 0));
    });
}

#[test]
fn other_faults_go_on_while_one_waits() {
    each_policy(3, 32, |cpu, space, memory| {
        map(cpu, 1000);
        let handled = Handled::new(memory, space, 0);
        handled.register(AT, PAGE, userfault::MISSING).unwrap();
        let done = AtomicBool::new(false);
        let bring = |to: &Handled<'_>, _| {
            // Not before all of the others are done.
            while !done.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            to.copy(AT, 1, false);
        };
        handled.beside(bring, || {
            std::thread::scope(|scope| {
                let others = scope.spawn(|| {
                    SoftCpu::run(space, 2, |cpu| {
                        while !handled.to.is_readable()
                            && handled.messages.load(Ordering::Relaxed) == 0
                        {
                            std::thread::yield_now();
                        }
                        for number in 1..1000 {
                            cpu.store(page(number), 1).unwrap();
                        }
                        // Writers too, even around it.
                        assert_eq!(space.munmap(page(500), 500 * PAGE), Ok(()));
                        assert_eq!(space.mprotect(AT, 100 * PAGE, RW), Ok(()));
                        done.store(true, Ordering::Release);
                    });
                });
                assert_eq!(cpu.load(AT), Ok(1));
                others.join().unwrap();
            });
        });
        space.close_userfault(&handled.to);
        sound(space);
    });
}

#[test]
fn zero_pages_and_poison() {
    each_policy(2, 32, |cpu, space, memory| {
        map(cpu, 4);
        let handled = Handled::new(memory, space, 0);
        handled.register(AT, 4 * PAGE, userfault::MISSING).unwrap();
        let zeroes = handled.pages(AT, 2 * PAGE);
        assert_eq!(space.userfault_zero(&handled.to, zeroes), all_of(2));
        assert_eq!(
            space.userfault_zero(&handled.to, zeroes),
            failed(Errno::EEXIST)
        );
        let poison = handled.pages(page(2), PAGE);
        assert_eq!(space.userfault_poison(&handled.to, poison), all_of(1));
        assert_eq!(cpu.load(AT), Ok(0));
        assert_eq!(cpu.store(page(1), 1), Ok(()));
        let address = page(2);
        assert_eq!(cpu.load(address), Err(Trap::Poisoned { address }));
        assert_eq!(cpu.store(address, 1), Err(Trap::Poisoned { address }));
        sound(space);
        // The child has it, too.
        let child = space.fork().unwrap();
        std::thread::scope(|scope| {
            let seen = scope.spawn(|| SoftCpu::run(&child, 1, |cpu| cpu.load(address)));
            assert_eq!(seen.join().unwrap(), Err(Trap::Poisoned { address }));
        });
        sound(&child);
        child.destroy();
        // Moved and discarded like a page.
        let to = AT + (1 << 30);
        let how = remap_flags::MAYMOVE | remap_flags::FIXED;
        assert_eq!(space.mremap(AT, 4 * PAGE, 4 * PAGE, how, to), Ok(to));
        let address = to + 2 * PAGE;
        assert_eq!(cpu.load(address), Err(Trap::Poisoned { address }));
        assert_eq!(space.madvise(to, 4 * PAGE, advice::DONTNEED), Ok(()));
        // No longer registered, as on Linux.
        assert_eq!(cpu.load(address), Ok(0));
        space.close_userfault(&handled.to);
    });
}

#[test]
fn errors_are_linuxs() {
    each_policy(2, 32, |cpu, space, memory| {
        map(cpu, 10);
        let one = Handled::new(memory, space, 0);
        let other = Handled::new(memory, space, 0);
        let einval = Err(Errno::EINVAL);
        assert_eq!(space.userfault_range(AT + 1, PAGE), einval);
        assert_eq!(space.userfault_range(AT, PAGE + 1), einval);
        assert_eq!(space.userfault_range(AT, 0), einval);
        assert_eq!(space.userfault_range(1 << 47, PAGE), einval);
        assert_eq!(space.userfault_range(AT, 1 << 47), einval);
        assert_eq!(space.userfault_range(0, PAGE), einval);
        assert_eq!(one.register(page(20), PAGE, 1), Err(Errno::EINVAL));
        assert_eq!(one.register(AT, PAGE, userfault::MINOR), Err(Errno::EINVAL));
        // Nothing is registered.
        assert_eq!(one.copy(AT, 1, false), failed(Errno::ENOENT));
        assert_eq!(one.protect(AT, PAGE, true), Err(Errno::ENOENT));
        // Holes are passed over.
        assert_eq!(space.munmap(page(4), PAGE), Ok(()));
        assert_eq!(one.register(AT, 10 * PAGE, 1), Ok(()));
        assert_eq!(other.register(page(9), PAGE, 1), Err(Errno::EBUSY));
        assert_eq!(one.copy(AT, 1, true), failed(Errno::EINVAL));
        assert_eq!(one.protect(AT, PAGE, true), Err(Errno::ENOENT));
        let across = one.pages(page(3), 3 * PAGE);
        let copied = space.userfault_copy(&one.to, across, false, &mut |_, _| Ok(()));
        assert_eq!(copied, failed(Errno::ENOENT));
        // What was copied before a failure stays.
        let all = one.pages(AT, 4 * PAGE);
        assert_eq!(one.copy(page(2), 7, false), all_of(1));
        let copied = space.userfault_zero(&one.to, all);
        let expected = Filled {
            pages: 2,
            error: Some(Errno::EEXIST),
        };
        assert_eq!(copied, expected);
        let fails = &mut |_, _| Err(Errno::EFAULT);
        let last = one.pages(page(3), PAGE);
        let copied = space.userfault_copy(&one.to, last, false, fails);
        assert_eq!(copied, failed(Errno::EFAULT));
        // A droppable mapping cannot be registered.
        let how = flags::ANONYMOUS | 8;
        let dropped = space.mmap(0, PAGE, RW, how).unwrap();
        assert_eq!(one.register(dropped, PAGE, 1), Err(Errno::EINVAL));
        for handled in [one, other] {
            space.close_userfault(&handled.to);
        }
    });
}

#[test]
fn sigbus_instead_of_a_wait() {
    each_policy(2, 32, |cpu, space, memory| {
        map(cpu, 2);
        let handled = Handled::new(memory, space, userfault::SIGBUS);
        handled.register(AT, 2 * PAGE, userfault::MISSING).unwrap();
        assert_eq!(cpu.load(AT), Err(Trap::Bus { address: AT }));
        assert_eq!(handled.copy(AT, 3, false), all_of(1));
        assert_eq!(cpu.load(AT), Ok(3));
        // Accesses of the kernel are errors, too.
        let populated = space.madvise(page(1), PAGE, advice::POPULATE_READ);
        assert_eq!(populated, Err(Errno::EFAULT));
        space.close_userfault(&handled.to);
        let handled = Handled::new(memory, space, userfault::USER_MODE_ONLY);
        handled.register(AT, 2 * PAGE, userfault::MISSING).unwrap();
        let populated = space.madvise(page(1), PAGE, advice::POPULATE_READ);
        assert_eq!(populated, Err(Errno::EFAULT));
        let bring = |to: &Handled<'_>, message: Message| {
            to.copy(fault(message, 0), 4, false);
        };
        assert_eq!(handled.beside(bring, || cpu.load(page(1))), Ok(4));
        space.close_userfault(&handled.to);
    });
}

#[test]
fn what_the_kernel_reads_waits() {
    each_policy(2, 32, |cpu, space, memory| {
        map(cpu, 64);
        let handled = Handled::new(memory, space, 0);
        handled.register(AT, 64 * PAGE, userfault::MISSING).unwrap();
        let bring = |to: &Handled<'_>, message| {
            let Message::Fault { address, .. } = message else {
                panic!("no fault: {message:?}");
            };
            to.copy(address, address, false);
        };
        handled.beside(bring, || {
            let populated = space.madvise(AT, 32 * PAGE, advice::POPULATE_READ);
            assert_eq!(populated, Ok(()));
            let pin = space.pin(page(40), faultless_mm::Taken::ToWrite);
            assert!(pin.is_ok());
        });
        assert_eq!(handled.take_messages(), 33);
        assert_eq!(cpu.load(page(31)), Ok(page(31)));
        space.close_userfault(&handled.to);
    });
}
