//! The idle loop: a CPU without a thread zeroes a few frames, then halts with interrupts on.
//!
//! An idle CPU uses the kernel's own root. On x86-64 it is in no address space's CPU set, so shootdowns need not
//! interrupt it; on AArch64 the hardware flushes it.

use core::sync::atomic::{AtomicPtr, Ordering};

use faultless_sync::{Cpu, IdleCpus};

use super::thread::Thread;
use super::{block, queue, stop_machine, timer};
use crate::arch::percpu::{self, MAX_CPUS};
use crate::arch::{self, TrapFrame, context, time};
use crate::memory::boot_frames::TOO_LITTLE;
use crate::memory::{self, stacks};
use crate::report::refuse;

/// Checks of threads that wait elsewhere before giving up on them.
const MAX_LOOKS: u32 = 64;
/// Nanoseconds of polling before the CPU halts.
const LOOK: u64 = 20_000;
/// Frames zeroed before looking for threads again.
const ZERO_AT_ONCE: u32 = 4;

/// The CPUs that have nothing to run.
pub static CPUS: IdleCpus = IdleCpus::new();

static THREADS: [AtomicPtr<Thread>; MAX_CPUS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_CPUS];

/// Creates the idle thread of a CPU, at boot. Without memory for it the run ends.
pub fn prepare(cpu: u32) {
    let thread = Thread::new(0, false, |_| {}, &TrapFrame::default());
    let thread = thread.unwrap_or_else(|_| refuse(format_args!("{TOO_LITTLE}")));
    thread.cpu.store(cpu, Ordering::Relaxed);
    THREADS[cpu as usize].store(thread.as_mut_ptr(), Ordering::Release);
}

/// The idle thread of a CPU.
///
/// # Panics
/// Before it was prepared.
pub fn of(cpu: u32) -> &'static Thread {
    // SAFETY: Threads are never unmapped.
    unsafe { THREADS[cpu as usize].load(Ordering::Acquire).as_ref() }.expect("prepared at boot")
}

/// The idle loop, where every CPU ends up after boot, on its idle thread's stack.
pub fn begin() -> ! {
    let cpu = percpu::cpu_number();
    let thread = of(cpu);
    thread.on_cpu.store(true, Ordering::Relaxed);
    percpu::this()
        .current
        .store(thread.as_mut_ptr(), Ordering::Relaxed);
    context::set_kernel_stack(percpu::this(), stacks::top(thread));
    memory::machine::cpu_online(cpu);
    let mut looks = 0;
    loop {
        block();
        if stop_machine::nap_at_gate(cpu) {
            continue;
        }
        CPUS.begin(Cpu(cpu));
        let mut zeroed = 0;
        while !anything_to_run() && zeroed < ZERO_AT_ONCE && memory::machine::fill_zeroed() {
            arch::relax();
            zeroed += 1;
        }
        if zeroed == 0 {
            poll(cpu);
            looks = if anything_to_run() { looks + 1 } else { 0 };
            // A thread that waits elsewhere for long may not run here.
            let own_only = looks > MAX_LOOKS;
            let finds_work = || queue::length(cpu) != 0 || !own_only && anything_to_run();
            // The last look, after the announcement. An interrupt by a CPU that queues a thread from now on
            // ends the halt, because interrupts have been off since then.
            if CPUS.may_halt(Cpu(cpu), finds_work) {
                timer::program();
                arch::wait_for_interrupt();
            }
        }
        CPUS.end(Cpu(cpu));
    }
}

/// Polls for a while before halting, which is quicker than a wake-up, for both sides.
fn poll(cpu: u32) {
    CPUS.begin_polling(Cpu(cpu));
    let end = time::now() + LOOK;
    while !anything_to_run() && time::now() < end {
        arch::relax();
    }
}

fn anything_to_run() -> bool {
    (0..percpu::count()).any(|cpu| queue::length(cpu) != 0)
}
