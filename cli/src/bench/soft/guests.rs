//! What faults of guests cost: with and without the fast path, and of two vCPUs that share a virtual machine.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use faultless_mm::{AgingMode, Policy};
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace, SoftVcpu};
use faultless_tdp::{Options, OwnedGuest, Slot, SlotFlags};

use super::{BASE, PAGE, cpu_time, machine, map, space};
use crate::bench::Samples;

/// Pages that each vCPU writes in a round.
const PART: u64 = 4096;
const ROUNDS: usize = 40;
/// Where the guest has its memory.
const GUEST: u64 = 0x1_0000_0000;

/// A virtual machine with memory for two vCPUs, over an address space of its own.
struct Vm {
    guest: OwnedGuest<Soft, Arc<SoftSpace>>,
    space: Arc<SoftSpace>,
}

impl Vm {
    fn new(memory: &'static SoftMemory, options: Options) -> Result<Self> {
        let space = Arc::new(space(memory, Policy::default())?);
        SoftCpu::attend(memory, 0, || {
            map(&space, BASE, 2 * PART * PAGE)?;
            let guest = OwnedGuest::new(space.clone(), 0, options)?;
            let vm = Self { guest, space };
            vm.set(2 * PART * PAGE, SlotFlags::empty())?;
            Ok(vm)
        })
    }

    fn set(&self, size: u64, flags: SlotFlags) -> Result<()> {
        let slot = Slot {
            guest_address: GUEST,
            size,
            host_address: BASE,
            flags,
        };
        Ok(self.guest.set_slot(0, &slot)?)
    }

    /// All pages are there, and are logged.
    fn log(&self) -> Result<()> {
        self.set(2 * PART * PAGE, SlotFlags::LOG_DIRTY_PAGES)
    }

    /// No store is let through without a fault.
    fn clear_log(&self) -> Result<()> {
        Ok(self.guest.get_dirty_log(0, true, &mut |_| Ok(()))?)
    }

    /// The guest's tables are empty; the host's pages are there.
    fn forget(&self) -> Result<()> {
        self.set(0, SlotFlags::empty())?;
        self.set(2 * PART * PAGE, SlotFlags::empty())
    }

    fn mark_idle(&self) -> Result<()> {
        for page in 0..2 * PART {
            let frame = self.space.translate(BASE + page * PAGE);
            self.space
                .memory()
                .set_idle(frame.context("a page is missing")?);
        }
        Ok(())
    }

    fn clear_refs(&self) -> Result<()> {
        self.space.clear_accessed(AgingMode::All);
        Ok(())
    }
}

type Prepare = fn(&Vm) -> Result<()>;

/// The sum of the CPU times that two vCPUs take to write their parts: of each vCPU's median round. Before each round, `prepare`
/// is done with either virtual machine, which is not timed. Both may be the same.
fn together(vms: [&Vm; 2], prepare: Prepare) -> Result<Duration> {
    let barrier = Barrier::new(2);
    let thread = |number: u32| {
        let (barrier, vm) = (&barrier, vms[number as usize]);
        move || {
            SoftCpu::run(&vm.space, number, |cpu| -> Result<Duration> {
                let vcpu = SoftVcpu::new(cpu, &vm.guest);
                let first = GUEST + u64::from(number) * PART * PAGE;
                let mut times = [Duration::ZERO; ROUNDS];
                // The other thread waits at the barriers, whatever fails here.
                let mut result = Ok(());
                for time in &mut times {
                    if number == 0 {
                        let prepared = prepare(vms[0]).and_then(|()| {
                            let is_one = std::ptr::eq(vms[0], vms[1]);
                            if is_one { Ok(()) } else { prepare(vms[1]) }
                        });
                        result = result.and(prepared);
                    }
                    barrier.wait();
                    let start = cpu_time();
                    let failed = (0..PART).filter(|n| vcpu.store(first + n * PAGE, 1).is_err());
                    let failed = failed.count();
                    *time = cpu_time() - start;
                    barrier.wait();
                    if failed > 0 {
                        result = result.and(Err(anyhow!("{failed} stores failed")));
                    }
                }
                result?;
                times.sort_unstable();
                Ok(times[ROUNDS / 2])
            })
        }
    };
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(thread(1));
        let first = thread(0)();
        (first, other.join())
    });
    let second = second.map_err(|_| anyhow!("a thread of the bench died"))?;
    Ok(first? + second?)
}

/// The time of `one`, divided by that of `other`, which take turns in going first.
fn ratio(
    one: impl Fn() -> Result<Duration>,
    other: impl Fn() -> Result<Duration>,
) -> Result<Samples> {
    let sample = |n: usize| -> Result<f64> {
        let (one, other) = if n.is_multiple_of(2) {
            let one = one()?;
            (one, other()?)
        } else {
            let other = other()?;
            (one()?, other)
        };
        Ok(one.as_secs_f64() / other.as_secs_f64())
    };
    sample(0)?;
    Samples::new((0..21).map(sample).collect::<Result<_>>()?)
}

/// Makes virtual machines, the pages of which are there, and logged if `logs`.
fn vms<const N: usize>(logs: bool, options: [Options; N]) -> Result<Vec<Vm>> {
    let memory = machine(2, 256)?;
    let vm = |options| {
        let vm = Vm::new(memory, options)?;
        together([&vm, &vm], Vm::forget)?;
        if logs {
            SoftCpu::attend(memory, 0, || vm.log())?;
        }
        Ok(vm)
    };
    options.into_iter().map(vm).collect()
}

/// Two vCPUs write to logged memory: their time without the fast path, divided by that with it.
pub fn fast_page_fault_off_vs_on() -> Result<Samples> {
    let on = Options::default();
    let off = Options {
        fast_page_fault: false,
        ..on
    };
    let vms = vms(true, [off, on])?;
    let time = |n: usize| together([&vms[n], &vms[n]], Vm::clear_log);
    ratio(|| time(0), || time(1))
}

/// Two vCPUs of one virtual machine write to logged memory, and one vCPU of each of two: the speed of the first, divided by
/// that of the second.
pub fn one_vm_vs_two_fast() -> Result<Samples> {
    one_vm_vs_two(true, Vm::clear_log)
}

/// The same for pages that the host has and the guest has not.
pub fn one_vm_vs_two_map() -> Result<Samples> {
    one_vm_vs_two(false, Vm::forget)
}

fn one_vm_vs_two(logs: bool, prepare: Prepare) -> Result<Samples> {
    let vms = vms(logs, [Options::default(); 3])?;
    let apart = || together([&vms[1], &vms[2]], prepare);
    ratio(apart, || together([&vms[0], &vms[0]], prepare))
}

/// Two vCPUs without accessed bits write to idle memory: their time after `clear_refs`, which takes full faults, divided by that
/// after `page_idle`, which takes the fast path.
///
/// Of virtual machines of their own: `page_idle` clears the host's bits, and the fast path sets none, so that `clear_refs` has
/// nothing to clear.
pub fn idle_full_vs_fast() -> Result<Samples> {
    let options = Options {
        accessed_bits: false,
        ..Options::default()
    };
    let vms = vms(false, [options; 2])?;
    let time = |n: usize, prepare| together([&vms[n], &vms[n]], prepare);
    ratio(|| time(0, Vm::clear_refs), || time(1, Vm::mark_idle))
}
