//! Families of address spaces at work, with the verifier over all of them.
//!
//! Each CPU moves from space to space: it writes, maps, unmaps, forks and ends
//! spaces at random, several CPUs in one space at once. Every page of one area
//! has a word per CPU. A CPU finds its last store to a space there again, and in
//! a child that was forked meanwhile that store or the one before. TLB hits are
//! checked all the while.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use faultless_mm::{AddressSpace, Counter, Layout, OwnedSpace, Policy, advice, flags};
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace, Trap};
use faultless_tests::random::{Numbers, seed};
use faultless_tests::{Budget, available, budget, machine};

const PAGE: u64 = 4096;
const RW: u32 = 3;
const FIXED: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
const CPUS: u32 = 4;
/// An area that is never unmapped: each page has a word for each CPU.
const ARENA: u64 = 1 << 36;
const ARENA_PAGES: u64 = 24;
/// The range that all CPUs map and unmap: around a boundary of tables.
const COMMON: u64 = (1 << 36) + (512 - 20) * PAGE;
const COMMON_PAGES: u64 = 40;
const MOST_SPACES: usize = 6;

type Family = Mutex<BTreeMap<u64, Arc<SoftSpace>>>;

/// Works in one space before the CPU moves on to another.
fn visit(cpu: &SoftCpu<'_>, numbers: &mut Numbers, family: &Family) -> Result<(), Trap> {
    let space = cpu.space();
    let own = |page: u64| ARENA + page * PAGE + u64::from(cpu.number()) * 8;
    // Pages are written in order, so words never increase with the page number, in a child either.
    let mut last = u64::MAX;
    for page in 0..ARENA_PAGES {
        let word = cpu.load(own(page))?;
        assert!(word <= last, "a write without an earlier one");
        last = word;
    }
    let top = cpu.load(own(0))?;
    for step in 0..numbers.below(3) {
        for page in 0..ARENA_PAGES {
            cpu.store(own(page), top + step + 1)?;
            if numbers.below(40) == 0 {
                change(cpu, numbers);
            }
        }
        for page in 0..ARENA_PAGES {
            assert_eq!(cpu.load(own(page))?, top + step + 1, "a write is lost");
        }
    }
    if numbers.below(3) == 0
        && family.lock().unwrap().len() < MOST_SPACES
        && let Ok(child) = space.fork()
    {
        family
            .lock()
            .unwrap()
            .insert(child.id().id, Arc::new(child));
    }
    Ok(())
}

/// Performs a random operation on the common range. Errors are legal.
fn change(cpu: &SoftCpu<'_>, numbers: &mut Numbers) {
    let space = cpu.space();
    let first = numbers.below(COMMON_PAGES);
    let pages = 1 + numbers.below(COMMON_PAGES - first);
    let (at, length) = (COMMON + first * PAGE, pages * PAGE);
    match numbers.below(8) {
        0 | 1 => drop(space.mmap(at, length, RW, FIXED)),
        2 => drop(space.munmap(at, length)),
        3 => drop(space.mprotect(at, length, [0, 1, RW][numbers.below(3) as usize])),
        4 => drop(space.madvise(at, length, advice::DONTNEED)),
        5 if pages.is_multiple_of(2) => space.clear_soft_dirty(),
        _ => {
            for _ in 0..8 {
                let word = COMMON + numbers.below(COMMON_PAGES * 512) * 8;
                let _ = cpu.store(word, numbers.draw());
                let _ = cpu.load(word);
            }
        }
    }
}

fn stress(policy: Policy, megabytes: u64, budget: &Budget, in_shards: bool) -> u64 {
    let memory: &'static SoftMemory = machine(CPUS as usize, megabytes);
    let before = available(memory);
    let layout = Layout {
        // The first shard covers all addresses of the test.
        mmap_base: (COMMON | ((1 << 30) - 1)) + 1,
        ..Layout::LINUX_X86_64
    };
    let first = SoftCpu::attend(memory, 0, || match in_shards {
        false => Soft::space(memory, policy).unwrap(),
        true => {
            let space = OwnedSpace::new(memory, policy, layout).unwrap();
            assert!(space.shard());
            space
        }
    });
    SoftCpu::run(&first, 0, |cpu| {
        let space = cpu.space();
        space.mmap(ARENA, ARENA_PAGES * PAGE, RW, FIXED).unwrap();
        space.mmap(COMMON, COMMON_PAGES * PAGE, RW, FIXED).unwrap();
    });
    let family: Family = Mutex::new(BTreeMap::from([(first.id().id, Arc::new(first))]));
    let barrier = Barrier::new(CPUS as usize);
    let seed = seed();
    let goes_on = AtomicBool::new(budget.goes_on(0));
    std::thread::scope(|scope| {
        for cpu in 0..CPUS {
            let (family, barrier, goes_on) = (&family, &barrier, &goes_on);
            scope.spawn(move || {
                let mut numbers = Numbers(seed ^ (u64::from(cpu) << 56));
                let mut epoch = 0;
                while goes_on.load(Ordering::Relaxed) {
                    epoch += 1;
                    for _ in 0..12 {
                        let space = choose(family, &mut numbers);
                        let done =
                            SoftCpu::run(&space, cpu, |cpu| visit(cpu, &mut numbers, family));
                        assert!(matches!(done, Ok(()) | Err(Trap::OutOfMemory)), "{done:?}");
                        leave(memory, cpu, space, family, &mut numbers);
                    }
                    if barrier.wait().is_leader() {
                        verify(memory, cpu, family);
                        goes_on.store(budget.goes_on(epoch), Ordering::Relaxed);
                    }
                    barrier.wait();
                }
            });
        }
    });
    SoftCpu::attend(memory, 0, || {
        for space in family.into_inner().unwrap().into_values() {
            Arc::into_inner(space).unwrap().destroy();
        }
    });
    assert_eq!(available(memory), before, "frames were lost or found");
    memory.total(Counter::Fork)
}

fn choose(family: &Family, numbers: &mut Numbers) -> Arc<SoftSpace> {
    let family = family.lock().unwrap();
    let number = numbers.below(family.len() as u64) as usize;
    family.values().nth(number).unwrap().clone()
}

/// Sometimes removes the space, unless it is the last; the last CPU to leave it destroys it.
fn leave(
    memory: &'static SoftMemory,
    cpu: u32,
    space: Arc<SoftSpace>,
    family: &Family,
    numbers: &mut Numbers,
) {
    if numbers.below(4) == 0 {
        let mut family = family.lock().unwrap();
        if family.len() > 1 {
            family.remove(&space.id().id);
        }
    }
    if let Some(space) = Arc::into_inner(space) {
        SoftCpu::attend(memory, cpu, || space.destroy());
    }
}

fn verify(memory: &'static SoftMemory, cpu: u32, family: &Family) {
    let family = family.lock().unwrap();
    let spaces: Vec<&SoftSpace> = family.values().map(Arc::as_ref).collect();
    SoftCpu::attend(memory, cpu, || AddressSpace::verify_together(&spaces))
        .unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn families() {
    for &policy in Policy::ALL {
        let forks = stress(policy, 64, &budget(25), false);
        assert!(forks > 25, "{forks} forks");
    }
}

#[test]
fn families_in_a_shard() {
    for megabytes in [64, 1] {
        stress(Policy::Speculative, megabytes, &budget(25), true);
    }
}

#[test]
fn families_without_memory() {
    for &policy in Policy::ALL {
        stress(policy, 1, &budget(25), false);
    }
}
