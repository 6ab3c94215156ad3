//! Per-CPU data, reached through a register of the CPU (`this_cpu`).
//!
//! Fields are written by their own CPU unless they say otherwise. Kernel code is not preemptible, so a value
//! read here stays true until the thread sleeps.

use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::shootdown::{self, Mailbox};
pub use super::this_cpu::{cpu_number, current, install, this};
use crate::process::UserSpace;
use crate::sched::thread::Thread;

/// The most CPUs that the kernel runs on.
pub const MAX_CPUS: usize = 64;

/// One CPU's own data. The assembly uses the first fields by offset.
#[repr(C, align(128))]
pub struct PerCpu {
    pub(super) this: AtomicPtr<PerCpu>,
    /// The stack that a system call of the current thread begins on.
    pub kernel_stack: AtomicU64,
    /// A word of the architecture's: where the entry code stores a user register for a moment (x86-64), or where the
    /// last plain load was (AArch64).
    pub scratch: AtomicU64,
    /// The thread that runs.
    pub current: AtomicPtr<Thread>,
    /// This CPU's number.
    pub number: AtomicU32,
    /// The hardware's number of this CPU; other CPUs read it to send interrupts.
    pub hardware_id: AtomicU64,
    /// Whether accesses to user memory must not enter the fault engine now.
    pub no_fault: AtomicBool,
    /// Whether waits must leave interrupts off now (`sched::timer::without_naps`).
    pub stays_awake: AtomicBool,
    /// The address space that it runs in; see `process::space`.
    pub space: AtomicPtr<UserSpace>,
    /// Written by CPUs that request a flush of this CPU.
    pub mailbox: Mailbox,
}

/// Offsets for assembly.
pub const KERNEL_STACK: usize = offset_of!(PerCpu, kernel_stack);
pub const SCRATCH: usize = offset_of!(PerCpu, scratch);
pub const CURRENT: usize = offset_of!(PerCpu, current);
/// See [`shootdown`].
pub const FLUSH_REQUESTED: usize = offset_of!(PerCpu, mailbox) + shootdown::REQUESTED;
pub const FLUSH_DONE: usize = offset_of!(PerCpu, mailbox) + shootdown::DONE;
pub const USES_USER: usize = offset_of!(PerCpu, mailbox) + shootdown::USES_USER;
pub const NUMBER: usize = offset_of!(PerCpu, number);

impl PerCpu {
    const fn new() -> Self {
        Self {
            this: AtomicPtr::new(core::ptr::null_mut()),
            kernel_stack: AtomicU64::new(0),
            scratch: AtomicU64::new(0),
            current: AtomicPtr::new(core::ptr::null_mut()),
            number: AtomicU32::new(0),
            hardware_id: AtomicU64::new(0),
            no_fault: AtomicBool::new(false),
            stays_awake: AtomicBool::new(false),
            space: AtomicPtr::new(core::ptr::null_mut()),
            mailbox: Mailbox::new(),
        }
    }
}

static CPUS: [PerCpu; MAX_CPUS] = [const { PerCpu::new() }; MAX_CPUS];
/// How many CPUs run.
static COUNT: AtomicU32 = AtomicU32::new(1);

/// The data of the CPU with this number.
pub fn of(number: u32) -> &'static PerCpu {
    &CPUS[number as usize]
}

/// How many CPUs run.
pub fn count() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// Sets how many CPUs run.
pub fn set_count(count: u32) {
    COUNT.store(count, Ordering::Relaxed);
}
