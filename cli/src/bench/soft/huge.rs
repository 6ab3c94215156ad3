//! What the making and splitting of huge pages delays: the first touches of another CPU in the same space.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use faultless_mm::{Access, HugeMode, Outcome, Policy, advice};
use faultless_soft::{SoftCpu, SoftSpace};

use super::{BASE, PAGE, machine, map, space};
use crate::bench::Samples;

/// Bytes of a huge page.
const HUGE: u64 = 2 << 20;
/// Huge pages that are made and split.
const COUNT: u64 = 16;
/// How often, for one percentile.
const ROUNDS: u64 = 8;
/// Where the other CPU works.
const ELSEWHERE: u64 = 0x20_0000_0000;
/// How long it works beside an idle CPU.
const IDLE: Duration = Duration::from_millis(60);

/// What CPU 0 does meanwhile.
#[derive(Clone, Copy)]
enum Beside<'a> {
    Nothing,
    /// It makes and splits huge pages of this space.
    Collapses(&'a SoftSpace),
}

/// The 99th percentile of the time of a fault, on a page that is discarded again, while another CPU makes huge pages of small
/// ones and splits them, in the same space. It is divided by the percentile while that CPU does so in another space.
pub fn collapse_stall_p99_fault() -> Result<Samples> {
    stall(false)
}

/// The same, divided by the percentile while that CPU is idle.
pub fn collapse_stall_p99_fault_idle() -> Result<Samples> {
    stall(true)
}

fn stall(against_idle: bool) -> Result<Samples> {
    let memory = machine(2, 256)?;
    memory.set_huge_mode(HugeMode::Advised);
    let own = space(memory, Policy::default())?;
    let other = space(memory, Policy::default())?;
    for space in [&own, &other] {
        SoftCpu::run(space, 0, |_| -> Result<()> {
            map(space, BASE, COUNT * HUGE)?;
            Ok(space.madvise(BASE, COUNT * HUGE, advice::POPULATE_WRITE)?)
        })?;
    }
    let reference = match against_idle {
        true => Beside::Nothing,
        false => Beside::Collapses(&other),
    };
    let p99 = |what| -> Result<f64> {
        Samples::new(beside(what, &own)?).map(|times| times.percentile(99.0))
    };
    let busy = Beside::Collapses(&own);
    let sample = |n: usize| -> Result<f64> {
        let (first, last) = if n.is_multiple_of(2) {
            let first = p99(reference)?;
            (first, p99(busy)?)
        } else {
            let last = p99(busy)?;
            (p99(reference)?, last)
        };
        Ok(last / first)
    };
    sample(0)?;
    let samples = Samples::new((0..9).map(sample).collect::<Result<_>>()?);
    memory.set_huge_mode(HugeMode::Never);
    samples
}

/// Repeats a fault on CPU 1 in `own`, which CPU 0 runs, too. Returns how long each fault took, in nanoseconds.
fn beside(what: Beside<'_>, own: &SoftSpace) -> Result<Vec<f64>> {
    let (barrier, over) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let faulting = scope.spawn(|| {
            SoftCpu::run(own, 1, |cpu| -> Result<Vec<f64>> {
                let mapped = map(own, ELSEWHERE, 2 * PAGE);
                cpu.pause(|| barrier.wait());
                mapped?;
                let mut times = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    let outcome = own.fault(ELSEWHERE, Access::Write);
                    times.push(start.elapsed().as_nanos() as f64);
                    ensure!(outcome == Outcome::Resolved, "a fault found no memory");
                    own.madvise(ELSEWHERE, PAGE, advice::DONTNEED)?;
                }
                Ok(times)
            })
        });
        let result = SoftCpu::run(own, 0, |cpu| -> Result<()> {
            cpu.pause(|| barrier.wait());
            let result = match what {
                Beside::Nothing => {
                    cpu.pause(|| std::thread::sleep(IDLE));
                    Ok(())
                }
                Beside::Collapses(space) => collapse_and_split(space),
            };
            over.store(true, Ordering::Relaxed);
            result
        });
        let times = faulting.join();
        result?;
        times.map_err(|_| anyhow::anyhow!("a thread of the bench died"))?
    })
}

fn collapse_and_split(space: &SoftSpace) -> Result<()> {
    for at in (0..ROUNDS * COUNT).map(|number| BASE + number % COUNT * HUGE) {
        space.madvise(at, HUGE, advice::COLLAPSE)?;
        // Advice on one page splits it.
        space.madvise(at, PAGE, advice::COLD)?;
    }
    Ok(())
}
