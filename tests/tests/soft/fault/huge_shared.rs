//! Huge pages of shared memory: added by the first fault, mapped by one entry in each space, and split where an operation ends in
//! one.

use faultless_mm::{Counter, HugeMode, MemoryObject, Opened, Policy, advice, flags, remap_flags};
use faultless_soft::{SoftCpu, SoftMemory, SoftSpace};
use faultless_tests::counting::{counted, faults};
use faultless_tests::each_policy;

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
const RW: u32 = 3;
const SHARED: u32 = flags::SHARED | flags::FIXED;
/// An address at which tables of every level begin.
const AT: u64 = 1 << 36;
/// Another one.
const OTHER: u64 = 1 << 37;

type Object = MemoryObject<faultless_soft::Soft>;

/// Runs `work` under every policy with an object of `huge` huge pages, mapped shared at [`AT`].
fn with_object(
    huge: u64,
    work: impl Fn(&SoftCpu, &SoftSpace, &'static SoftMemory, &Object, Policy),
) {
    each_policy(2, 64, |cpu, space, memory| {
        memory.set_shared_huge_mode(HugeMode::Always);
        let object = MemoryObject::new(memory, huge * HUGE, None, 0).unwrap();
        map(space, &object, AT, huge * HUGE, SHARED);
        work(cpu, space, memory, &object, space.policy());
        space.verify().unwrap();
        let shown = space.usage(AT..OTHER + (1 << 30)).object_huge / HUGE;
        assert_eq!(mapped(memory).1, shown);
        space.munmap(AT, huge * HUGE).unwrap();
        space.munmap(OTHER, huge * HUGE).unwrap();
        assert_eq!(memory.object_huge_pages().1, 0);
        drop(object);
        memory.expedite();
        assert_eq!(mapped(memory), (0, 0));
    });
}

fn map(space: &SoftSpace, object: &Object, at: u64, bytes: u64, map_flags: u32) {
    let opened = Opened {
        store: Ok(object),
        offset: 0,
        file: 1,
        writable: true,
    };
    let mapped = space.mmap_object(at, bytes, RW, map_flags, &opened);
    assert_eq!(mapped, Ok(at));
}

fn mapped(memory: &SoftMemory) -> (u64, u64) {
    memory.object_huge_pages()
}

fn fill(cpu: &SoftCpu, at: u64) {
    (0..512).for_each(|page| cpu.store(at + page * PAGE, page + 1).unwrap());
}

fn check(cpu: &SoftCpu, at: u64) {
    (0..512).for_each(|page| assert_eq!(cpu.load(at + page * PAGE), Ok(page + 1), "{page}"));
}

#[test]
fn a_write_adds_and_maps_a_huge_page() {
    with_object(2, |cpu, space, memory, object, policy| {
        let mut expected = faults(policy, 1);
        // The tables of the two levels above.
        expected.extend([
            (Counter::ThpFileAlloc, 1),
            (Counter::ThpFileMapped, 1),
            (Counter::TableAlloc, 2),
        ]);
        let (counts, ()) = counted(memory, || fill(cpu, AT));
        counts.are(&expected, "the first");
        check(cpu, AT);
        assert_eq!(mapped(memory), (1, 1));
        assert_eq!(object.pages(), 512);
        assert_eq!(space.rss().shared_memory, 512);
        // The same page elsewhere: mapped by one entry, and nothing is added.
        map(space, object, OTHER, 2 * HUGE, SHARED);
        let mut expected = faults(policy, 1);
        expected.extend([(Counter::ThpFileMapped, 1), (Counter::TableAlloc, 1)]);
        let (counts, ()) = counted(memory, || check(cpu, OTHER));
        counts.are(&expected, "the second");
        cpu.store(OTHER + PAGE, 7).unwrap();
        assert_eq!(cpu.load(AT + PAGE), Ok(7));
        assert_eq!(mapped(memory), (1, 2));
    });
}

#[test]
fn a_read_maps_it_for_stores_of_a_new_mapping() {
    with_object(1, |cpu, _, memory, _, policy| {
        let mut expected = faults(policy, 1);
        expected.extend([
            (Counter::ThpFileAlloc, 1),
            (Counter::ThpFileMapped, 1),
            (Counter::TableAlloc, 2),
        ]);
        let (counts, ()) = counted(memory, || {
            assert_eq!(cpu.load(AT), Ok(0));
            fill(cpu, AT);
        });
        counts.are(&expected, "both");
    });
}

#[test]
fn a_private_mapping_reads_it_and_copies_small_pages() {
    with_object(1, |cpu, space, memory, object, _| {
        fill(cpu, AT);
        map(space, object, OTHER, HUGE, flags::PRIVATE | flags::FIXED);
        check(cpu, OTHER);
        assert_eq!(mapped(memory), (1, 2));
        cpu.store(OTHER + 3 * PAGE, 99).unwrap();
        assert_eq!(mapped(memory), (1, 1));
        assert_eq!(cpu.load(OTHER + 3 * PAGE), Ok(99));
        check(cpu, AT);
        assert_eq!(space.rss().anonymous, 1);
    });
}

#[test]
fn a_part_goes_alone() {
    with_object(2, |cpu, space, memory, object, _| {
        fill(cpu, AT);
        fill(cpu, AT + HUGE);
        assert_eq!(mapped(memory), (2, 2));
        space.munmap(AT + 5 * PAGE, PAGE).unwrap();
        assert_eq!(mapped(memory), (2, 1), "the object keeps it");
        assert_eq!(cpu.load(AT + 6 * PAGE), Ok(7));
        map(space, object, OTHER, 2 * HUGE, SHARED);
        check(cpu, OTHER);
        assert_eq!(mapped(memory), (2, 2));
        // A hole ends it everywhere.
        object.punch(PAGE..2 * PAGE).unwrap();
        assert_eq!(mapped(memory), (1, 1));
        assert_eq!(cpu.load(OTHER + PAGE), Ok(0));
        assert_eq!(cpu.load(OTHER + 2 * PAGE), Ok(3));
        check(cpu, AT + HUGE);
        object.truncate(HUGE).unwrap();
        assert_eq!(mapped(memory), (0, 0));
        assert!(cpu.load(OTHER + HUGE).is_err());
    });
}

#[test]
fn protection_and_discards_are_of_the_whole() {
    with_object(1, |cpu, space, memory, _, _| {
        fill(cpu, AT);
        space.mprotect(AT, HUGE, 1).unwrap();
        assert_eq!(mapped(memory), (1, 1));
        assert!(cpu.store(AT, 1).is_err());
        space.mprotect(AT, HUGE, RW).unwrap();
        fill(cpu, AT);
        assert_eq!(mapped(memory), (1, 1));
        space.madvise(AT, HUGE, advice::DONTNEED).unwrap();
        assert_eq!(mapped(memory), (1, 0));
        assert_eq!(space.rss().shared_memory, 0);
        check(cpu, AT);
        assert_eq!(mapped(memory), (1, 1));
        space.mprotect(AT + PAGE, PAGE, 1).unwrap();
        assert_eq!(mapped(memory), (1, 0));
        check(cpu, AT);
    });
}

#[test]
fn it_moves_whole_and_forks_by_the_object() {
    with_object(1, |cpu, space, memory, _, _| {
        fill(cpu, AT);
        let to = space.mremap(
            AT,
            HUGE,
            HUGE,
            remap_flags::MAYMOVE | remap_flags::FIXED,
            OTHER,
        );
        assert_eq!(to, Ok(OTHER));
        check(cpu, OTHER);
        assert_eq!(mapped(memory), (1, 1));
        let child = space.fork().unwrap();
        assert_eq!(mapped(memory), (1, 1), "the child finds it in the object");
        cpu.store(OTHER, 77).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                SoftCpu::run(&child, 1, |cpu| {
                    assert_eq!(cpu.load(OTHER), Ok(77));
                    cpu.store(OTHER + PAGE, 78).unwrap();
                });
            });
        });
        assert_eq!(mapped(memory), (1, 2));
        assert_eq!(cpu.load(OTHER + PAGE), Ok(78));
        child.verify().unwrap();
        assert_eq!(child.destroy(), 512);
        assert_eq!(mapped(memory), (1, 1));
    });
}

#[test]
fn the_settings_say_where() {
    each_policy(2, 64, |cpu, space, memory| {
        memory.set_huge_mode(HugeMode::Always);
        memory.set_shared_huge_mode(HugeMode::Never);
        let bytes = 2 * HUGE;
        let shared = flags::SHARED | flags::ANONYMOUS | flags::FIXED;
        space.mmap(AT, bytes, RW, shared).unwrap();
        cpu.store(AT, 1).unwrap();
        assert_eq!(mapped(memory), (0, 0));
        memory.set_shared_huge_mode(HugeMode::Advised);
        space.mmap(AT, bytes, RW, shared).unwrap();
        cpu.store(AT, 1).unwrap();
        assert_eq!(mapped(memory), (0, 0));
        space.madvise(AT + HUGE, HUGE, advice::HUGEPAGE).unwrap();
        cpu.store(AT + HUGE, 1).unwrap();
        assert_eq!(mapped(memory), (1, 1));
        space.munmap(AT, bytes).unwrap();
        memory.expedite();
        assert_eq!(mapped(memory), (0, 0));
        // A span that is not all before the end has small pages.
        memory.set_shared_huge_mode(HugeMode::Always);
        let object = MemoryObject::new(memory, HUGE + PAGE, None, 0).unwrap();
        map(space, &object, AT, bytes, SHARED);
        cpu.store(AT, 1).unwrap();
        cpu.store(AT + HUGE, 1).unwrap();
        assert_eq!(mapped(memory), (1, 1));
        assert!(cpu.store(AT + HUGE + PAGE, 1).is_err());
    });
}
