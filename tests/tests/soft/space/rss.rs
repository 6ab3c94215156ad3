//! The resident set size of an address space, against a walk of its tables, after each operation that maps or
//! frees pages; under every policy.

use faultless_mm::{
    AddressSpace, Errno, Frame, FrameSource, Machine, MemoryObject, Mover, Opened, Pager, Policy,
    Rss, Taken, Usage, advice, flags, remap_flags,
};
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace};
use faultless_tests::{each_policy, machine};

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
const SHARED: u32 = flags::SHARED | flags::ANONYMOUS | flags::FIXED;
/// Eight pages before the end of a table.
const AT: u64 = (1 << 36) - 8 * PAGE;
const EVERYTHING: u64 = 1 << 47;

fn page(number: u64) -> u64 {
    AT + number * PAGE
}

fn map(space: &SoftSpace, pages: u64, kind: u32) {
    assert_eq!(space.mmap(AT, pages * PAGE, RW, kind), Ok(AT));
}

fn fill(cpu: &SoftCpu<'_>, pages: u64) {
    (0..pages).for_each(|number| cpu.store(page(number), number + 1).unwrap());
}

/// The counters, compared with a walk; the verifier compares the kinds and tables.
fn rss(space: &SoftSpace) -> Rss {
    let (rss, walked): (Rss, Usage) = (space.rss(), space.usage(0..EVERYTHING));
    assert_eq!(rss.resident() * PAGE, walked.resident);
    assert_eq!(rss.anonymous * PAGE, walked.anonymous);
    assert!(rss.peak >= rss.resident());
    let census = space
        .verify()
        .unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(rss.tables, census.tables - 1);
    rss
}

/// The numbers of pages: anonymous, of files, of shared memory.
fn kinds(space: &SoftSpace) -> [u64; 3] {
    let rss = rss(space);
    [rss.anonymous, rss.file, rss.shared_memory]
}

/// A pager, so that pages count as a file's.
struct Device;

impl Pager for Device {
    fn fill(&self, _: u64, _: u64, _: Frame) -> Result<(), Errno> {
        Ok(())
    }
}

fn file(memory: &'static SoftMemory, pages: u64) -> MemoryObject<Soft> {
    MemoryObject::new(memory, pages * PAGE, Some(&Device), 0).unwrap()
}

fn map_file(space: &SoftSpace, at: u64, pages: u64, kind: u32, file: &MemoryObject<Soft>) {
    let opened = Opened {
        store: Ok(file),
        offset: 0,
        file: 1,
        writable: true,
    };
    let mapped = space.mmap_object(at, pages * PAGE, RW, kind | flags::FIXED, &opened);
    assert_eq!(mapped, Ok(at));
}

#[test]
fn faults_and_unmapping() {
    each_policy(1, 64, |cpu, space, _| {
        assert_eq!(rss(space), Rss::default());
        map(space, 1200, ANON);
        assert_eq!(rss(space), Rss::default());
        // The zero page is not counted; the tables that lead to it are.
        cpu.load(page(3)).unwrap();
        let tables = rss(space).tables;
        assert_eq!((kinds(space), tables), ([0; 3], 3));
        cpu.store(page(3), 1).unwrap();
        assert_eq!(kinds(space), [1, 0, 0]);
        fill(cpu, 1100);
        assert_eq!(kinds(space), [1100, 0, 0]);
        // A short range and a long one; across tables.
        space.munmap(page(1), 2 * PAGE).unwrap();
        assert_eq!(kinds(space), [1098, 0, 0]);
        space.munmap(page(100), 900 * PAGE).unwrap();
        assert_eq!(kinds(space), [198, 0, 0]);
        space.madvise(page(3), 47 * PAGE, advice::DONTNEED).unwrap();
        assert_eq!(kinds(space), [198 - 47, 0, 0]);
        space
            .madvise(page(50), 10 * PAGE, advice::GUARD_INSTALL)
            .unwrap();
        assert_eq!(kinds(space), [141, 0, 0]);
        // A replacement.
        map(space, 70, ANON);
        assert_eq!(kinds(space), [130, 0, 0]);
        space.mprotect(page(0), 100 * PAGE, 0).unwrap();
        assert_eq!(kinds(space), [130, 0, 0]);
        space.munmap(AT, 1200 * PAGE).unwrap();
        let rss = rss(space);
        assert_eq!((rss.resident(), rss.tables), (0, 0));
        assert_eq!(rss.peak, 1100);
        space.forget_peak_rss();
        assert_eq!(space.rss().peak, 0);
    });
}

#[test]
fn the_peak_is_noted_before_pages_go() {
    each_policy(1, 64, |cpu, space, _| {
        map(space, 1000, ANON);
        fill(cpu, 1000);
        // The peak is not read before the pages go.
        for number in 0..500 {
            space.munmap(page(2 * number), PAGE).unwrap();
        }
        let peak = space.rss().peak;
        assert!((1000 - 64..=1000).contains(&peak), "{peak}");
        space.forget_peak_rss();
        assert_eq!(space.rss().peak, 500);
        space.madvise(page(1), PAGE, advice::DONTNEED).unwrap();
        space.munmap(AT, 1000 * PAGE).unwrap();
        assert_eq!(space.rss().peak, 500);
    });
}

#[test]
fn files_and_shared_memory() {
    each_policy(1, 64, |cpu, space, memory| {
        let file = file(memory, 64);
        map_file(space, AT, 64, flags::PRIVATE, &file);
        cpu.load(page(20)).unwrap();
        assert_eq!(kinds(space), [0, 1, 0]);
        (0..32).for_each(|number| drop(file.page(number).unwrap()));
        // Cached pages around the faulting page are mapped with it.
        cpu.load(page(0)).unwrap();
        let [anonymous, of_file, memory_pages] = kinds(space);
        assert!(
            anonymous == 0 && memory_pages == 0 && of_file > 2,
            "{of_file}"
        );
        // A private copy of a page that was mapped, and of one that was not.
        cpu.store(page(0), 1).unwrap();
        assert_eq!(kinds(space), [1, of_file - 1, 0]);
        cpu.store(page(40), 1).unwrap();
        assert_eq!(kinds(space), [2, of_file - 1, 0]);
        // A hole unmaps the file's pages, a truncation copies too.
        file.punch(0..64 * PAGE).unwrap();
        assert_eq!(kinds(space), [2, 0, 0]);
        cpu.load(page(5)).unwrap();
        file.truncate(10 * PAGE).unwrap();
        assert_eq!(kinds(space), [1, 1, 0]);
        space.munmap(AT, 64 * PAGE).unwrap();
        // Without a pager it is shared memory.
        map(space, 16, SHARED);
        fill(cpu, 7);
        assert_eq!(kinds(space), [0, 0, 7]);
        space.madvise(AT, 2 * PAGE, advice::DONTNEED).unwrap();
        assert_eq!(kinds(space), [0, 0, 5]);
        space.madvise(page(2), 2 * PAGE, advice::REMOVE).unwrap();
        assert_eq!(kinds(space), [0, 0, 3]);
    });
}

#[test]
fn moving() {
    each_policy(1, 64, |cpu, space, memory| {
        map(space, 600, ANON);
        fill(cpu, 550);
        let how = remap_flags::MAYMOVE | remap_flags::FIXED;
        let to = AT + (1 << 40);
        assert_eq!(space.mremap(AT, 600 * PAGE, 600 * PAGE, how, to), Ok(to));
        assert_eq!(kinds(space), [550, 0, 0]);
        assert_eq!(space.mremap(to, 600 * PAGE, 10 * PAGE, 0, 0), Ok(to));
        assert_eq!(kinds(space), [10, 0, 0]);
        // Migrated to another frame.
        let (frames, at) = (memory.machine().frames(), memory.machine().cpu());
        let (from, free) = (space.translate(to).unwrap(), frames.allocate(at).unwrap());
        Mover::new(memory).unwrap().migrate(from, free).unwrap();
        frames.free(at, from);
        assert_eq!(kinds(space), [10, 0, 0]);
    });
}

#[test]
fn forks() {
    each_policy(2, 64, |cpu, space, memory| {
        map(space, 700, ANON);
        fill(cpu, 600);
        let other = AT + (1 << 40);
        let file = file(memory, 16);
        map_file(space, other, 16, flags::PRIVATE, &file);
        cpu.load(other).unwrap();
        // A pinned page is copied during the fork.
        let pin = space.pin(page(4), Taken::ToWrite).unwrap();
        let child = space.fork().unwrap();
        assert_eq!(kinds(space), [600, 1, 0]);
        let [anonymous, of_file, _] = kinds(&child);
        assert!(anonymous == 600 && of_file <= 1);
        assert_eq!(rss(&child).peak, 600 + of_file);
        drop(pin);
        // Copies, and pages that only the parent maps again.
        fill(cpu, 50);
        assert_eq!(kinds(space), [600, 1, 0]);
        std::thread::scope(|scope| {
            scope.spawn(|| SoftCpu::run(&child, 1, |cpu| fill(cpu, 100)));
        });
        assert_eq!(kinds(&child)[0], 600);
        // Pages with other mappings are released after the flush.
        space.munmap(page(10), 300 * PAGE).unwrap();
        assert_eq!(kinds(space)[0], 300);
        assert_eq!(kinds(&child)[0], 600);
        child
            .madvise(page(10), 300 * PAGE, advice::DONTNEED)
            .unwrap();
        assert_eq!(kinds(&child)[0], 300);
        child
            .madvise(page(400), 10 * PAGE, advice::GUARD_INSTALL)
            .unwrap();
        assert_eq!(kinds(&child)[0], 290);
        assert_eq!(child.destroy(), 290 + of_file);
        assert_eq!(kinds(space), [300, 1, 0]);
    });
}

#[test]
fn what_was_let_go_of() {
    each_policy(1, 64, |cpu, space, _| {
        map(space, 300, ANON);
        fill(cpu, 300);
        space.madvise(AT, 100 * PAGE, advice::FREE).unwrap();
        assert_eq!(kinds(space), [300, 0, 0]);
        assert!(space.take_lazyfree());
        assert_eq!(kinds(space), [200, 0, 0]);
        space
            .mmap(
                AT,
                20 * PAGE,
                RW,
                flags::DROPPABLE | flags::ANONYMOUS | flags::FIXED,
            )
            .unwrap();
        fill(cpu, 20);
        assert_eq!(kinds(space), [220, 0, 0]);
        assert!(space.take_lazyfree());
        assert_eq!(kinds(space), [200, 0, 0]);
    });
}

/// Counts stay right when one CPU maps pages and another frees them, also with so many CPUs that the counters need
/// two frames of their own.
#[test]
fn many_cpus() {
    for cpus in [1, 2, 3, 4, 64, 65, 130] {
        let memory = machine(cpus, 64);
        let before = faultless_tests::available(memory);
        let space = SoftCpu::attend(memory, 0, || Soft::space(memory, Policy::default())).unwrap();
        SoftCpu::run(&space, 0, |_| map(&space, 512, ANON));
        std::thread::scope(|scope| {
            for cpu in 0..cpus.min(8) as u32 {
                let number = if cpu == 7 { cpus as u32 - 1 } else { cpu };
                let space = &space;
                scope.spawn(move || {
                    SoftCpu::run(space, number, |on| {
                        let first = 64 * u64::from(cpu);
                        (first..first + 64).for_each(|n| on.store(page(n), n).unwrap());
                        // Each CPU discards some of its neighbour's pages.
                        let next = page((first + 64) % 512);
                        space.madvise(next, 8 * PAGE, advice::DONTNEED).unwrap();
                        on.store(next, 1).unwrap();
                    });
                });
            }
        });
        SoftCpu::run(&space, 0, |_| {
            rss(&space);
            space.munmap(AT, 512 * PAGE).unwrap();
            assert_eq!(kinds(&space), [0; 3]);
            AddressSpace::verify_together(&[&space]).unwrap();
        });
        SoftCpu::attend(memory, 0, || space.destroy());
        assert_eq!(faultless_tests::available(memory), before, "{cpus} CPUs");
    }
}
