//! The cost of a flush on the soft machine, page by page and as one pass over the whole TLB, and the cost of
//! losing the other entries. The limit in `faultless_soft`'s `tlb.rs`, above which a flush is a pass, comes
//! from these figures.

use anyhow::{Result, anyhow};
use faultless_mm::{Flush, Policy, Tlb as _};
use faultless_soft::{SoftCpu, SoftSpace};

use super::{BASE, PAGE, cpu_time, machine, map, space};
use crate::bench::Samples;

/// The soft TLB's entries.
const ENTRIES: u64 = 256;
/// The most pages that it flushes one by one.
const SINGLE: u64 = 128;
const ROUNDS: u32 = 2000;

/// Nanoseconds for one page more in a flush that goes page by page.
pub fn page() -> Result<Samples> {
    samples(|flush| {
        let (one, all) = (flush.of(1, 0)?, flush.of(SINGLE, 0)?);
        Ok((all - one) / (SINGLE - 1) as f64)
    })
}

/// Nanoseconds for a pass over the whole TLB.
pub fn pass() -> Result<Samples> {
    samples(|flush| Ok(flush.of(SINGLE + 1, 0)? - flush.of(1, 0)?))
}

/// Nanoseconds to refill the whole TLB: loads after a flush of all entries, beyond the same loads after a
/// flush of one.
pub fn refill() -> Result<Samples> {
    samples(|flush| {
        let lost = flush.of(ENTRIES, ENTRIES)? - flush.of(ENTRIES, 0)?;
        let kept = flush.of(1, ENTRIES)? - flush.of(1, 0)?;
        Ok(lost - kept)
    })
}

struct Flushes<'a> {
    cpu: &'a SoftCpu<'a>,
    space: &'a SoftSpace,
}

impl Flushes<'_> {
    /// Nanoseconds of a flush of `pages`, and of loads from `touched` pages after it.
    fn of(&self, pages: u64, touched: u64) -> Result<f64> {
        let flush = Flush {
            start: BASE,
            end: BASE + pages * PAGE,
            tables: false,
        };
        let machine = self.space.memory().machine();
        let start = cpu_time();
        for _ in 0..ROUNDS {
            machine.flush(self.space.cpus(), self.space.id(), flush);
            for page in 0..touched {
                let loaded = self.cpu.load(BASE + page * PAGE);
                loaded.map_err(|trap| anyhow!("a load failed: {trap:?}"))?;
            }
        }
        Ok((cpu_time() - start).as_nanos() as f64 / f64::from(ROUNDS))
    }
}

fn samples(take: impl Fn(&Flushes<'_>) -> Result<f64>) -> Result<Samples> {
    let memory = machine(1, 64)?;
    let space = space(memory, Policy::default())?;
    let samples = SoftCpu::run(&space, 0, |cpu| {
        map(&space, BASE, ENTRIES * PAGE)?;
        let flushes = Flushes { cpu, space: &space };
        flushes.of(ENTRIES, ENTRIES)?;
        (0..20).map(|_| take(&flushes)).collect::<Result<Vec<_>>>()
    })?;
    Samples::new(samples)
}
