//! What other operations make of swapped pages.

use super::*;

#[test]
fn a_child_and_its_parent_each_get_the_page_as_it_was() {
    each_policy(2, 32, |cpu, space, _, store| {
        map(cpu, 20);
        page_out(space, 0, 10);
        let child = space.fork().unwrap();
        sound(&[space, &child]);
        assert_eq!(store.used(), 10);
        for number in 0..5 {
            cpu.store(page(number), 100).unwrap();
        }
        let seen: Vec<_> = on_another(&child, |cpu| {
            (0..20)
                .map(|number| cpu.load(page(number)).unwrap())
                .collect()
        });
        assert_eq!(seen, (1..=20).collect::<Vec<_>>());
        // The child's reads were the last uses of the first five slots.
        assert_eq!(store.used(), 5);
        sound(&[space, &child]);
        child.destroy();
        for number in 5..20 {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
        assert_eq!(store.used(), 0);
        sound(&[space]);
    });
}

#[test]
fn shared_and_pinned_pages_stay() {
    each_policy(2, 32, |cpu, space, _, store| {
        map(cpu, 10);
        let mut pins = [None];
        assert_eq!(space.pin_pages(page(0), Taken::ToWrite, &mut pins), Ok(1));
        page_out(space, 0, 10);
        assert_eq!(store.used(), 9);
        drop(pins);
        let child = space.fork().unwrap();
        page_out(space, 0, 10);
        assert_eq!(store.used(), 9);
        assert_eq!(cpu.load(page(0)), Ok(1));
        child.destroy();
        sound(&[space]);
    });
}

#[test]
fn other_operations_free_the_slots() {
    each_policy(2, 32, |cpu, space, _, store| {
        map(cpu, 60);
        page_out(space, 0, 60);
        assert_eq!(space.munmap(page(0), 10 * PAGE), Ok(()));
        assert_eq!(store.used(), 50);
        assert_eq!(space.madvise(page(10), 10 * PAGE, advice::DONTNEED), Ok(()));
        assert_eq!(store.used(), 40);
        assert_eq!(space.madvise(page(20), 10 * PAGE, advice::FREE), Ok(()));
        assert_eq!(store.used(), 30);
        assert_eq!(
            space.madvise(page(30), 10 * PAGE, advice::GUARD_INSTALL),
            Ok(())
        );
        assert_eq!(store.used(), 20);
        assert_eq!(space.mmap(page(40), 10 * PAGE, RW, ANON), Ok(page(40)));
        assert_eq!(store.used(), 10);
        sound(&[space]);
        for number in (10..30).chain(40..50) {
            assert_eq!(cpu.load(page(number)), Ok(0), "page {number}");
        }
        assert!(matches!(cpu.load(page(30)), Err(Trap::Segv { .. })));
        for number in 50..60 {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
        assert_eq!(store.used(), 0);
        sound(&[space]);
    });
}

#[test]
fn a_space_that_ends_frees_its_slots() {
    each_policy(2, 32, |cpu, space, _, store| {
        map(cpu, 10);
        let child = space.fork().unwrap();
        assert_eq!(space.munmap(page(0), 10 * PAGE), Ok(()));
        on_another(&child, |cpu| {
            // The last mapping is exclusive again once it is written.
            (0..10).for_each(|number| cpu.store(page(number), 5).unwrap());
        });
        assert_eq!(child.madvise(AT, 10 * PAGE, advice::PAGEOUT), Ok(()));
        assert_eq!(store.used(), 10);
        child.destroy();
        assert_eq!(store.used(), 0);
        sound(&[space]);
    });
}

#[test]
fn a_swapped_page_moves_and_keeps_its_rights() {
    each_policy(2, 32, |cpu, space, _, store| {
        map(cpu, 10);
        page_out(space, 0, 10);
        let to = AT + (1 << 30);
        let moved = space.mremap(
            AT,
            10 * PAGE,
            10 * PAGE,
            remap_flags::MAYMOVE | remap_flags::FIXED,
            to,
        );
        assert_eq!(moved, Ok(to));
        assert_eq!(space.mprotect(to, 10 * PAGE, 1), Ok(()));
        sound(&[space]);
        for number in 0..10 {
            assert_eq!(cpu.load(to + number * PAGE), Ok(number + 1));
            assert!(matches!(
                cpu.store(to + number * PAGE, 0),
                Err(Trap::Segv { .. })
            ));
        }
        assert_eq!(space.mprotect(to, 10 * PAGE, RW), Ok(()));
        cpu.store(to, 9).unwrap();
        assert_eq!(store.used(), 0);
        sound(&[space]);
    });
}

#[test]
fn soft_dirty_tracking_sees_the_first_store_to_a_page_that_came_back() {
    each_policy(2, 32, |cpu, space, _, _| {
        map(cpu, 3);
        space.clear_soft_dirty();
        cpu.store(page(2), 5).unwrap();
        page_out(space, 0, 3);
        let dirty = |number| space.page_state(page(number)).soft_dirty;
        assert_eq!([0, 1, 2].map(dirty), [false, false, true]);
        assert_eq!(cpu.load(page(0)), Ok(1));
        assert_eq!(cpu.load(page(1)), Ok(2));
        assert!(!dirty(0));
        cpu.store(page(0), 6).unwrap();
        assert_eq!([0, 1].map(dirty), [true, false]);
        sound(&[space]);
    });
}

#[test]
fn a_store_before_the_mapping_became_read_only_stays_soft_dirty() {
    each_policy(2, 32, |cpu, space, _, _| {
        map(cpu, 1);
        space.clear_soft_dirty();
        cpu.store(page(0), 5).unwrap();
        assert_eq!(space.mprotect(page(0), PAGE, 1), Ok(()));
        page_out(space, 0, 1);
        assert_eq!(cpu.load(page(0)), Ok(5));
        assert!(space.page_state(page(0)).soft_dirty);
        sound(&[space]);
    });
}

#[test]
fn pagemap_and_usage_tell_what_was_swapped_out() {
    const SWAPPED: u64 = 1 << 62;
    each_policy(2, 32, |cpu, space, _, store| {
        map(cpu, 4);
        page_out(space, 1, 2);
        let mut entries = [0; 4];
        assert_eq!(space.pagemap(page(0) / PAGE, &mut entries, true), 4);
        let is_swapped = entries.map(|entry| entry & SWAPPED != 0);
        assert_eq!(is_swapped, [false, true, true, false]);
        let slots = [1, 2].map(|at: usize| entries[at] >> 5 & 0xffff_ffff);
        assert!(slots.iter().all(|&slot| slot < SLOTS) && slots[0] != slots[1]);
        let usage = space.usage(page(0)..page(4));
        assert_eq!((usage.swapped, usage.resident), (2 * PAGE, 2 * PAGE));
        assert_eq!((space.rss().swapped, store.used()), (2, 2));
        sound(&[space]);
    });
}

/// A breakpoint lies in a private copy of a file's page, which is swapped out like other anonymous pages.
#[test]
fn a_breakpoint_in_a_swapped_copy_ends_with_its_probe() {
    const BYTE: u64 = 2 * PAGE + 8;
    each_policy(2, 32, |cpu, space, _, store| {
        let file = File::of_device(cpu, 8);
        let opened = Opened {
            store: Ok(&file.store),
            offset: 0,
            file: 3,
            writable: true,
        };
        let how = flags::PRIVATE | flags::FIXED;
        assert_eq!(space.mmap_object(AT, 8 * PAGE, 5, how, &opened), Ok(AT));
        let original = cpu.load_u8(AT + BYTE).unwrap();
        let probe = Probe::register(&file.store, BYTE, 0xcc, BYTE).unwrap();
        assert_eq!(cpu.load_u8(AT + BYTE), Ok(0xcc));
        page_out(space, 0, 8);
        assert_eq!(store.used(), 1);
        sound(&[space]);
        drop(probe);
        assert_eq!(cpu.load_u8(AT + BYTE), Ok(original));
        sound(&[space]);
    });
}

/// Its breakpoint would come back, and be no probe's.
#[test]
fn a_probe_stays_while_its_page_cannot_come_back() {
    each_policy(2, 32, |cpu, space, memory, store| {
        const BYTE: u64 = 2 * PAGE + 8;
        let file = File::of_device(cpu, 8);
        let opened = Opened {
            store: Ok(&file.store),
            offset: 0,
            file: 3,
            writable: false,
        };
        let how = flags::PRIVATE | flags::FIXED;
        assert_eq!(space.mmap_object(AT, 8 * PAGE, 5, how, &opened), Ok(AT));
        let original = cpu.load_u8(AT + BYTE).unwrap();
        let probe = Probe::register(&file.store, BYTE, 0xcc, BYTE).unwrap();
        page_out(space, 0, 8);
        assert_eq!(store.used(), 1);
        store.broken.store(1, Ordering::Relaxed);
        let (probe, error) = probe.end().expect_err("the device fails");
        assert_eq!(error, Errno::EIO);
        store.broken.store(0, Ordering::Relaxed);
        memory.machine().fail_from(Some(0));
        let ended = probe.end();
        memory.machine().fail_from(None);
        let (probe, error) = ended.expect_err("there is no memory");
        assert_eq!(error, Errno::ENOMEM);
        // It is still known, for a trap there.
        assert_eq!(cpu.load_u8(AT + BYTE), Ok(0xcc));
        assert_eq!(space.probe_at(AT + BYTE), Some(BYTE));
        page_out(space, 0, 8);
        assert!(probe.end().is_ok());
        assert_eq!(cpu.load_u8(AT + BYTE), Ok(original));
        sound(&[space]);
    });
}
