//! The way to this CPU's data: TPIDR_EL1 points to it.

use core::sync::atomic::Ordering;

use super::percpu::{CURRENT, NUMBER, PerCpu, of};
use super::sysreg::write_sysreg;
use crate::sched::thread::Thread;

/// This CPU's data.
#[inline]
pub fn this() -> &'static PerCpu {
    // SAFETY: `install` ran on this CPU before anything asks.
    unsafe {
        let pointer: *const PerCpu;
        core::arch::asm!("mrs {}, tpidr_el1", out(reg) pointer,
            options(nostack, preserves_flags, nomem));
        &*pointer
    }
}

/// This CPU's number.
#[inline]
pub fn cpu_number() -> u32 {
    // SAFETY: As `this`. Volatile in effect: the thread may have moved since.
    unsafe {
        let number: u32;
        core::arch::asm!("mrs {scratch}, tpidr_el1", "ldr {number:w}, [{scratch}, {at}]",
            scratch = out(reg) _, number = out(reg) number, at = const NUMBER,
            options(nostack, preserves_flags, readonly));
        number
    }
}

/// The thread that runs on this CPU, if threads run already.
#[inline]
pub fn current() -> Option<&'static Thread> {
    // SAFETY: As `this`; threads are never unmapped, and the current one is not recycled.
    unsafe {
        let thread: *const Thread;
        core::arch::asm!("mrs {scratch}, tpidr_el1", "ldr {thread}, [{scratch}, {at}]",
            scratch = out(reg) _, thread = out(reg) thread, at = const CURRENT,
            options(nostack, preserves_flags, readonly));
        thread.as_ref()
    }
}

/// Makes TPIDR_EL1 point to the data of CPU `number` on this CPU.
pub fn install(number: u32, hardware_id: u64) {
    let cpu = of(number);
    cpu.number.store(number, Ordering::Relaxed);
    cpu.hardware_id.store(hardware_id, Ordering::Relaxed);
    cpu.this
        .store(core::ptr::from_ref(cpu).cast_mut(), Ordering::Relaxed);
    // SAFETY: The register is the kernel's alone.
    unsafe { write_sysreg!("tpidr_el1", core::ptr::from_ref(cpu) as u64) };
}
