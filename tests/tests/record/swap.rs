//! Which lines swap-ins write, exactly (recording builds: `--cfg record`).
//!
//! Two swap-ins more than 8 pages apart, of slots in different clusters, have no line in common, whichever CPU owns the
//! clusters, or none. That a cluster without an owner has free slots again is noted once for its 256 slots, in a bitmap.

use std::collections::{BTreeMap, BTreeSet};

use faultless_mm::{Access, Outcome, Policy, SlotCache, SwapDevice, advice, flags};
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace};
use faultless_swap::{Compressed, RamDisk, Scratch};
use faultless_sync::record::{self, Writes};
use faultless_tests::space;

const BASE: u64 = 0x10_0000_0000;
const PAGE: u64 = 4096;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
/// Slots of a cluster.
const CLUSTER: u64 = 256;
/// Pages of each half: more than two clusters.
const HALF: u64 = 600;
const SLOTS: u64 = 4096;

fn leak<T>(count: usize, make: impl Fn() -> T) -> &'static [T] {
    Vec::leak((0..count).map(|_| make()).collect())
}

/// A device in the machine's memory.
type Make = fn(&'static SoftMemory) -> &'static dyn SwapDevice;

fn ram(memory: &'static SoftMemory) -> &'static dyn SwapDevice {
    let made: RamDisk<&'static Soft> = RamDisk::new(memory.machine(), SLOTS).unwrap();
    Box::leak(Box::new(made))
}

fn compressed(memory: &'static SoftMemory) -> &'static dyn SwapDevice {
    let scratch = leak(memory.cpus().len(), Scratch::default);
    let made: Compressed<&'static Soft> =
        Compressed::new(memory.machine(), scratch, SLOTS).unwrap();
    Box::leak(Box::new(made))
}

/// A space of two halves, which are both paged out: by a CPU for each half, or both by CPU 0.
fn paged_out(make: Make, apart: bool) -> SoftSpace {
    let (memory, space) = space(2, 32, Policy::Speculative);
    SoftCpu::attend(memory, 0, || {
        let device = make(memory);
        let cpus = leak(2, SlotCache::default);
        assert_eq!(memory.swap_on(device, cpus, None), Ok(0));
        space.mmap(BASE, 2 * HALF * PAGE, 3, ANON).unwrap();
    });
    for half in 0..2 {
        let cpu = if apart { half as u32 } else { 0 };
        SoftCpu::run(&space, cpu, |cpu| {
            let start = BASE + half * HALF * PAGE;
            for page in 0..HALF {
                cpu.store(start + page * PAGE, page + 1).unwrap();
            }
            let out = space.madvise(start, HALF * PAGE, advice::PAGEOUT);
            let used = space.memory().swap_usage().1;
            assert_eq!((out, used), (Ok(()), (half + 1) * HALF));
        });
    }
    space
}

/// The lines written by the swap-ins of a cluster's pages, from page `from` of a half.
fn lines(space: &SoftSpace, half: u64, access: Access) -> Vec<BTreeMap<usize, Writes>> {
    let swap_in = |page| {
        let mut outcome = Outcome::OutOfMemory;
        let address = BASE + (half * HALF + page) * PAGE;
        let written = record::lines(|| outcome = space.fault(address, access));
        assert_eq!(outcome, Outcome::Resolved);
        assert!(!written.is_empty(), "the recorder is off");
        written
    };
    std::thread::scope(|scope| {
        let all = || {
            SoftCpu::run(space, half as u32, |_| {
                (CLUSTER..2 * CLUSTER).map(swap_in).collect()
            })
        };
        scope.spawn(all).join().unwrap()
    })
}

/// Lines that swap-ins of both halves write: as part of every swap-in, and per pair as part of a batch.
fn shared(make: Make, apart: bool, access: Access) -> (BTreeSet<usize>, f64) {
    let space = paged_out(make, apart);
    let [one, other] = [0, 1].map(|half| lines(&space, half, access));
    let (mut direct, mut batched) = (BTreeSet::new(), 0);
    for (a, b) in one.iter().flat_map(|a| other.iter().map(move |b| (a, b))) {
        for (line, writes) in a {
            match b.get(line) {
                Some(others) if writes.direct > 0 && others.direct > 0 => {
                    direct.insert(*line);
                }
                Some(_) => batched += 1,
                None => {}
            }
        }
    }
    let pairs = one.len() * other.len();
    (direct, f64::from(batched) / pairs as f64)
}

/// Neither with a device that keeps pages as they are, nor with compressed pages of one size class: these go back to
/// their group, of which the lists are changed twice.
#[test]
fn swap_ins_share_no_line() {
    for make in [ram as Make, compressed] {
        for apart in [true, false] {
            for access in [Access::Read, Access::Write] {
                let (direct, batched) = shared(make, apart, access);
                assert!(direct.is_empty(), "{direct:x?}: {apart} {access:?}");
                assert!(batched < 0.01, "{batched}: {apart} {access:?}");
            }
        }
    }
}
