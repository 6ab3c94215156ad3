//! Read-ahead from slow devices: neighbours come back with a page, and count as unused.

use super::*;

/// A test with a slow device, from which eight pages are read ahead.
fn on_a_slow_device(test: impl Fn(&SoftCpu<'_>, &SoftSpace, &'static SoftMemory, &'static Store)) {
    each_policy(2, 32, |cpu, space, memory, store| {
        store.slow.store(true, Ordering::Relaxed);
        memory.set_read_ahead(8);
        test(cpu, space, memory, store);
    });
}

#[test]
fn a_walk_waits_once_for_nine_pages() {
    on_a_slow_device(|cpu, space, memory, store| {
        map(cpu, 90);
        page_out(space, 0, 90);
        assert_eq!(cpu.load(page(0)), Ok(1));
        assert_eq!((space.resident(), store.used()), (9, 81));
        sound(&[space]);
        let all = space.usage(page(0)..page(90));
        assert_eq!(all.referenced, PAGE, "what was read ahead is unused");
        let faults = during(memory, Counter::Faults, || {
            for number in 1..90 {
                assert_eq!(cpu.load(page(number)), Ok(number + 1));
                cpu.store(page(number) + 8, 3).unwrap();
            }
        });
        assert_eq!((faults, memory.total(Counter::MajorFaults)), (9, 10));
        assert_eq!(memory.total(Counter::SwapIn), 90);
        assert_eq!(memory.total(Counter::SwapRa), 80);
        assert_eq!(store.used(), 0);
        sound(&[space]);
    });
}

#[test]
fn nothing_is_read_ahead_from_a_fast_device_or_if_it_is_off() {
    on_a_slow_device(|cpu, space, memory, store| {
        for (slow, pages) in [(false, 8), (true, 0)] {
            store.slow.store(slow, Ordering::Relaxed);
            memory.set_read_ahead(pages);
            map(cpu, 20);
            page_out(space, 0, 20);
            assert_eq!(cpu.load(page(0)), Ok(1));
            assert_eq!(space.resident(), 1);
            assert_eq!(space.munmap(AT, 20 * PAGE), Ok(()));
        }
        assert_eq!(memory.total(Counter::SwapRa), 0);
    });
}

/// Pages that cannot be read, may not be read, or are somewhere else on the device stay there.
#[test]
fn only_neighbours_that_can_be_read_come() {
    on_a_slow_device(|cpu, space, _, store| {
        map(cpu, 40);
        page_out(space, 2, 1);
        page_out(space, 20, 20);
        page_out(space, 0, 2);
        page_out(space, 3, 7);
        // Page 2 has the first slot, and page 0 one far behind it.
        assert_eq!(cpu.load(page(0)), Ok(1));
        assert!(
            space.page_state(page(1)).frame.is_some() && space.page_state(page(2)).frame.is_none()
        );
        assert_eq!(space.mprotect(page(21), PAGE, 0), Ok(()));
        let mut entries = [0; 1];
        assert_eq!(space.pagemap(page(22) / PAGE, &mut entries, true), 1);
        let slot = entries[0] >> 5 & 0xffff_ffff;
        store.broken.store(slot + 2, Ordering::Relaxed);
        assert_eq!(cpu.load(page(20)), Ok(21));
        let resident = [21, 22, 23].map(|number| space.page_state(page(number)).frame.is_some());
        assert_eq!(resident, [false, false, true]);
        assert_eq!(cpu.load(page(22)), Err(Trap::Bus { address: page(22) }));
        store.broken.store(0, Ordering::Relaxed);
        assert_eq!(cpu.load(page(22)), Ok(23));
        sound(&[space]);
    });
}
