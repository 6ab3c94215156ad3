//! Soft-dirty bits and the output of `pagemap`, under every policy: which pages were written since
//! the last clearing, whatever has happened to them and to their mappings.

use faultless_mm::{
    AddressSpace, AgingMode, EntryFormat, MemoryObject, Opened, PAGE_SIZE, advice, flags,
    remap_flags,
};
use faultless_soft::{Entries, SoftCpu, SoftSpace};
use faultless_tests::each_policy;

const PAGE: u64 = PAGE_SIZE;
const NONE: u32 = 0;
const READ: u32 = 1;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
const SHARED: u32 = flags::SHARED | flags::ANONYMOUS | flags::FIXED;
/// The last pages of one table and the first of the next.
const AT: u64 = (1 << 36) - 4 * PAGE;
const PAGES: u64 = 8;

/// Bits of a `pagemap` word.
const SOFT: u64 = 1 << 55;
const EXCLUSIVE: u64 = 1 << 56;
const FILE: u64 = 1 << 61;
const PRESENT: u64 = 1 << 63;

fn page(number: u64) -> u64 {
    AT + number * PAGE
}

fn map(space: &SoftSpace, prot: u32, kind: u32) {
    assert_eq!(space.mmap(AT, PAGES * PAGE, prot, kind), Ok(AT));
}

/// The `pagemap` words of `PAGES` pages from an address on, without frames.
fn words(space: &SoftSpace, from: u64) -> Vec<u64> {
    let mut all = vec![0; PAGES as usize];
    assert_eq!(space.pagemap(from / PAGE, &mut all, false), all.len());
    all
}

/// The numbers of the pages that are soft-dirty.
fn written(space: &SoftSpace, from: u64) -> Vec<u64> {
    let words = words(space, from);
    (0..PAGES)
        .filter(|&number| words[number as usize] & SOFT != 0)
        .collect()
}

fn fill(cpu: &SoftCpu<'_>) {
    for number in 0..PAGES {
        cpu.store(page(number), number + 1).unwrap();
    }
}

fn everything() -> Vec<u64> {
    (0..PAGES).collect()
}

#[test]
fn what_is_new_counts_as_written_until_it_is_cleared() {
    each_policy(1, 64, |cpu, space, _| {
        for kind in [ANON, SHARED] {
            map(space, RW, kind);
            assert_eq!(words(space, AT), [SOFT; PAGES as usize]);
            space.clear_soft_dirty();
            assert_eq!(words(space, AT), [0; PAGES as usize]);
            // Reading is not writing, whatever it maps in.
            cpu.load(page(1)).unwrap();
            assert_eq!(written(space, AT), []);
            cpu.store(page(1), 1).unwrap();
            cpu.store(page(4), 1).unwrap();
            assert_eq!(written(space, AT), [1, 4]);
            space.clear_soft_dirty();
            assert_eq!(written(space, AT), []);
            // The page is in the TLB, and the store must be noticed nevertheless.
            cpu.store(page(4), 2).unwrap();
            cpu.load(page(1)).unwrap();
            assert_eq!(written(space, AT), [4]);
            space.verify().unwrap();
            space.munmap(AT, PAGES * PAGE).unwrap();
        }
    });
}

#[test]
fn pages_are_told_apart() {
    each_policy(2, 64, |cpu, space, _| {
        map(space, RW, ANON);
        cpu.load(page(0)).unwrap();
        cpu.store(page(1), 1).unwrap();
        space.mprotect(page(1), PAGE, NONE).unwrap();
        cpu.store(page(2), 1).unwrap();
        let shared = page(4);
        space.mmap(shared, 2 * PAGE, RW, SHARED).unwrap();
        cpu.store(shared, 1).unwrap();
        space.madvise(page(6), PAGE, advice::GUARD_INSTALL).unwrap();
        space.clear_soft_dirty();
        let own = PRESENT | EXCLUSIVE;
        let guard = 1 << 62 | 1 << 58;
        let expected = [PRESENT, own, own, 0, own | FILE, 0, guard, 0];
        assert_eq!(words(space, AT), expected);
        // Frames are shown only to a privileged reader.
        let mut with_frame = [0];
        space.pagemap(page(2) / PAGE, &mut with_frame, true);
        let frame = space.translate(page(2)).unwrap();
        assert_eq!(with_frame, [own | frame.0]);
        assert_eq!(space.page_state(page(2)).frame, Some(frame));
        // Pages are shared with the child, so not exclusive, but for shared memory, which the child has not touched.
        let child = space.fork().unwrap();
        let expected = [PRESENT, PRESENT, PRESENT, 0, own | FILE, 0, guard, 0];
        assert_eq!(words(space, AT), expected);
        let expected = [PRESENT, PRESENT, PRESENT, 0, 0, 0, guard, 0];
        assert_eq!(words(&child, AT), expected);
        child.destroy();
    });
}

#[test]
fn nothing_is_said_of_what_is_not_mapped() {
    each_policy(1, 64, |_, space, _| {
        map(space, RW, ANON);
        space.munmap(page(2), PAGE).unwrap();
        let mut expected = [SOFT; PAGES as usize];
        expected[2] = 0;
        assert_eq!(words(space, AT), expected);
        let end = space.layout().end / PAGE;
        let mut some = [1; 4];
        assert_eq!(space.pagemap(end - 1, &mut some, true), 1);
        assert_eq!(space.pagemap(end, &mut some, true), 0);
        assert_eq!(space.pagemap(u64::MAX, &mut some, true), 0);
    });
}

#[test]
fn changes_of_protection_lose_no_store() {
    each_policy(1, 64, |cpu, space, _| {
        for kind in [ANON, SHARED] {
            map(space, RW, kind);
            fill(cpu);
            space.clear_soft_dirty();
            cpu.store(page(3), 7).unwrap();
            for prot in [READ, RW, NONE, RW] {
                space.mprotect(AT, PAGES * PAGE, prot).unwrap();
                assert_eq!(written(space, AT), [3]);
                space.verify().unwrap();
            }
            cpu.store(page(5), 7).unwrap();
            assert_eq!(written(space, AT), [3, 5]);
            // Cleared while no access is allowed.
            space.mprotect(AT, PAGES * PAGE, NONE).unwrap();
            space.clear_soft_dirty();
            space.mprotect(AT, PAGES * PAGE, RW).unwrap();
            assert_eq!(written(space, AT), []);
            cpu.store(page(0), 7).unwrap();
            assert_eq!(written(space, AT), [0]);
        }
    });
}

#[test]
fn what_moves_counts_as_written() {
    each_policy(1, 64, |cpu, space, _| {
        map(space, RW, ANON);
        cpu.store(page(1), 1).unwrap();
        cpu.store(page(6), 1).unwrap();
        space.clear_soft_dirty();
        let to = AT + (1 << 30);
        let how = remap_flags::MAYMOVE | remap_flags::FIXED;
        let length = PAGES * PAGE;
        assert_eq!(space.mremap(AT, length, length, how, to), Ok(to));
        // The pages that were present; the mapping is not new.
        assert_eq!(written(space, to), [1, 6]);
        space.clear_soft_dirty();
        assert_eq!(written(space, to), []);
        cpu.store(to, 1).unwrap();
        assert_eq!(written(space, to), [0]);
        // The extension of a mapping is not new, as on Linux.
        space.munmap(to + 4 * PAGE, 4 * PAGE).unwrap();
        assert_eq!(space.mremap(to, 4 * PAGE, length, 0, 0), Ok(to));
        assert_eq!(written(space, to), [0]);
    });
}

#[test]
fn a_child_knows_what_its_parent_knew() {
    each_policy(2, 64, |cpu, space, _| {
        map(space, RW, ANON);
        fill(cpu);
        space.clear_soft_dirty();
        cpu.store(page(2), 9).unwrap();
        let child = space.fork().unwrap();
        assert_eq!(written(&child, AT), [2]);
        // A store counts, whether the page is copied or written in place.
        cpu.store(page(5), 9).unwrap();
        assert_eq!(written(space, AT), [2, 5]);
        assert_eq!(written(&child, AT), [2]);
        space.clear_soft_dirty();
        assert_eq!(written(space, AT), []);
        assert_eq!(written(&child, AT), [2]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                SoftCpu::run(&child, 1, |cpu| {
                    cpu.store(page(7), 9).unwrap();
                    cpu.store(page(5), 9).unwrap();
                });
            });
        });
        assert_eq!(written(&child, AT), [2, 5, 7]);
        AddressSpace::verify_together(&[space, &child]).unwrap();
        child.destroy();
        cpu.store(page(5), 10).unwrap();
        assert_eq!(written(space, AT), [5]);
    });
}

#[test]
fn a_mapping_that_is_merged_is_new_as_a_whole() {
    each_policy(1, 64, |cpu, space, _| {
        assert_eq!(space.mmap(AT, 4 * PAGE, RW, ANON), Ok(AT));
        space.clear_soft_dirty();
        assert_eq!(written(space, AT), []);
        space.mmap(page(4), 2 * PAGE, RW, ANON).unwrap();
        assert_eq!(written(space, AT), [0, 1, 2, 3, 4, 5]);
        let mut lines = 0;
        space.maps(&mut |_| lines += 1);
        assert_eq!(lines, 1);
        space.clear_soft_dirty();
        assert_eq!(written(space, AT), []);
        // A neighbour that does not merge leaves it clean.
        space.mmap(page(6), PAGE, READ, ANON).unwrap();
        assert_eq!(written(space, AT), [6]);
        cpu.store(page(5), 1).unwrap();
        assert_eq!(written(space, AT), [5, 6]);
        // A replacement is new.
        space.clear_soft_dirty();
        space.mmap(page(1), PAGE, READ, ANON).unwrap();
        assert_eq!(written(space, AT), [1]);
        // A page that is written and then discarded is not soft-dirty any more.
        space.clear_soft_dirty();
        cpu.store(page(3), 1).unwrap();
        assert_eq!(written(space, AT), [3]);
        space.madvise(page(3), PAGE, advice::DONTNEED).unwrap();
        assert_eq!(written(space, AT), []);
    });
}

/// What a program sees as one mapping is several here: some parts are older than a clearing.
#[test]
fn old_and_new_parts_move_together() {
    each_policy(1, 64, |cpu, space, _| {
        let to = AT + (1 << 30);
        let how = remap_flags::MAYMOVE | remap_flags::FIXED;
        let length = 6 * PAGE;
        for stays in [0, remap_flags::DONTUNMAP] {
            // Old, new, old.
            space.mmap(AT, 2 * PAGE, RW, ANON).unwrap();
            space.mmap(page(4), 2 * PAGE, RW, ANON).unwrap();
            cpu.store(page(5), 5).unwrap();
            space.clear_soft_dirty();
            space.mmap(page(2), 2 * PAGE, RW, ANON).unwrap();
            cpu.store(page(2), 2).unwrap();
            assert_eq!(space.mremap(AT, length, length, how | stays, to), Ok(to));
            assert_eq!(cpu.load(to + 2 * PAGE), Ok(2));
            assert_eq!(cpu.load(to + 5 * PAGE), Ok(5));
            // A part of it is new, so all of the moved mapping is; the mapping left behind is new too.
            assert_eq!(written(space, to), [0, 1, 2, 3, 4, 5]);
            let left = if stays == 0 { vec![] } else { (0..6).collect() };
            assert_eq!(written(space, AT), left);
            space.clear_soft_dirty();
            assert_eq!(written(space, to), []);
            space.verify().unwrap();
            space.munmap(AT, PAGES * PAGE).unwrap();
        }
    });
}

/// A part of a mapping is as new as the whole.
#[test]
fn a_part_of_a_new_mapping_stays_new_where_it_goes() {
    each_policy(1, 64, |cpu, space, _| {
        let to = AT + (1 << 30);
        let how = remap_flags::MAYMOVE | remap_flags::FIXED;
        space.mmap(AT, 2 * PAGE, RW, ANON).unwrap();
        space.clear_soft_dirty();
        space.mmap(page(2), PAGE, RW, ANON).unwrap();
        assert_eq!(space.mremap(AT, 2 * PAGE, 2 * PAGE, how, to), Ok(to));
        assert_eq!(written(space, to), [0, 1]);
        assert_eq!(written(space, AT), [2]);
        cpu.store(to, 1).unwrap();
        space.verify().unwrap();
    });
}

#[test]
fn the_heap_is_new_when_it_grows() {
    each_policy(1, 64, |_, space, _| {
        // A mapping that ends where the heap begins has the same attributes, and is not part of it.
        assert_eq!(space.mmap(AT, 2 * PAGE, RW, ANON), Ok(AT));
        space.set_brk(page(2));
        assert_eq!(space.brk(page(4)), page(4));
        space.clear_soft_dirty();
        assert_eq!(written(space, AT), []);
        assert_eq!(space.brk(page(5)), page(5));
        assert_eq!(written(space, AT), [2, 3, 4]);
    });
}

#[test]
fn pages_of_a_file() {
    each_policy(1, 64, |cpu, space, memory| {
        let store = MemoryObject::new(memory, PAGES * PAGE, None, 0).unwrap();
        for index in 0..PAGES {
            drop(store.page_to_write(index).unwrap());
        }
        let opened = Opened {
            store: Ok(&store),
            offset: 0,
            file: 1,
            writable: true,
        };
        for kind in [flags::PRIVATE, flags::SHARED] {
            let kind = kind | flags::FIXED;
            let at = space.mmap_object(AT, PAGES * PAGE, RW, kind, &opened);
            assert_eq!(at, Ok(AT));
            space.clear_soft_dirty();
            // One read maps the cached pages around it that are in the same table, and dirties none.
            cpu.load(page(0)).unwrap();
            let there = PRESENT | EXCLUSIVE | FILE;
            assert_eq!(words(space, AT), [there, there, there, there, 0, 0, 0, 0]);
            cpu.store(page(2), 1).unwrap();
            assert_eq!(written(space, AT), [2]);
            space.verify().unwrap();
            space.munmap(AT, PAGES * PAGE).unwrap();
        }
    });
}

#[test]
fn what_counts_as_unused_is_used_again() {
    each_policy(1, 64, |cpu, space, _| {
        map(space, RW, ANON);
        fill(cpu);
        let entry = |number| space.entry(page(number)).unwrap();
        let is_used = |number| Entries::FORMAT.is_used(entry(number));
        space.clear_accessed(AgingMode::Objects);
        assert!(is_used(1));
        space.clear_accessed(AgingMode::Anonymous);
        assert!(!(0..PAGES).any(is_used));
        // It is in no TLB any more.
        assert_eq!(cpu.load(page(1)), Ok(2));
        assert!(is_used(1) && !is_used(2));
        space.clear_accessed(AgingMode::All);
        assert!(!is_used(1));
        // Pages that were written stay soft-dirty.
        assert_eq!(cpu.load(page(7)), Ok(8));
        assert_eq!(written(space, AT), everything());
    });
}
