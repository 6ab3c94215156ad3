//! Per-CPU data, reached through the GS base.
//!
//! In kernel mode GS points here; the entry code swaps it in. Fields are written by their own CPU
//! unless they say otherwise. Kernel code is not preemptible, so a value read here stays true until
//! the thread sleeps.

use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::tlb::Mailbox;
use crate::process::UserSpace;
use crate::sched::thread::Thread;

/// The most CPUs that the kernel runs on.
pub const MAX_CPUS: usize = 64;

/// One CPU's own data. The assembly uses the first fields by offset.
#[repr(C, align(128))]
pub struct PerCpu {
    this: AtomicPtr<PerCpu>,
    /// The stack that a system call of the current thread begins on.
    pub kernel_stack: AtomicU64,
    /// Where the system call entry stores the user's stack pointer for a moment.
    pub user_stack: AtomicU64,
    /// The thread that runs.
    pub current: AtomicPtr<Thread>,
    /// This CPU's number.
    pub number: AtomicU32,
    /// This CPU's local APIC id; other CPUs read it to send interrupts.
    pub apic_id: AtomicU32,
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
pub const USER_STACK: usize = offset_of!(PerCpu, user_stack);
pub const CURRENT: usize = offset_of!(PerCpu, current);
/// See [`super::tlb`].
pub const FLUSH_REQUESTED: usize = offset_of!(PerCpu, mailbox) + super::tlb::REQUESTED;
pub const FLUSH_DONE: usize = offset_of!(PerCpu, mailbox) + super::tlb::DONE;
pub const USES_USER: usize = offset_of!(PerCpu, mailbox) + super::tlb::USES_USER;
const NUMBER: usize = offset_of!(PerCpu, number);

impl PerCpu {
    const fn new() -> Self {
        Self {
            this: AtomicPtr::new(core::ptr::null_mut()),
            kernel_stack: AtomicU64::new(0),
            user_stack: AtomicU64::new(0),
            current: AtomicPtr::new(core::ptr::null_mut()),
            number: AtomicU32::new(0),
            apic_id: AtomicU32::new(0),
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

/// This CPU's data.
#[inline]
pub fn this() -> &'static PerCpu {
    // SAFETY: `install` ran on this CPU before anything asks; the field never changes.
    unsafe {
        let pointer: *const PerCpu;
        core::arch::asm!("mov {}, gs:[0]", out(reg) pointer,
            options(nostack, preserves_flags, readonly, pure));
        &*pointer
    }
}

/// This CPU's number.
#[inline]
pub fn cpu_number() -> u32 {
    // SAFETY: As `this`.
    unsafe {
        let number: u32;
        core::arch::asm!("mov {:e}, gs:[{}]", out(reg) number, const NUMBER,
            options(nostack, preserves_flags, readonly, pure));
        number
    }
}

/// The thread that runs on this CPU, if threads run already.
#[inline]
pub fn current() -> Option<&'static Thread> {
    // SAFETY: As `this`; threads are never unmapped, and the current one is not recycled.
    unsafe {
        let thread: *const Thread;
        core::arch::asm!("mov {}, gs:[{}]", out(reg) thread, const CURRENT,
            options(nostack, preserves_flags, readonly));
        thread.as_ref()
    }
}

/// Makes GS point to the data of CPU `number` on this CPU.
pub fn install(number: u32, apic_id: u32) {
    let cpu = of(number);
    cpu.number.store(number, Ordering::Relaxed);
    cpu.apic_id.store(apic_id, Ordering::Relaxed);
    cpu.this
        .store(core::ptr::from_ref(cpu).cast_mut(), Ordering::Relaxed);
    super::msr::write(super::msr::GS_BASE, core::ptr::from_ref(cpu) as u64);
    super::msr::write(super::msr::KERNEL_GS_BASE, 0);
}

/// How many CPUs run.
pub fn count() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// Sets how many CPUs run.
pub fn set_count(count: u32) {
    COUNT.store(count, Ordering::Relaxed);
}
