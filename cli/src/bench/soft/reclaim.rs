//! What reclaim delays: the first touches of another CPU.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use faultless_mm::{Access, DeviceError, Outcome, Policy, SlotCache, SwapDevice, advice};
use faultless_soft::{Options, Soft, SoftCpu, SoftMemory, SoftSpace};

use super::{BASE, PAGE, map, space};
use crate::bench::Samples;

/// The machine's memory, in pages: 64 MiB.
const FRAMES: u64 = 16 << 10;
/// Pages that are written: 1.5 times the memory.
const WRITTEN: u64 = FRAMES * 3 / 2;
/// Slots of its swap device.
const SLOTS: u64 = 2 * FRAMES;
/// Pages that are written before they are discarded, if they are.
const STEP: u64 = 256;

type Page = [u8; PAGE as usize];

/// A device in the host's memory, which copies. A slot is used from one CPU at a time.
struct Pages(Vec<Mutex<Page>>);

impl Pages {
    fn slot(&self, slot: u64) -> Result<MutexGuard<'_, Page>, DeviceError> {
        let page = self.0.get(slot as usize).ok_or(DeviceError::Failed)?;
        page.lock().map_err(|_| DeviceError::Failed)
    }
}

impl SwapDevice for Pages {
    fn slots(&self) -> u64 {
        self.0.len() as u64
    }

    fn write(&self, slot: u64, page: &Page) -> Result<(), DeviceError> {
        *self.slot(slot)? = *page;
        Ok(())
    }

    fn read(&self, slot: u64, page: &mut Page) -> Result<(), DeviceError> {
        *page = *self.slot(slot)?;
        Ok(())
    }

    fn discard(&self, _slot: u64) {}

    fn is_fast(&self) -> bool {
        true
    }
}

fn reclaiming_machine() -> Result<&'static SoftMemory> {
    let options = Options {
        cpus: 2,
        memory: FRAMES * PAGE,
        zeroed_pool: false,
        reclaims: true,
        ..Options::default()
    };
    let memory = Soft::start(options).context("no soft machine")?;
    let pages = (0..SLOTS).map(|_| Mutex::new([1; PAGE as usize]));
    let device: &'static Pages = Box::leak(Box::new(Pages(pages.collect())));
    let caches: Vec<_> = memory.cpus().iter().map(|_| SlotCache::default()).collect();
    SoftCpu::attend(memory, 0, || memory.swap_on(device, caches.leak(), None))?;
    Ok(memory)
}

/// The 99th percentile of the time of a fault, on a page that is discarded again, while another CPU writes through 1.5
/// times the memory. It is divided by the percentile while that CPU writes as many fresh pages in memory.
pub fn reclaim_stall_p99_fault() -> Result<Samples> {
    let memory = reclaiming_machine()?;
    let own = space(memory, Policy::default())?;
    let other = space(memory, Policy::default())?;
    let p99 = |reclaims: bool| -> Result<f64> {
        Samples::new(beside(&other, &own, reclaims)?).map(|times| times.percentile(99.0))
    };
    let sample = |n: usize| -> Result<f64> {
        let (idle, busy) = if n.is_multiple_of(2) {
            let idle = p99(false)?;
            (idle, p99(true)?)
        } else {
            let busy = p99(true)?;
            (p99(false)?, busy)
        };
        Ok(busy / idle)
    };
    sample(0)?;
    Samples::new((0..9).map(sample).collect::<Result<_>>()?)
}

/// Repeats a fault on CPU 1 in `own` while CPU 0 writes pages of `other`. Returns how long each fault took, in
/// nanoseconds.
fn beside(other: &SoftSpace, own: &SoftSpace, reclaims: bool) -> Result<Vec<f64>> {
    let (barrier, over) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let faulting = scope.spawn(|| {
            SoftCpu::run(own, 1, |cpu| -> Result<Vec<f64>> {
                let mapped = map(own, BASE, 2 * PAGE);
                cpu.pause(|| barrier.wait());
                mapped?;
                let mut times = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    let outcome = own.fault(BASE, Access::Write);
                    times.push(start.elapsed().as_nanos() as f64);
                    ensure!(outcome == Outcome::Resolved, "a fault found no memory");
                    own.madvise(BASE, PAGE, advice::DONTNEED)?;
                }
                Ok(times)
            })
        });
        let result = SoftCpu::run(other, 0, |cpu| -> Result<()> {
            let mapped = map(other, BASE, WRITTEN * PAGE);
            cpu.pause(|| barrier.wait());
            let result = mapped.and_then(|()| write(cpu, other, reclaims));
            over.store(true, Ordering::Relaxed);
            other.munmap(BASE, WRITTEN * PAGE)?;
            result
        });
        let times = faulting.join();
        result?;
        times.map_err(|_| anyhow::anyhow!("a thread of the bench died"))?
    })
}

/// Writes a page each of 1.5 times the memory, in steps. Without reclaim, each step is discarded at its end.
fn write(cpu: &SoftCpu<'_>, space: &SoftSpace, reclaims: bool) -> Result<()> {
    for step in 0..WRITTEN / STEP {
        let first = BASE + step * STEP * PAGE;
        for page in 0..STEP {
            cpu.store(first + page * PAGE, page + 1)
                .map_err(|trap| anyhow::anyhow!("a write failed: {trap:?}"))?;
        }
        if !reclaims {
            space.madvise(first, STEP * PAGE, advice::DONTNEED)?;
        }
    }
    Ok(())
}
