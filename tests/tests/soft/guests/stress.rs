//! vCPUs that load and store, beside a host that changes the memory in every way, and a hypervisor that logs, clears, and
//! changes slots.
//!
//! Each page has a number, in its first word, that one vCPU counts up. Four parts of the memory differ in what the host does:
//!
//! | part | the host | what a vCPU finds |
//! | --- | --- | --- |
//! | 0 | pages it out, shares it by a fork, marks it idle, stores to another word | its last number |
//! | 1 | also discards it | its last number, or 0 |
//! | 2 | also takes write access away for a while | its last number, or a store that fails |
//! | 3 | also moves it elsewhere and back | its last number, or an access that fails |
//!
//! With huge pages there are as many pages, but each is 16 from the next: two parts are one huge page. The host then also collapses them.
//!
//! A copy follows the dirty log, or the vCPUs' rings, as a migration does. At the end it is equal, except where the host has discarded.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use faultless_mm::{Access, AgingMode, HugeMode, Outcome, PhysicalMemory, advice, remap_flags};
use faultless_soft::{Exit, SoftCpu, SoftSpace, SoftVcpu, Trap};
use faultless_tdp::{DirtyPage, DirtyRing, Options, Slot, SlotFlags};
use faultless_tests::guest::{BASE, OneSlot};
use faultless_tests::random::{Numbers, seed};
use faultless_tests::{available, budget, machine};

use crate::reclaim::swap::{SLOTS, new_device};

const PAGE: u64 = 4096;
/// Pages of a part.
const PART: u64 = 16;
const PAGES: u64 = 4 * PART;
const VCPUS: u64 = 2;
/// A second slot, which shows part 0 once more.
const ALIAS: u64 = BASE + (1 << 30);
/// Where part 3 is moved to.
const AWAY: u64 = 1 << 40;
const DISCARDED: u64 = 1;
const MOVED: u64 = 3;

/// What the threads of a round share.
struct Run<'a> {
    test: &'a OneSlot,
    /// From one page to the next.
    stride: u64,
    /// Those of the vCPUs, if the guest has rings.
    rings: &'a [DirtyRing<'a>],
    stop: AtomicBool,
    /// The last number of each page, which its vCPU writes.
    last: Vec<AtomicU64>,
    accesses: AtomicU64,
    cleared: AtomicU64,
    start: Barrier,
    seed: u64,
}

impl Run<'_> {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// From the beginning of the slot to a page.
    fn offset(&self, page: u64) -> u64 {
        page * self.stride * PAGE
    }

    fn host(&self, page: u64) -> u64 {
        self.test.host + self.offset(page)
    }

    /// The pages of these that are used, by their numbers in the slot.
    fn used(&self, pages: Vec<u64>) -> Vec<u64> {
        let used = pages.into_iter().filter(|page| page % self.stride == 0);
        used.map(|page| page / self.stride).collect()
    }
}

/// Whether an access may fail like this in a part.
fn may_fail(exit: Exit, part: u64, is_store: bool) -> bool {
    let is_refused = matches!(exit, Exit::Host(Outcome::Segv(_)));
    is_refused && (part == MOVED || (part == 2 && is_store))
}

fn vcpu(run: &Run<'_>, number: u64, cpu: &SoftCpu<'_>, vcpu: &SoftVcpu<'_>) {
    let mut numbers = Numbers(run.seed ^ number);
    run.start.wait();
    let own;
    let vcpu = match run.rings.get(number as usize) {
        Some(ring) => {
            own = SoftVcpu::with_ring(cpu, &run.test.guest, ring);
            &own
        }
        None => vcpu,
    };
    while run.goes_on() {
        let page = numbers.below(PAGES / VCPUS) * VCPUS + number;
        let (part, at) = (page / PART, BASE + run.offset(page));
        let last = run.last[page as usize].load(Ordering::Relaxed);
        run.accesses.fetch_add(1, Ordering::Relaxed);
        match vcpu.load(at) {
            Ok(found) if found == last || (found == 0 && part == DISCARDED) => {}
            Ok(found) => panic!("page {page}: {found} instead of {last}"),
            Err(exit) => assert!(may_fail(exit, part, false), "page {page}: {exit:?}"),
        }
        match vcpu.store(at, last + 1) {
            Ok(()) => run.last[page as usize].store(last + 1, Ordering::Relaxed),
            Err(Exit::RingFull) if !run.rings.is_empty() => continue,
            Err(exit) => assert!(may_fail(exit, part, true), "page {page}: {exit:?}"),
        }
        if part == 0 {
            match vcpu.load(ALIAS + run.offset(page)) {
                Ok(found) => assert_eq!(found, last + 1, "page {page} by the other slot"),
                Err(exit) => assert!(matches!(exit, Exit::Device { .. }), "{exit:?}"),
            }
        }
    }
}

/// Reads a page's first word in a space that no CPU runs.
fn word_of(space: &SoftSpace, at: u64) -> u64 {
    let (machine, mut word) = (space.memory().machine(), 0);
    let mut read = |frame| {
        // SAFETY: a frame of the machine, which stays claimed; words are read atomically.
        word =
            unsafe { machine.pointer(frame).cast::<AtomicU64>().as_ref() }.load(Ordering::Relaxed);
    };
    space.access(at, Access::Read, &mut read).unwrap();
    word
}

/// Changes the memory behind the guest's back. Leaves it as it was.
fn host(run: &Run<'_>, cpu: &SoftCpu<'_>) {
    let mut numbers = Numbers(run.seed ^ 100);
    let space = cpu.space();
    let mut own = [0; PART as usize];
    run.start.wait();
    while run.goes_on() {
        let part = |part: u64| (run.host(part * PART), run.offset(PART));
        match numbers.below(12) {
            0 => space
                .madvise(run.host(0), run.offset(PAGES), advice::PAGEOUT)
                .unwrap(),
            1 => {
                let page = DISCARDED * PART + numbers.below(PART);
                space
                    .madvise(run.host(page), PAGE, advice::DONTNEED)
                    .unwrap();
            }
            2 => {
                let (at, length) = part(2);
                space.mprotect(at, length, 1).unwrap();
                space.mprotect(at, length, 3).unwrap();
            }
            3 => {
                let (at, length) = part(MOVED);
                let how = remap_flags::MAYMOVE | remap_flags::FIXED;
                assert_eq!(space.mremap(at, length, length, how, AWAY), Ok(AWAY));
                assert_eq!(space.mremap(AWAY, length, length, how, at), Ok(at));
            }
            4 => {
                let child = space.fork().unwrap();
                let read = || Vec::from_iter((0..PART).map(|page| word_of(&child, run.host(page))));
                let before = read();
                std::thread::yield_now();
                assert_eq!(read(), before, "a child sees its parent's guest");
                child.destroy();
            }
            5 => space.clear_accessed(AgingMode::All),
            11 if run.stride > 1 => {
                let at = run.host(2 * PART * numbers.below(2));
                // Other operations may be in the way.
                let _ = space.madvise(at, run.offset(2 * PART), advice::COLLAPSE);
            }
            6..=8 => {
                let page = run.host(numbers.below(PAGES));
                if let Some(frame) = space.translate(page) {
                    space.memory().set_idle(frame);
                    space.memory().is_idle(frame);
                }
            }
            _ => {
                let page = numbers.below(PART);
                let at = run.host(page) + 8;
                assert_eq!(cpu.load(at), Ok(own[page as usize]), "the host's own word");
                own[page as usize] += 1;
                cpu.store(at, own[page as usize]).unwrap();
            }
        }
    }
    (0..PART).for_each(|page| cpu.store(run.host(page) + 8, 0).unwrap());
}

/// The copy of a migration.
struct Copy {
    words: Vec<u64>,
    /// Pages that are to be copied.
    waiting: Vec<bool>,
    /// Pages that each ring has had.
    harvested: [u64; VCPUS as usize],
}

impl Copy {
    /// Copies what is waiting, and the host has now.
    fn follow(&mut self, run: &Run<'_>, cpu: &SoftCpu<'_>) {
        for page in 0..PAGES {
            if !self.waiting[page as usize] {
                continue;
            }
            match cpu.load(run.host(page)) {
                Ok(word) => {
                    self.words[page as usize] = word;
                    self.waiting[page as usize] = false;
                }
                Err(trap) => assert!(matches!(trap, Trap::Segv { .. }), "{trap:?}"),
            }
        }
    }

    fn wait_for(&mut self, pages: impl IntoIterator<Item = u64>) {
        pages
            .into_iter()
            .for_each(|page| self.waiting[page as usize] = true);
    }

    /// Waits for what the rings have, and resets them.
    fn reset(&mut self, run: &Run<'_>) {
        let mut pages = Vec::new();
        for (ring, next) in run.rings.iter().zip(&mut self.harvested) {
            pages.extend(std::iter::from_fn(|| ring.harvest(next)).map(|(_, page)| page));
        }
        let count = pages.len() as u64;
        let mut reset = run.test.guest.begin_reset();
        run.rings.iter().for_each(|ring| reset.ring(ring));
        assert_eq!(reset.finish(), count);
        self.wait_for(run.used(pages));
    }
}

/// Logs, clears, switches the log off and on, and has a second slot by times. Ends with the log on.
fn hypervisor(run: &Run<'_>, cpu: &SoftCpu<'_>) -> Copy {
    let mut numbers = Numbers(run.seed ^ 200);
    let mut copy = Copy {
        words: vec![0; PAGES as usize],
        waiting: vec![true; PAGES as usize],
        harvested: [0; VCPUS as usize],
    };
    let mut has_alias = false;
    let mut alias = |is_there: bool| {
        let slot = Slot {
            guest_address: ALIAS,
            size: if is_there { run.offset(2 * PART) } else { 0 },
            host_address: run.test.host,
            flags: SlotFlags::empty(),
        };
        if is_there != has_alias {
            run.test.guest.set_slot(1, &slot).unwrap();
            has_alias = is_there;
        }
    };
    run.test.set(SlotFlags::LOG_DIRTY_PAGES);
    run.start.wait();
    while run.goes_on() {
        match numbers.below(8) {
            0 => {
                run.test.set(SlotFlags::empty());
                // With rings such a log would be one that nothing clears.
                let full = numbers.below(2) == 0 && run.rings.is_empty();
                let mut flags = SlotFlags::LOG_DIRTY_PAGES;
                flags.set(SlotFlags::LOG_BEGINS_FULL, full);
                run.test.set(flags);
                copy.wait_for(0..PAGES);
            }
            1 => alias(true),
            2 => alias(false),
            _ if !run.rings.is_empty() => copy.reset(run),
            3..=4 => {
                let dirty = run.test.dirty(false);
                let mut words = vec![0; run.test.pages.div_ceil(64) as usize];
                for &page in &dirty {
                    words[page as usize / 64] |= 1 << (page % 64);
                }
                run.test.clear(0, &words);
                copy.wait_for(run.used(dirty));
            }
            _ => copy.wait_for(run.used(run.test.dirty(true))),
        }
        run.cleared.fetch_add(1, Ordering::Relaxed);
        copy.follow(run, cpu);
    }
    alias(false);
    copy
}

fn round(test: &OneSlot, seed: u64) {
    let places = [(); VCPUS as usize].map(|()| [(); 32].map(|()| DirtyPage::default()));
    let rings = places
        .iter()
        .filter(|_| test.guest.has_rings())
        .map(|places| DirtyRing::new(places, 0).unwrap());
    let rings = Vec::from_iter(rings);
    let run = Run {
        test,
        stride: test.pages / PAGES,
        rings: &rings,
        stop: AtomicBool::new(false),
        last: (0..PAGES).map(|_| AtomicU64::new(0)).collect(),
        accesses: AtomicU64::new(0),
        cleared: AtomicU64::new(0),
        start: Barrier::new(VCPUS as usize + 3),
        seed,
    };
    test.run(0, |_, vcpu| {
        (0..PAGES).for_each(|page| vcpu.store(BASE + run.offset(page), 0).unwrap());
    });
    let mut copy = std::thread::scope(|scope| {
        let run = &run;
        for number in 0..VCPUS {
            let body = move || {
                test.run(number as u32, |cpu, plain| vcpu(run, number, cpu, plain));
            };
            scope.spawn(body);
        }
        scope.spawn(|| test.run(VCPUS as u32, |cpu, _| host(run, cpu)));
        let copy = scope.spawn(|| test.run(VCPUS as u32 + 1, |cpu, _| hypervisor(run, cpu)));
        run.start.wait();
        // Longer, if the machine is too busy for each of them to have run.
        let counts = [&run.accesses, &run.cleared];
        let is_idle = || {
            counts
                .iter()
                .any(|count| count.load(Ordering::Relaxed) == 0)
        };
        let mut turns = 0;
        while turns == 0 || (is_idle() && turns < 100) {
            std::thread::sleep(Duration::from_millis(100));
            turns += 1;
        }
        run.stop.store(true, Ordering::Relaxed);
        copy.join().unwrap()
    });
    assert!(run.accesses.load(Ordering::Relaxed) > 0 && run.cleared.load(Ordering::Relaxed) > 0);
    test.run(0, |cpu, vcpu| {
        test.guest
            .verify()
            .unwrap_or_else(|violation| panic!("{violation}"));
        cpu.space()
            .verify()
            .unwrap_or_else(|violation| panic!("{violation}"));
        match run.rings {
            [] => copy.wait_for(run.used(test.dirty(true))),
            _ => copy.reset(&run),
        }
        copy.follow(&run, cpu);
        for page in 0..PAGES {
            let found = vcpu.load(BASE + run.offset(page)).unwrap();
            if page / PART != DISCARDED {
                let last = run.last[page as usize].load(Ordering::Relaxed);
                assert_eq!(found, last, "page {page}: a store is lost");
                assert_eq!(
                    copy.words[page as usize], found,
                    "page {page} was not copied"
                );
            }
        }
        test.set(SlotFlags::empty());
    });
}

fn stress(options: Options, has_rings: bool) {
    stress_by(options, has_rings, 1);
}

fn stress_by(options: Options, has_rings: bool, stride: u64) {
    // Enough for what is retired while the host's threads do not run a CPU that reads.
    let memory = machine(VCPUS as usize + 2, 128);
    if stride > 1 {
        memory.set_huge_mode(HugeMode::Always);
    }
    let (store, caches) = new_device(memory, SLOTS.max(4 * stride * PAGES));
    let swap_on = || assert_eq!(memory.swap_on(store, caches, None), Ok(0));
    SoftCpu::attend(memory, 0, swap_on);
    let before = available(memory);
    let test = OneSlot::aligned(memory, PAGES * stride, options);
    if has_rings {
        SoftCpu::attend(memory, 0, || test.guest.use_rings().unwrap());
    }
    if stride > 1 {
        test.run(0, |_, vcpu| {
            let store = |page| vcpu.store(BASE + page * PAGE, 0).unwrap();
            (0..test.pages).step_by(512).for_each(store);
            assert_eq!(test.guest.count_pages(), [0, test.pages / 512]);
        });
    }
    let mut seed = seed();
    for _ in budget(3).rounds() {
        round(&test, seed);
        seed += 1000;
    }
    test.destroy();
    SoftCpu::attend(memory, 0, || {
        (0..4).for_each(|_| memory.expedite());
        memory.drain();
    });
    assert_eq!(store.used(), 0, "slots of the device are lost");
    assert_eq!(available(memory), before, "frames are lost");
}

fn each_kind(tdp_mmu: bool) {
    for bits in 0..4 {
        let options = Options {
            tdp_mmu,
            accessed_bits: bits & 1 == 0,
            dirty_bits: bits & 2 != 0,
            ..Options::default()
        };
        stress(options, false);
    }
}

#[test]
fn tdp_mmu() {
    each_kind(true);
}

#[test]
fn legacy_mmu() {
    each_kind(false);
}

#[test]
fn without_the_fast_path() {
    let options = Options {
        fast_page_fault: false,
        accessed_bits: false,
        ..Options::default()
    };
    stress(options, false);
}

#[test]
fn of_huge_pages() {
    for bits in 0..16 {
        let options = Options {
            tdp_mmu: bits & 1 == 0,
            accessed_bits: bits & 2 == 0,
            eager_page_split: bits & 4 == 0,
            ..Options::default()
        };
        stress_by(options, bits & 8 != 0, 16);
    }
}

#[test]
fn with_rings() {
    for bits in 0..8 {
        let options = Options {
            tdp_mmu: bits & 1 == 0,
            accessed_bits: bits & 2 == 0,
            fast_page_fault: bits & 4 == 0,
            ..Options::default()
        };
        stress(options, true);
    }
}
