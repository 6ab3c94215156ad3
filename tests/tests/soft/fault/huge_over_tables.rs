//! Huge pages where small ones left an empty table: after a discard, a move, and a mapping over an old one.

use faultless_mm::{Counter, HugeMode, advice, flags, remap_flags};
use faultless_soft::{SoftCpu, SoftMemory, SoftSpace};
use faultless_tests::counting::{counted, faults};
use faultless_tests::each_policy;

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
const AT: u64 = 1 << 36;

/// Small pages in a span that then gets huge ones, taken away again by `vacate`: the next write takes one fault for all.
fn after(vacate: impl Fn(&SoftCpu, &SoftSpace, &'static SoftMemory)) {
    each_policy(2, 64, |cpu, space, memory| {
        memory.set_huge_mode(HugeMode::Never);
        space.mmap(AT, HUGE, RW, ANON).unwrap();
        (0..4).for_each(|page| cpu.store(AT + page * 9 * PAGE, 7).unwrap());
        memory.set_huge_mode(HugeMode::Always);
        vacate(cpu, space, memory);
        let mut expected = faults(space.policy(), 1);
        expected.extend([
            (Counter::ThpFaultAlloc, 1),
            (Counter::TableFree, 1),
            (Counter::TlbLocalFlushAll, 1),
        ]);
        let (counts, ()) = counted(memory, || {
            (0..512).for_each(|page| cpu.store(AT + page * PAGE, page).unwrap());
        });
        counts.are(&expected, "one fault");
        assert_eq!(space.usage(AT..AT + HUGE).huge, HUGE);
        space.munmap(AT, HUGE).unwrap();
        space.verify().unwrap();
    });
}

#[test]
fn after_a_discard() {
    after(|_, space, _| space.madvise(AT, HUGE, advice::DONTNEED).unwrap());
}

#[test]
fn after_a_mapping_over_the_old_one() {
    after(|_, space, _| {
        space.mmap(AT, HUGE, RW, ANON).unwrap();
    });
}

#[test]
fn after_a_move_page_by_page() {
    after(|_, space, _| {
        let to = AT + 3 * HUGE + PAGE;
        let moves = remap_flags::MAYMOVE | remap_flags::FIXED | remap_flags::DONTUNMAP;
        assert_eq!(space.mremap(AT, HUGE, HUGE, moves, to), Ok(to));
        space.munmap(to, HUGE).unwrap();
    });
}

/// A read maps the huge zero page; a page that is there keeps the table.
#[test]
fn reads_and_tables_in_use() {
    each_policy(2, 64, |cpu, space, memory| {
        memory.set_huge_mode(HugeMode::Never);
        space.mmap(AT, 2 * HUGE, RW, ANON).unwrap();
        cpu.store(AT, 1).unwrap();
        cpu.store(AT + HUGE + 511 * PAGE, 1).unwrap();
        space.madvise(AT, HUGE, advice::DONTNEED).unwrap();
        memory.set_huge_mode(HugeMode::Always);
        let mut expected = faults(space.policy(), 1);
        expected.extend([
            (Counter::ThpZeroPageMaps, 1),
            (Counter::TableFree, 1),
            (Counter::TlbLocalFlushAll, 1),
        ]);
        let (counts, read) = counted(memory, || cpu.load(AT + 8 * PAGE));
        assert_eq!(read, Ok(0));
        counts.are(&expected, "the huge zero page");
        let (counts, ()) = counted(memory, || cpu.store(AT + HUGE, 2).unwrap());
        counts.are(&faults(space.policy(), 1), "a small page");
        space.verify().unwrap();
    });
}
