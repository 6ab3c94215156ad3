//! The way to this CPU's data: in kernel mode the GS base points to it. The entry code swaps it in.

use core::sync::atomic::Ordering;

use super::percpu::{CURRENT, NUMBER, PerCpu, of};
use crate::sched::thread::Thread;

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
pub fn install(number: u32, hardware_id: u64) {
    let cpu = of(number);
    cpu.number.store(number, Ordering::Relaxed);
    cpu.hardware_id.store(hardware_id, Ordering::Relaxed);
    cpu.this
        .store(core::ptr::from_ref(cpu).cast_mut(), Ordering::Relaxed);
    super::msr::write(super::msr::GS_BASE, core::ptr::from_ref(cpu) as u64);
    super::msr::write(super::msr::KERNEL_GS_BASE, 0);
}
