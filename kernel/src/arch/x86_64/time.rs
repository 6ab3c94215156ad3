//! Time: the time stamp counter for clocks, the local APIC timer for deadlines.
//!
//! The counter's rate comes from CPUID if a hypervisor or the CPU reports it, else from the old programmable
//! timer. With QEMU's `-icount` the counter counts instructions, and so does the clock.

use core::sync::atomic::{AtomicU64, Ordering};

use raw_cpuid::CpuId;
use x86_64::instructions::port::Port;

use super::apic;

/// The programmable timer's rate.
const PIT_HZ: u64 = 1_193_182;
/// Counts of the programmable timer per calibration: about 20 ms.
const PIT_COUNTS: u64 = 23_864;

/// Nanoseconds per tick, as a 32.32 fixed-point number.
static SCALE: AtomicU64 = AtomicU64::new(0);
/// The counter at boot.
static BASE: AtomicU64 = AtomicU64::new(0);
/// APIC timer counts per nanosecond, as a 32.32 fixed-point number.
static TIMER_SCALE: AtomicU64 = AtomicU64::new(0);
/// Seconds since 1970 at boot.
static BOOT_TIME: AtomicU64 = AtomicU64::new(0);

/// The time stamp counter.
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: Reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The rate of the counter in kHz.
pub fn kilohertz() -> u64 {
    let scale = SCALE.load(Ordering::Relaxed).max(1);
    (((1_000_000u128 << 32) + u128::from(scale) / 2) / u128::from(scale)) as u64
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
    let wait = deadline.saturating_sub(now());
    let scale = u128::from(TIMER_SCALE.load(Ordering::Relaxed));
    let count = (u128::from(wait) * scale) >> 32;
    apic::set_timer(count.clamp(1, u128::from(u32::MAX)) as u32);
}

/// Finds all rates; boot CPU only, after its APIC is on.
pub fn calibrate() {
    apic::set_timer(u32::MAX);
    let (from, timer_from) = sample_start();
    let (counts, to, timer_to) = sample_end();
    apic::set_timer(0);
    let nanoseconds = counts * 1_000_000_000 / PIT_HZ;
    let hertz = told_rate().unwrap_or_else(|| {
        (u128::from(to - from) * 1_000_000_000 / u128::from(nanoseconds)) as u64
    });
    SCALE.store(
        ((1_000_000_000u128 << 32) / u128::from(hertz)) as u64,
        Ordering::Relaxed,
    );
    BASE.store(ticks(), Ordering::Relaxed);
    let passed = u64::from(timer_from - timer_to);
    TIMER_SCALE.store((passed << 32) / nanoseconds, Ordering::Relaxed);
    BOOT_TIME.store(read_clock_chip(), Ordering::Relaxed);
}

/// The rate that the CPU or the hypervisor reports.
fn told_rate() -> Option<u64> {
    let cpuid = CpuId::new();
    if let Some(rate) = cpuid.get_tsc_info().and_then(|info| info.tsc_frequency()) {
        return Some(rate);
    }
    let hypervisor = cpuid.get_hypervisor_info()?;
    hypervisor
        .tsc_frequency()
        .map(|kilohertz| u64::from(kilohertz) * 1000)
}

fn read_pit() -> u64 {
    // SAFETY: Latches and reads channel 2, which only this module uses.
    unsafe {
        Port::<u8>::new(0x43).write(0x80);
        let low = Port::<u8>::new(0x42).read();
        let high = Port::<u8>::new(0x42).read();
        u64::from(high) << 8 | u64::from(low)
    }
}

/// The tightest of a few readings, because a host may stop this CPU anywhere in between.
fn read_together() -> (u64, u64, u32) {
    (0..6)
        .map(|_| {
            let before = ticks();
            let pit = read_pit();
            let timer = apic::timer_count();
            let after = ticks();
            (after - before, pit, before + (after - before) / 2, timer)
        })
        .min_by_key(|reading| reading.0)
        .map(|(_, pit, ticks, timer)| (pit, ticks, timer))
        .unwrap_or_default()
}

static PIT_START: AtomicU64 = AtomicU64::new(0);

fn sample_start() -> (u64, u32) {
    // SAFETY: Gates channel 2 on, speaker off, and lets it count down from 65,535 once.
    unsafe {
        let mut gate = Port::<u8>::new(0x61);
        let value = gate.read();
        gate.write(value & !2 | 1);
        Port::<u8>::new(0x43).write(0xb0);
        Port::<u8>::new(0x42).write(0xff);
        Port::<u8>::new(0x42).write(0xff);
    }
    let (pit, ticks, timer) = read_together();
    PIT_START.store(pit, Ordering::Relaxed);
    (ticks, timer)
}

fn sample_end() -> (u64, u64, u32) {
    let start = PIT_START.load(Ordering::Relaxed);
    while start.saturating_sub(read_pit()) < PIT_COUNTS {}
    let (pit, ticks, timer) = read_together();
    (start.saturating_sub(pit).max(1), ticks, timer)
}

/// Seconds since 1970 from the battery clock.
fn read_clock_chip() -> u64 {
    let read = |register: u8| -> u8 {
        // SAFETY: Reads a register of the clock chip.
        unsafe {
            Port::<u8>::new(0x70).write(register);
            Port::<u8>::new(0x71).read()
        }
    };
    let all = || [0u8, 2, 4, 7, 8, 9, 0x0b].map(read);
    let mut values = all();
    // Twice the same: not in the middle of an update.
    for _ in 0..10 {
        let again = all();
        if again == values {
            break;
        }
        values = again;
    }
    let binary = values[6] & 4 != 0;
    let n = |value: u8| {
        u64::from(if binary {
            value
        } else {
            (value >> 4) * 10 + (value & 15)
        })
    };
    let [second, minute, hour, day, month, year, _] = values;
    let (year, month, day) = (2000 + n(year), n(month).clamp(1, 12), n(day).clamp(1, 31));
    // Days since 1970 of the civil calendar, counting years from March.
    let (y, m) = if month <= 2 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    days * 86_400 + n(hour & 0x7f) * 3600 + n(minute) * 60 + n(second)
}
