//! Userfaultfds of memory that is mapped shared, moves for them, and events, under every policy.

use std::sync::Mutex;

use faultless_mm::{
    Errno, Filled, MemoryObject, Message, Opened, advice, flags, remap_flags, userfault,
};
use faultless_soft::{SoftCpu, SoftMemory, SoftSpace};
use faultless_tests::each_policy;
use faultless_tests::userfault::{Handled, PROTECTED, fault};

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
const AT: u64 = 1 << 36;
/// Another mapping.
const OTHER: u64 = 1 << 37;

fn page(number: u64) -> u64 {
    AT + number * PAGE
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

/// Maps an object of eight pages twice.
fn map_twice(memory: &'static SoftMemory, space: &SoftSpace) {
    let store = MemoryObject::new(memory, 8 * PAGE, None, 0).unwrap();
    for at in [AT, OTHER] {
        let opened = Opened {
            store: Ok(&store),
            offset: 0,
            file: 0,
            writable: true,
        };
        let how = flags::SHARED | flags::FIXED;
        assert_eq!(space.mmap_object(at, 8 * PAGE, RW, how, &opened), Ok(at));
    }
}

#[test]
fn a_page_that_is_brought_is_the_objects() {
    each_policy(2, 32, |cpu, space, memory| {
        map_twice(memory, space);
        let handled = Handled::new(memory, space, 0);
        handled.register(AT, 8 * PAGE, userfault::MISSING).unwrap();
        cpu.store(OTHER, 1).unwrap();
        // What the object has is not missing.
        assert_eq!(cpu.load(AT), Ok(1));
        let bring = |to: &Handled<'_>, message| {
            let at = fault(message, 0);
            assert_eq!(to.copy(at, at, false), all_of(1));
        };
        handled.beside(bring, || assert_eq!(cpu.load(page(1)), Ok(page(1))));
        assert_eq!(handled.take_messages(), 1);
        assert_eq!(cpu.load(OTHER + PAGE), Ok(page(1)));
        cpu.store(page(1), 2).unwrap();
        assert_eq!(cpu.load(OTHER + PAGE), Ok(2));
        cpu.store(OTHER + 2 * PAGE, 3).unwrap();
        assert_eq!(handled.copy(page(2), 9, false), failed(Errno::EEXIST));
        let zero = handled.pages(page(3), PAGE);
        assert_eq!(space.userfault_zero(&handled.to, zero), all_of(1));
        assert_eq!(cpu.load(page(3)), Ok(0));
        sound(space);
        space.close_userfault(&handled.to);
        space.munmap(AT, 8 * PAGE).unwrap();
        space.munmap(OTHER, 8 * PAGE).unwrap();
    });
}

#[test]
fn minor_faults_wait_for_what_the_object_has() {
    each_policy(2, 32, |cpu, space, memory| {
        map_twice(memory, space);
        let handled = Handled::new(memory, space, 0);
        handled.register(AT, 8 * PAGE, userfault::MINOR).unwrap();
        let proceed = |to: &Handled<'_>, message| {
            let at = fault(message, userfault::FLAG_MINOR);
            // The handler changes the page before it is seen.
            let pages = to.pages(at, PAGE);
            assert_eq!(to.space.userfault_continue(&to.to, pages, false), all_of(1));
            to.to.wake(pages);
        };
        (0..4).for_each(|number| cpu.store(OTHER + number * PAGE, number + 1).unwrap());
        handled.beside(proceed, || {
            (0..4).for_each(|number| assert_eq!(cpu.load(page(number)), Ok(number + 1)));
            // What the object does not have waits for nothing.
            assert_eq!(cpu.load(page(5)), Ok(0));
        });
        assert_eq!(handled.take_messages(), 4);
        let missing = handled.pages(page(6), PAGE);
        let proceeded = space.userfault_continue(&handled.to, missing, false);
        assert_eq!(proceeded, failed(Errno::EFAULT));
        let there = handled.pages(AT, PAGE);
        let proceeded = space.userfault_continue(&handled.to, there, false);
        assert_eq!(proceeded, failed(Errno::EEXIST));
        sound(space);
        space.close_userfault(&handled.to);
        space.munmap(AT, 8 * PAGE).unwrap();
        space.munmap(OTHER, 8 * PAGE).unwrap();
    });
}

#[test]
fn the_protection_of_an_objects_page_outlasts_its_entry() {
    each_policy(2, 32, |cpu, space, memory| {
        map_twice(memory, space);
        let handled = Handled::new(memory, space, 0);
        let modes = userfault::WRITE_PROTECT;
        handled.register(AT, 8 * PAGE, modes).unwrap();
        (0..4).for_each(|number| cpu.store(page(number), number).unwrap());
        handled.protect(AT, 8 * PAGE, true).unwrap();
        assert_eq!(space.madvise(AT, 8 * PAGE, advice::DONTNEED), Ok(()));
        sound(space);
        let let_write = |to: &Handled<'_>, message| {
            let at = fault(message, PROTECTED);
            to.protect(at, PAGE, false).unwrap();
        };
        handled.beside(let_write, || {
            for number in 0..8 {
                cpu.store(page(number), 9).unwrap();
                assert_eq!(cpu.load(OTHER + number * PAGE), Ok(9));
            }
        });
        assert_eq!(handled.take_messages(), 8);
        sound(space);
        space.close_userfault(&handled.to);
        space.munmap(AT, 8 * PAGE).unwrap();
        space.munmap(OTHER, 8 * PAGE).unwrap();
    });
}

#[test]
fn pages_move_without_a_copy() {
    each_policy(2, 32, |cpu, space, memory| {
        assert_eq!(space.mmap(AT, 8 * PAGE, RW, ANON), Ok(AT));
        assert_eq!(space.mmap(OTHER, 8 * PAGE, RW, ANON), Ok(OTHER));
        let handled = Handled::new(memory, space, 0);
        handled.register(AT, 8 * PAGE, userfault::MISSING).unwrap();
        (0..4).for_each(|number| cpu.store(OTHER + number * PAGE, number + 1).unwrap());
        let frames: Vec<_> = (0..4).map(|n| space.translate(OTHER + n * PAGE)).collect();
        let source = OTHER / PAGE;
        let moved = |pages, from, skips| space.userfault_move(&handled.to, pages, from, skips);
        assert_eq!(moved(handled.pages(AT, 4 * PAGE), source, false), all_of(4));
        let after: Vec<_> = (0..4).map(|n| space.translate(page(n))).collect();
        assert_eq!(frames, after);
        for number in 0..4 {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
            assert_eq!(cpu.load(OTHER + number * PAGE), Ok(0));
        }
        sound(space);
        // Zero pages, holes, shared pages.
        assert_eq!(
            moved(handled.pages(page(4), PAGE), source, false),
            all_of(1)
        );
        assert_eq!(cpu.load(page(4)), Ok(0));
        let hole = handled.pages(page(5), PAGE);
        assert_eq!(moved(hole, source, false), failed(Errno::ENOENT));
        assert_eq!(moved(hole, source, true), all_of(1));
        assert_eq!(
            moved(handled.pages(AT, PAGE), source + 1, false),
            failed(Errno::EEXIST)
        );
        cpu.store(OTHER + 5 * PAGE, 5).unwrap();
        let child = space.fork().unwrap();
        assert_eq!(moved(hole, source + 5, false), failed(Errno::EBUSY));
        child.destroy();
        let pin = space.pin(OTHER + 5 * PAGE, faultless_mm::Taken::ToWrite);
        assert_eq!(moved(hole, source + 5, false), failed(Errno::EBUSY));
        drop(pin);
        assert_eq!(moved(hole, source + 5, false), all_of(1));
        assert_eq!(cpu.load(page(5)), Ok(5));
        sound(space);
        space.close_userfault(&handled.to);
    });
}

/// The events that an operation reports.
fn events(handled: &Handled<'_>, act: impl FnOnce()) -> Vec<Message> {
    let seen = Mutex::new(Vec::new());
    handled.beside(|_, message| seen.lock().unwrap().push(message), act);
    seen.into_inner().unwrap()
}

#[test]
fn changes_are_reported() {
    each_policy(2, 32, |cpu, space, memory| {
        assert_eq!(space.mmap(AT, 64 * PAGE, RW, ANON), Ok(AT));
        (0..64).for_each(|number| cpu.store(page(number), number).unwrap());
        let features = userfault::EVENT_REMAP
            | userfault::EVENT_REMOVE
            | userfault::EVENT_UNMAP
            | userfault::EVENT_FORK;
        let handled = Handled::new(memory, space, features);
        let modes = userfault::MISSING | userfault::WRITE_PROTECT;
        handled.register(AT, 32 * PAGE, modes).unwrap();
        let seen = events(&handled, || {
            space.madvise(page(30), 4 * PAGE, advice::DONTNEED).unwrap();
        });
        let (start, end) = (page(30), page(32));
        assert_eq!(seen, [Message::Remove { start, end }]);
        let seen = events(&handled, || space.munmap(page(28), 6 * PAGE).unwrap());
        let (start, end) = (page(28), page(34));
        assert_eq!(seen, [Message::Unmap { start, end }]);
        let how = remap_flags::MAYMOVE | remap_flags::FIXED;
        handled.protect(page(8), 4 * PAGE, true).unwrap();
        let seen = events(&handled, || {
            let moved = space.mremap(page(8), 4 * PAGE, 4 * PAGE, how, OTHER);
            assert_eq!(moved, Ok(OTHER));
        });
        let (start, end) = (page(8), page(12));
        let expected = [
            Message::Remap {
                from: start,
                to: OTHER,
                length: end - start,
            },
            Message::Unmap { start, end },
        ];
        assert_eq!(seen, expected);
        // It is still registered there, and protected.
        assert_eq!(space.lookup(OTHER).unwrap().handler.modes(), modes);
        assert!(space.page_state(OTHER).reports_writes);
        // What is not registered is not reported.
        let seen = events(&handled, || space.munmap(page(40), PAGE).unwrap());
        assert_eq!(seen, []);
        sound(space);
        space.close_userfault(&handled.to);
    });
}

#[test]
fn a_child_is_registered_with_a_userfaultfd_of_its_own() {
    each_policy(3, 32, |cpu, space, memory| {
        assert_eq!(space.mmap(AT, 8 * PAGE, RW, ANON), Ok(AT));
        let handled = Handled::new(memory, space, userfault::EVENT_FORK);
        let modes = userfault::MISSING | userfault::WRITE_PROTECT;
        handled.register(AT, 8 * PAGE, modes).unwrap();
        assert_eq!(handled.copy(AT, 7, true), all_of(1));
        let (child, forked) = space.fork_beside_handlers().unwrap();
        assert!(handled.to.is_changing());
        let given = Mutex::new(None);
        let seen = events(&handled, || {
            forked.report(
                &mut |_, child| {
                    *given.lock().unwrap() = Some(child.again());
                    Some(77)
                },
                &mut |_| panic!("it is read"),
            );
        });
        assert_eq!(seen, [Message::Fork { child: 77 }]);
        assert!(!handled.to.is_changing());
        let mut of_child = Handled::new(memory, &child, 0);
        of_child.to = given.into_inner().unwrap().unwrap();
        let act = |to: &Handled<'_>, message| match message {
            Message::Fault { flags: 0, .. } => {
                to.copy(page(1), 5, false);
            }
            _ => to.protect(fault(message, PROTECTED), PAGE, false).unwrap(),
        };
        std::thread::scope(|scope| {
            let program = || {
                SoftCpu::run(&child, 2, |cpu| {
                    assert_eq!(cpu.load(AT), Ok(7));
                    assert_eq!(cpu.load(page(1)), Ok(5));
                    cpu.store(AT, 8).unwrap();
                });
            };
            of_child.beside(act, || scope.spawn(program).join().unwrap());
        });
        assert_eq!(of_child.take_messages(), 2);
        sound(&child);
        child.close_userfault(&of_child.to);
        drop(of_child);
        child.destroy();
        // A child of which nothing is reported is not registered.
        let child = space.fork().unwrap();
        assert!(!handled.to.is_changing());
        std::thread::scope(|scope| {
            let program = || SoftCpu::run(&child, 2, |cpu| cpu.store(page(2), 1));
            assert_eq!(scope.spawn(program).join().unwrap(), Ok(()));
        });
        child.destroy();
        assert_eq!(cpu.load(AT), Ok(7));
        space.close_userfault(&handled.to);
    });
}

/// Everything that can fail for want of memory does so cleanly.
#[test]
fn each_allocation_may_fail() {
    each_policy(2, 32, |cpu, space, memory| {
        let machine = memory.machine();
        for fails in 0..40 {
            assert_eq!(space.mmap(AT, 16 * PAGE, RW, ANON), Ok(AT));
            cpu.store(page(3), 3).unwrap();
            machine.fail_in(Some(fails));
            let done = try_everything(memory, space);
            let has_failed = machine.has_failed();
            machine.fail_in(None);
            sound(space);
            for number in 0..16 {
                let _ = cpu.store(page(number), 1);
            }
            space.munmap(AT, 16 * PAGE).unwrap();
            if !has_failed {
                assert!(done, "it fails without a reason");
                return;
            }
        }
        panic!("there are more allocations than tried");
    });
}

/// Returns whether all of it worked.
fn try_everything(memory: &'static SoftMemory, space: &SoftSpace) -> bool {
    let Ok(to) = faultless_mm::Userfault::new(memory, 0) else {
        return false;
    };
    to.set_features(userfault::WP_UNPOPULATED | userfault::EVENT_FORK | userfault::SIGBUS);
    let pages = |first, count| {
        space
            .userfault_range(page(first), count * PAGE)
            .unwrap_or_else(|error| panic!("{error}"))
    };
    let modes = userfault::MISSING | userfault::WRITE_PROTECT;
    let mut all = space.register(&to, pages(2, 10), modes).is_ok();
    let copied = space.userfault_copy(&to, pages(4, 2), true, &mut |_, _| Ok(()));
    all &= copied == all_of(2);
    all &= space.userfault_zero(&to, pages(6, 1)) == all_of(1);
    all &= space.userfault_protect(&to, pages(2, 10), true).is_ok();
    all &= space.userfault_poison(&to, pages(8, 1)) == all_of(1);
    all &= space.userfault_protect(&to, pages(2, 10), false).is_ok();
    match space.fork() {
        Ok(child) => {
            child.destroy();
        }
        Err(_) => all = false,
    }
    all &= space.unregister(&to, pages(3, 4)).is_ok();
    space.close_userfault(&to);
    all
}

/// As Linux's `uffd-unit-tests` do: pages are brought, moved, brought, and removed.
#[test]
fn removed_pages_are_zero_if_the_handler_lets_go_of_them() {
    const PAGES: u64 = 1200;
    each_policy(2, 64, |cpu, space, memory| {
        let store = MemoryObject::new(memory, 2 * PAGES * PAGE, None, 0).unwrap();
        for (at, first) in [(AT, PAGES), (OTHER, 0)] {
            let opened = Opened {
                store: Ok(&store),
                offset: first * PAGE,
                file: 0,
                writable: true,
            };
            let how = flags::SHARED | flags::FIXED;
            assert_eq!(
                space.mmap_object(at, PAGES * PAGE, RW, how, &opened),
                Ok(at)
            );
        }
        (0..PAGES).for_each(|number| cpu.store(OTHER + number * PAGE, 9).unwrap());
        let handled = Handled::new(
            memory,
            space,
            userfault::EVENT_REMAP | userfault::EVENT_REMOVE,
        );
        handled
            .register(AT, PAGES * PAGE, userfault::MISSING)
            .unwrap();
        let act = |to: &Handled<'_>, message| match message {
            Message::Fault { address, .. } => assert_eq!(to.copy(address, 5, false), all_of(1)),
            Message::Remove { start, end } => {
                let pages = to.pages(start, end - start);
                assert_eq!(to.space.unregister(&to.to, pages), Ok(()));
            }
            _ => {}
        };
        handled.beside(act, || {
            (0..PAGES / 2).for_each(|number| assert_eq!(cpu.load(page(number)), Ok(5)));
            let how = remap_flags::MAYMOVE | remap_flags::FIXED;
            let length = PAGES * PAGE;
            assert_eq!(space.mremap(AT, length, length, how, OTHER), Ok(OTHER));
            for number in 0..PAGES {
                assert_eq!(cpu.load(OTHER + number * PAGE), Ok(5), "page {number}");
            }
            assert_eq!(space.madvise(OTHER, length, advice::REMOVE), Ok(()));
            for number in 0..PAGES {
                assert_eq!(cpu.load(OTHER + number * PAGE), Ok(0), "page {number}");
            }
        });
        sound(space);
        space.close_userfault(&handled.to);
        space.munmap(OTHER, PAGES * PAGE).unwrap();
        drop(store);
    });
}
