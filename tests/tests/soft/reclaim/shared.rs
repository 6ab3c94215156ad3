//! More memory than there is in pages that several entries show: after forks, in shared memory, in files.

use faultless_frames::FrameSource;
use faultless_mm::{AddressSpace, Counter, Cpu, Errno, Policy, flags, remap_flags};
use faultless_soft::{SoftCpu, SoftMemory, SoftSpace, Trap};
use faultless_tests::file_injection::{AT, File, OTHER, PAGE, PRIVATE, SHARED, expect, touch};
use faultless_tests::{available, verify_and_destroy};

use super::overcommit::{ANON, FRAMES, RW, machine, space};
use super::swap::Store;

/// Runs a test under each policy, on CPU 0 of a machine of 8 MiB with a device. Asserts that nothing leaked.
fn each_policy(test: impl Fn(&SoftCpu<'_>, &SoftSpace, &'static SoftMemory, &'static Store)) {
    for &policy in Policy::ALL {
        let (memory, store) = machine(1);
        let before = available(memory);
        let space = space(memory, policy);
        SoftCpu::run(&space, 0, |cpu| test(cpu, &space, memory, store));
        verify_and_destroy(space, before);
        assert_eq!(store.used(), 0, "slots were lost");
    }
}

/// Uses up memory with pages of the space's own.
fn press(cpu: &SoftCpu<'_>, pages: u64) {
    assert_eq!(cpu.space().mmap(OTHER, pages * PAGE, RW, ANON), Ok(OTHER));
    (0..pages).for_each(|page| cpu.store(OTHER + page * PAGE, page).unwrap());
    cpu.space().munmap(OTHER, pages * PAGE).unwrap();
}

#[test]
fn pages_that_forks_share_come_back_in_every_space() {
    each_policy(|cpu, space, memory, store| {
        let pages = FRAMES / 4;
        space.mmap(AT, pages * PAGE, RW, ANON).unwrap();
        touch(cpu, AT, pages, 7);
        let children = [space.fork().unwrap(), space.fork().unwrap()];
        // Each space's use has to be forgotten first.
        (0..4).for_each(|_| press(cpu, FRAMES * 3 / 2));
        assert!(store.used() as u64 >= pages / 2, "{} slots", store.used());
        AddressSpace::verify_together(&[space, &children[0], &children[1]]).unwrap();
        let read = |cpu: &SoftCpu<'_>| {
            (0..pages).for_each(|page| expect(cpu, AT + page * PAGE, 7 + page));
        };
        // What one space writes, the others do not see.
        read(cpu);
        touch(cpu, AT, pages, 70_000);
        for child in children {
            cpu.pause(|| SoftCpu::run(&child, 0, read));
            child.destroy();
        }
        let copies = memory.total(Counter::Copies);
        touch(cpu, AT, pages, 7);
        assert_eq!(
            memory.total(Counter::Copies),
            copies,
            "the last owner copies"
        );
    });
}

#[test]
fn shared_memory_is_swapped() {
    each_policy(|cpu, space, memory, store| {
        let pages = FRAMES * 3 / 2;
        let file = File::of_zeroes(cpu, pages);
        file.map(cpu, AT, pages, SHARED).unwrap();
        // Two entries for each page.
        file.map(cpu, OTHER, pages, SHARED).unwrap();
        touch(cpu, AT, pages, 1);
        for base in [OTHER, AT] {
            (0..pages).for_each(|page| expect(cpu, base + page * PAGE, page + 1));
        }
        assert!(store.used() as u64 >= pages - FRAMES);
        assert!(memory.total(Counter::SwapIn) > 0);
        assert_eq!(file.store.pages(), pages);
        // Holes and truncations free what was swapped out.
        file.store.punch(0..pages / 2 * PAGE).unwrap();
        (0..pages / 2).for_each(|page| expect(cpu, AT + page * PAGE, 0));
        file.store.truncate(0).unwrap();
        assert_eq!(store.used(), 0);
        space.munmap(AT, pages * PAGE).unwrap();
        space.munmap(OTHER, pages * PAGE).unwrap();
    });
}

#[test]
fn a_file_without_mappings_is_swapped() {
    each_policy(|cpu, _, memory, _| {
        let pages = FRAMES * 3 / 2;
        let file = File::of_zeroes(cpu, pages);
        let write = |page| {
            let pinned = match file.store.page_to_write(page) {
                Err(Errno::ENOMEM) if memory.reclaim_some() => return false,
                pinned => pinned.unwrap(),
            };
            let at = faultless_mm::PhysicalMemory::pointer(memory.machine(), pinned.frame());
            // SAFETY: the page is pinned, and nothing else writes it.
            unsafe { at.cast::<u64>().write(page + 1) };
            true
        };
        (0..pages).for_each(|page| while !write(page) {});
        file.map(cpu, AT, pages, PRIVATE | flags::NORESERVE)
            .unwrap();
        (0..pages).for_each(|page| expect(cpu, AT + page * PAGE, page + 1));
        cpu.space().munmap(AT, pages * PAGE).unwrap();
    });
}

#[test]
fn clean_pages_of_files_are_dropped_and_written_ones_are_kept() {
    each_policy(|cpu, space, memory, _| {
        let pages = FRAMES * 3 / 2;
        let file = File::of_device(cpu, pages);
        let device = file.device.unwrap();
        file.map(cpu, AT, pages, PRIVATE | flags::NORESERVE)
            .unwrap();
        let read = || (0..pages).for_each(|page| expect(cpu, AT + page * PAGE, file.fresh(page)));
        read();
        read();
        assert!(device.reads() > pages, "nothing was read again");
        assert_eq!(
            memory.total(Counter::SwapOut),
            0,
            "a clean page was written"
        );
        file.is_sound();
        // Written through an entry that was made for reading, and raised.
        file.map(cpu, OTHER, pages, SHARED).unwrap();
        (0..pages).step_by(2).for_each(|page| {
            let at = OTHER + page * PAGE;
            space.mprotect(at, PAGE, 1).unwrap();
            expect(cpu, at, file.fresh(page));
            space.mprotect(at, PAGE, RW).unwrap();
            cpu.store(at, page).unwrap();
        });
        space.munmap(OTHER, pages * PAGE).unwrap();
        press(cpu, FRAMES);
        for page in 0..pages {
            let expected = if page % 2 == 0 {
                page
            } else {
                file.fresh(page)
            };
            expect(cpu, AT + page * PAGE, expected);
        }
        assert!(memory.total(Counter::SwapOut) > 0);
        file.is_sound();
        space.munmap(AT, pages * PAGE).unwrap();
    });
}

#[test]
fn locked_and_pinned_pages_stay() {
    each_policy(|cpu, space, memory, _| {
        let pages = FRAMES / 8;
        let file = File::of_zeroes(cpu, pages);
        file.map(cpu, AT, pages, SHARED).unwrap();
        touch(cpu, AT, pages, 1);
        space.mlock(AT, pages * PAGE, 0).unwrap();
        let private = AT + pages * PAGE;
        space.mmap(private, pages * PAGE, RW, ANON).unwrap();
        touch(cpu, private, pages, 1);
        space.mlock(private, pages * PAGE, 0).unwrap();
        let children = [space.fork().unwrap()];
        press(cpu, 2 * FRAMES);
        let was = memory.total(Counter::MajorFaults);
        (0..2 * pages).for_each(|page| expect(cpu, AT + page * PAGE, page % pages + 1));
        assert_eq!(
            memory.total(Counter::MajorFaults),
            was,
            "a locked page was gone"
        );
        children.into_iter().for_each(|child| {
            child.destroy();
        });
        space.munmap(AT, 2 * pages * PAGE).unwrap();
    });
}

/// A device that fails costs the page that it cannot return, for as long as it fails.
#[test]
fn a_failing_device_is_an_error_of_the_page() {
    each_policy(|cpu, space, _, store| {
        let pages = FRAMES / 8;
        let file = File::of_zeroes(cpu, pages);
        file.map(cpu, AT, pages, SHARED).unwrap();
        touch(cpu, AT, pages, 1);
        press(cpu, 2 * FRAMES);
        press(cpu, 2 * FRAMES);
        store.broken.store(1, std::sync::atomic::Ordering::Relaxed);
        let seen: Vec<_> = (0..pages).map(|page| cpu.load(AT + page * PAGE)).collect();
        let fails = seen
            .iter()
            .any(|seen| matches!(seen, Err(Trap::Bus { .. })));
        assert!(fails, "nothing was swapped out");
        store.broken.store(0, std::sync::atomic::Ordering::Relaxed);
        (0..pages).for_each(|page| expect(cpu, AT + page * PAGE, page + 1));
        space.munmap(AT, pages * PAGE).unwrap();
    });
}

/// A truncation into a page that was swapped out needs the page. Without a frame for it, nothing changes.
#[test]
fn a_truncation_into_a_swapped_page_needs_it() {
    each_policy(|cpu, space, memory, _| {
        let file = File::of_zeroes(cpu, 1);
        file.map(cpu, AT, 1, SHARED).unwrap();
        cpu.store(AT + 2048, 77).unwrap();
        press(cpu, 2 * FRAMES);
        press(cpu, 2 * FRAMES);
        let source = memory.machine().allocator();
        let mut held = Vec::new();
        while let Ok(frame) = source.allocate(Cpu(0)) {
            held.push(frame);
        }
        assert_eq!(file.store.truncate(100), Err(Errno::ENOMEM));
        assert_eq!(file.store.punch(0..100), Err(Errno::ENOMEM));
        assert_eq!(file.store.size(), PAGE);
        held.into_iter()
            .for_each(|frame| source.free(Cpu(0), frame));
        expect(cpu, AT + 2048, 77);
        file.store.truncate(100).unwrap();
        file.store.extend(PAGE);
        expect(cpu, AT + 2048, 0);
        space.munmap(AT, PAGE).unwrap();
    });
}

/// The descriptors of pages that have moved with their tables have the old page numbers.
#[test]
fn pages_that_were_moved_before_a_fork_leave() {
    each_policy(|cpu, space, memory, store| {
        let (pages, to) = (FRAMES / 4, AT + (1 << 35));
        space.mmap(AT, pages * PAGE, RW, ANON).unwrap();
        touch(cpu, AT, pages, 7);
        let how = remap_flags::MAYMOVE | remap_flags::FIXED;
        space
            .mremap(AT, pages * PAGE, pages * PAGE, how, to)
            .unwrap();
        let child = space.fork().unwrap();
        (0..4).for_each(|_| press(cpu, FRAMES * 3 / 2));
        assert!(store.used() as u64 >= pages / 2, "{} slots", store.used());
        AddressSpace::verify_together(&[space, &child]).unwrap();
        child.destroy();
        (0..pages).for_each(|page| expect(cpu, to + page * PAGE, 7 + page));
        assert!(memory.total(Counter::SwapIn) > 0);
    });
}
