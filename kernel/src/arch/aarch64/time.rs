//! Time: the generic timer's virtual counter for clocks, and its compare register for deadlines.
//!
//! With QEMU's `-icount` the counter counts instructions, 16 at a time, and so does the clock.

use core::sync::atomic::{AtomicU64, Ordering};

use super::sysreg::{isb, read_sysreg, write_sysreg};

/// Nanoseconds per tick, as a 32.32 fixed-point number.
static SCALE: AtomicU64 = AtomicU64::new(0);
/// Ticks per nanosecond, likewise.
static INVERSE: AtomicU64 = AtomicU64::new(0);
/// The counter at boot.
static BASE: AtomicU64 = AtomicU64::new(0);
/// Seconds since 1970 at boot.
static BOOT_TIME: AtomicU64 = AtomicU64::new(0);

const ENABLE: u64 = 1;

/// The counter.
#[inline]
pub fn ticks() -> u64 {
    let value: u64;
    // SAFETY: Reads a counter. The barrier keeps the read in its place.
    unsafe {
        core::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) value,
            options(nostack, preserves_flags));
    }
    value
}

/// The rate of the counter.
pub fn hertz() -> u64 {
    read_sysreg!("cntfrq_el0")
}

/// The rate of the counter in kHz.
pub fn kilohertz() -> u64 {
    hertz() / 1000
}

/// Nanoseconds since boot.
#[inline]
pub fn now() -> u64 {
    let ticks = ticks().wrapping_sub(BASE.load(Ordering::Relaxed));
    ((u128::from(ticks) * u128::from(SCALE.load(Ordering::Relaxed))) >> 32) as u64
}

/// Nanoseconds since 1970.
pub fn real_now() -> u64 {
    now() + BOOT_TIME.load(Ordering::Relaxed) * 1_000_000_000
}

/// Arms the timer interrupt for this time.
pub fn set_deadline(deadline: u64) {
    let ticks = (u128::from(deadline) * u128::from(INVERSE.load(Ordering::Relaxed))) >> 32;
    let at = BASE
        .load(Ordering::Relaxed)
        .saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX));
    // SAFETY: The timer is the kernel's.
    unsafe {
        write_sysreg!("cntv_cval_el0", at);
        write_sysreg!("cntv_ctl_el0", ENABLE);
    }
    isb();
}

/// Stops the timer, whose interrupt stays pending as long as its time is past.
pub fn stop_timer() {
    // SAFETY: The timer is the kernel's.
    unsafe { write_sysreg!("cntv_ctl_el0", 0u64) };
    isb();
}

/// Finds the rates; boot CPU only. `clock`: seconds since 1970.
pub fn calibrate(clock: u64) {
    let rate = u128::from(hertz().max(1));
    SCALE.store(((1_000_000_000u128 << 32) / rate) as u64, Ordering::Relaxed);
    INVERSE.store(((rate << 32) / 1_000_000_000) as u64, Ordering::Relaxed);
    BASE.store(ticks(), Ordering::Relaxed);
    BOOT_TIME.store(clock, Ordering::Relaxed);
}
