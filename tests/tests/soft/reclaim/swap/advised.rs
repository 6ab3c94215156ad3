//! What `MADV_PAGEOUT` takes beside private pages with content: shared memory, files, and what the program does not need.

use super::*;

const SHARED: u32 = flags::SHARED | flags::ANONYMOUS | flags::FIXED;
const DROPPABLE: u32 = flags::DROPPABLE | flags::ANONYMOUS | flags::FIXED;

fn map_as(cpu: &SoftCpu<'_>, pages: u64, kind: u32) {
    assert_eq!(cpu.space().mmap(AT, pages * PAGE, RW, kind), Ok(AT));
    for number in 0..pages {
        cpu.store(page(number), number + 1).unwrap();
    }
}

#[test]
fn shared_memory_goes_out_and_comes_back() {
    each_policy(2, 32, |cpu, space, memory, store| {
        map_as(cpu, 100, SHARED);
        page_out(space, 0, 90);
        assert_eq!(store.used(), 90);
        sound(&[space]);
        let reads = during(memory, Counter::SwapIn, || {
            for number in 0..100 {
                assert_eq!(cpu.load(page(number)), Ok(number + 1));
            }
        });
        assert_eq!(reads, 90);
        assert_eq!(store.used(), 0);
        sound(&[space]);
    });
}

#[test]
fn pages_of_a_file_go_out_through_either_mapping() {
    each_policy(2, 32, |cpu, space, memory, store| {
        let file = File::of_zeroes(cpu, 20);
        let map = |at, kind| {
            let at = file.map(cpu, at, 20, kind | flags::FIXED);
            assert!(at.is_ok(), "{at:?}");
        };
        map(AT, flags::SHARED);
        for number in 0..20 {
            cpu.store(page(number), number + 1).unwrap();
        }
        page_out(space, 0, 20);
        assert_eq!(store.used(), 20);
        map(page(100), flags::PRIVATE);
        cpu.store(page(100), 99).unwrap();
        // Comes back, for this mapping alone.
        assert_eq!(cpu.load(page(101)), Ok(2));
        assert_eq!(store.used(), 18);
        // The copy, and the file's page.
        page_out(space, 100, 20);
        assert_eq!(store.used(), 20);
        // Two entries show this one, so it stays.
        assert_eq!(cpu.load(page(5)), Ok(6));
        assert_eq!(cpu.load(page(105)), Ok(6));
        assert_eq!(store.used(), 19);
        let written = during(memory, Counter::SwapOut, || page_out(space, 0, 20));
        // The file's first page, which was mapped around it.
        assert_eq!(written, 1);
        sound(&[space]);
        for number in 0..20 {
            let private = if number == 0 { 99 } else { number + 1 };
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
            assert_eq!(cpu.load(page(100 + number)), Ok(private));
        }
        assert_eq!(store.used(), 0);
        sound(&[space]);
    });
}

#[test]
fn pages_of_objects_that_are_needed_come_back() {
    each_policy(2, 32, |cpu, space, memory, store| {
        let file = File::of_zeroes(cpu, 20);
        let map = |at, kind| {
            let at = file.map(cpu, at, 20, kind | flags::FIXED);
            assert!(at.is_ok(), "{at:?}");
        };
        map(AT, flags::SHARED);
        for number in 0..20 {
            cpu.store(page(number), number + 1).unwrap();
        }
        map(page(20), flags::PRIVATE);
        cpu.store(page(25), 99).unwrap();
        page_out(space, 0, 40);
        assert_eq!(store.used(), 21);
        let reads = during(memory, Counter::SwapIn, || {
            let needed = space.madvise(page(5), 25 * PAGE, advice::WILLNEED);
            assert_eq!(needed, Ok(()));
        });
        // Through either mapping, but for the private copy.
        assert_eq!((reads, store.used()), (20, 1));
        let mut there = Vec::new();
        let seen = space.mincore(AT, 40 * PAGE, |_, bytes| {
            there.extend_from_slice(bytes);
            Ok(())
        });
        assert_eq!(seen, Ok(()));
        let out = (0..40).filter(|&number| there[number] == 0);
        assert_eq!(out.collect::<Vec<_>>(), [25]);
        sound(&[space]);
        for number in 0..20 {
            let private = if number == 5 { 99 } else { number + 1 };
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
            assert_eq!(cpu.load(page(20 + number)), Ok(private));
        }
    });
}

/// Objects change in the middle of a batch.
#[test]
fn neighbours_of_all_sorts_go_out_in_one_call() {
    each_policy(1, 32, |cpu, space, _, store| {
        for number in 0..60 {
            let kind = if number % 3 == 0 { ANON } else { SHARED };
            let at = page(number);
            assert_eq!(space.mmap(at, PAGE, RW, kind), Ok(at));
            cpu.store(at, number + 1).unwrap();
        }
        page_out(space, 0, 60);
        assert_eq!(store.used(), 60);
        sound(&[space]);
        for number in 0..60 {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
    });
}

#[test]
fn pages_that_the_program_does_not_need_are_discarded() {
    each_policy(1, 32, |cpu, space, memory, store| {
        map_as(cpu, 10, ANON);
        assert_eq!(space.madvise(AT, 10 * PAGE, advice::FREE), Ok(()));
        // Needed again.
        cpu.store(page(3), 33).unwrap();
        let discarded = during(memory, Counter::LazyFreed, || page_out(space, 0, 10));
        assert_eq!((discarded, store.used()), (9, 1));
        sound(&[space]);
        for number in 0..10 {
            let content = if number == 3 { 33 } else { 0 };
            assert_eq!(cpu.load(page(number)), Ok(content));
        }
        map_as(cpu, 10, DROPPABLE);
        page_out(space, 0, 10);
        assert_eq!(store.used(), 0);
        for number in 0..10 {
            assert_eq!(cpu.load(page(number)), Ok(0));
        }
    });
}

#[test]
fn without_a_device_only_these_leave() {
    let memory = machine(1, 32);
    let before = available(memory);
    let space = SoftCpu::attend(memory, 0, || Soft::space(memory, Policy::default())).unwrap();
    SoftCpu::run(&space, 0, |cpu| {
        map_as(cpu, 10, ANON);
        assert_eq!(space.madvise(page(5), 5 * PAGE, advice::FREE), Ok(()));
        page_out(&space, 0, 10);
        map_as_shared(cpu);
        page_out(&space, 20, 10);
        for number in 0..10 {
            let content = if number < 5 { number + 1 } else { 0 };
            assert_eq!(cpu.load(page(number)), Ok(content));
            assert_eq!(cpu.load(page(20 + number)), Ok(number + 1));
        }
        sound(&[&space]);
    });
    verify_and_destroy(space, before);
}

fn map_as_shared(cpu: &SoftCpu<'_>) {
    let at = page(20);
    assert_eq!(cpu.space().mmap(at, 10 * PAGE, RW, SHARED), Ok(at));
    for number in 0..10 {
        cpu.store(at + number * PAGE, number + 1).unwrap();
    }
}
