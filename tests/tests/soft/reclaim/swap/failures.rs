//! Devices, reads and allocations that fail: no page is lost.

use super::*;

#[test]
fn a_page_that_the_device_does_not_take_stays() {
    each_policy(2, 32, |cpu, space, memory, store| {
        store.writable.store(3, Ordering::Relaxed);
        map(cpu, 30);
        page_out(space, 0, 30);
        assert_eq!(store.used() as u64, memory.total(Counter::SwapOut));
        assert!((15..30).contains(&store.used()));
        sound(&[space]);
        let child = space.fork().unwrap();
        for number in 0..30 {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
        on_another(&child, |cpu| {
            (0..30).for_each(|number| assert_eq!(cpu.load(page(number)), Ok(number + 1)));
        });
        child.destroy();
        assert_eq!(store.used(), 0);
        sound(&[space]);
    });
}

/// Nor is memory needed to bring it back, if nothing shares it.
#[test]
fn a_page_that_stayed_needs_no_second_frame() {
    each_policy(2, 32, |cpu, space, memory, store| {
        store.writable.store(1, Ordering::Relaxed);
        map(cpu, 10);
        page_out(space, 0, 10);
        assert_eq!((store.used(), space.resident()), (0, 0));
        memory.machine().fail_from(Some(0));
        let seen: Vec<_> = (0..10).map(|number| cpu.load(page(number))).collect();
        memory.machine().fail_from(None);
        assert_eq!(seen, (1..=10).map(Ok).collect::<Vec<_>>());
        assert_eq!(memory.total(Counter::MajorFaults), 0);
        sound(&[space]);
        // A fork shares the page: each side has one of its own.
        page_out(space, 0, 1);
        let child = space.fork().unwrap();
        cpu.store(page(0), 7).unwrap();
        let seen = on_another(&child, |cpu| cpu.load(page(0)));
        assert_eq!((seen, cpu.load(page(0))), (Ok(1), Ok(7)));
        sound(&[space, &child]);
        child.destroy();
    });
}

#[test]
fn a_page_that_cannot_be_read_is_a_bus_error_for_that_page_alone() {
    each_policy(2, 32, |cpu, space, _, store| {
        map(cpu, 2);
        page_out(space, 0, 1);
        store.broken.store(1, Ordering::Relaxed);
        assert_eq!(cpu.load(page(0)), Err(Trap::Bus { address: page(0) }));
        assert_eq!(cpu.load(page(1)), Ok(2));
        store.broken.store(0, Ordering::Relaxed);
        assert_eq!(cpu.load(page(0)), Ok(1));
        sound(&[space]);
    });
}

/// One allocation fails, or one and all that follow, at each place in a fork and in the loads that bring pages back.
/// Nothing is lost: afterwards both sides have every page.
#[test]
fn no_page_is_lost_where_an_allocation_fails() {
    const PAGES: u64 = 3;
    for is_lasting in [false, true] {
        let has_failed = Cell::new(true);
        for allocation in 0.. {
            if !has_failed.get() {
                assert!(allocation > 3, "too few allocations");
                break;
            }
            each_policy(2, 32, |cpu, space, memory, store| {
                map(cpu, PAGES);
                page_out(space, 0, PAGES);
                let machine = memory.machine();
                match is_lasting {
                    false => machine.fail_in(Some(allocation)),
                    true => machine.fail_from(Some(allocation)),
                }
                let child = space.fork();
                let seen: Vec<_> = (0..PAGES).map(|number| cpu.load(page(number))).collect();
                has_failed.set(match is_lasting {
                    false => machine.has_failed(),
                    true => child.is_err() || seen.contains(&Err(Trap::OutOfMemory)),
                });
                machine.fail_in(None);
                machine.fail_from(None);
                for (number, seen) in (0..).zip(seen) {
                    assert!(matches!(seen, Err(Trap::OutOfMemory)) || seen == Ok(number + 1));
                    assert_eq!(cpu.load(page(number)), Ok(number + 1));
                }
                match child {
                    Ok(child) => {
                        sound(&[space, &child]);
                        on_another(&child, |cpu| {
                            for number in 0..PAGES {
                                assert_eq!(cpu.load(page(number)), Ok(number + 1));
                            }
                        });
                        child.destroy();
                    }
                    Err(error) => assert_eq!(error, Errno::ENOMEM),
                }
                assert_eq!(store.used(), 0);
                sound(&[space]);
            });
        }
    }
}
