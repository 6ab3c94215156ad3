//! Flushes of translations: this CPU's, and those of all CPUs at once, which the hardware broadcasts.
//!
//! A translation has the ASID of its space ([`asid`]). Where the space is known, only its own are dropped.

use core::sync::atomic::{AtomicBool, Ordering};

use faultless_paging::{Flush, PAGE_SIZE, SpaceId};

use super::asid;

/// The largest number of pages that a CPU flushes one by one for itself; beyond it everything is flushed.
pub const MAX_SINGLE: u64 = 33;
/// The same for a broadcast: fewer than a table has, as on Linux (its `MAX_DVM_OPS`).
const MAX_BROADCAST: u64 = 511;

/// Whether the hardware flushes other CPUs.
static BROADCASTS: AtomicBool = AtomicBool::new(true);

/// Chooses whether the hardware flushes other CPUs, or an interrupt makes them do it; at boot.
pub fn choose(broadcasts: bool) {
    BROADCASTS.store(broadcasts, Ordering::Relaxed);
}

/// Whether the hardware flushes other CPUs.
#[inline]
pub fn broadcasts() -> bool {
    BROADCASTS.load(Ordering::Relaxed)
}

/// The part of an operand that names an address.
fn of_address(address: u64) -> u64 {
    address >> 12 & ((1 << 44) - 1)
}

/// The part of an operand that names a space.
fn of_space(space: SpaceId) -> u64 {
    asid::of(space) << 48
}

/// A TLB operation on each page of a range.
macro_rules! each_page {
    ($operation:literal, $of:expr, $range:expr) => {{
        let of = $of;
        let mut at = $range.start;
        while at < $range.end {
            core::arch::asm!(concat!("tlbi ", $operation, ", {}"), in(reg) of | of_address(at),
                options(nostack, preserves_flags));
            at += PAGE_SIZE;
        }
    }};
}

/// Drops all of this CPU's translations, of all spaces and of the kernel.
pub fn flush_everything() {
    // SAFETY: Dropping a translation is always allowed.
    unsafe {
        core::arch::asm!(
            "dsb nshst",
            "tlbi vmalle1",
            "dsb nsh",
            "isb",
            options(nostack, preserves_flags)
        );
    }
}

/// Drops this CPU's translations of a range, of all spaces.
pub fn flush_pages(start: u64, end: u64) {
    // SAFETY: As above.
    unsafe {
        core::arch::asm!("dsb nshst", options(nostack, preserves_flags));
        each_page!("vaae1", 0, start..end);
        core::arch::asm!("dsb nsh", "isb", options(nostack, preserves_flags));
    }
}

/// Drops all of this CPU's translations of an ASID. Changes of entries need no order here.
pub fn flush_asid(asid: u64) {
    // SAFETY: As above.
    unsafe {
        core::arch::asm!("tlbi aside1, {}", "dsb nsh", "isb", in(reg) asid << 48,
            options(nostack, preserves_flags));
    }
}

/// Drops all of this CPU's translations of a space.
pub fn flush_space(space: SpaceId) {
    // SAFETY: A barrier: the changes of entries come before the flush.
    unsafe { core::arch::asm!("dsb nshst", options(nostack, preserves_flags)) };
    flush_asid(asid::of(space));
}

/// Drops this CPU's translations of a range of a space.
pub fn flush_range(space: SpaceId, flush: Flush) {
    // SAFETY: As above. Without changed tables what walks have cached above the last level stays.
    unsafe {
        core::arch::asm!("dsb nshst", options(nostack, preserves_flags));
        match flush.tables {
            true => each_page!("vae1", of_space(space), flush),
            false => each_page!("vale1", of_space(space), flush),
        }
        core::arch::asm!("dsb nsh", "isb", options(nostack, preserves_flags));
    }
}

/// Drops a range of translations of a space on all CPUs. When it returns, no access that used one is still under way.
pub fn flush_all_cpus(space: SpaceId, flush: Flush) {
    // SAFETY: As above. The first barrier orders the changes of entries before the flush.
    unsafe {
        core::arch::asm!("dsb ishst", options(nostack, preserves_flags));
        match flush {
            _ if flush.end == u64::MAX || flush.pages() > MAX_BROADCAST => {
                core::arch::asm!("tlbi aside1is, {}", in(reg) of_space(space),
                    options(nostack, preserves_flags));
            }
            Flush { tables: true, .. } => each_page!("vae1is", of_space(space), flush),
            _ => each_page!("vale1is", of_space(space), flush),
        }
        core::arch::asm!("dsb ish", "isb", options(nostack, preserves_flags));
    }
}

/// Orders the changes of entries before a flush, for the walks of all CPUs, and before this CPU looks which they are.
#[inline]
pub fn order_changes() {
    // SAFETY: A barrier.
    unsafe { core::arch::asm!("dsb ish", options(nostack, preserves_flags)) };
}

/// Drops this CPU's translation of a page, for its next access in user mode.
#[inline]
pub fn flush_page(address: u64) {
    // SAFETY: As above. The return to user mode is the last barrier.
    unsafe {
        core::arch::asm!("tlbi vaae1, {}", "dsb nsh", in(reg) of_address(address),
            options(nostack, preserves_flags));
    }
}
