//! Flushes of translations: this CPU's, and those of all CPUs at once, which the hardware broadcasts.

use core::sync::atomic::{AtomicBool, Ordering};

use faultless_paging::{Flush, PAGE_SIZE, SpaceId};

/// The largest number of pages that a CPU flushes one by one for itself; beyond it everything is flushed.
pub const MAX_SINGLE: u64 = 33;
/// The same for a broadcast. Linux's number (its `MAX_DVM_OPS`).
const MAX_BROADCAST: u64 = 512;

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

/// The operand of a flush by address, of all spaces.
fn operand(address: u64) -> u64 {
    address >> 12 & ((1 << 44) - 1)
}

/// Drops all of this CPU's translations of user memory.
pub fn flush_everything() {
    // SAFETY: Dropping a translation is always allowed. Spaces share ASID 0, and the kernel's are global.
    unsafe {
        core::arch::asm!(
            "dsb nshst",
            "tlbi aside1, xzr",
            "dsb nsh",
            "isb",
            options(nostack, preserves_flags)
        );
    }
}

/// Drops all of this CPU's translations, the global ones among them.
pub fn forget_boot_tables() {
    // SAFETY: As above.
    unsafe {
        core::arch::asm!(
            "tlbi vmalle1",
            "dsb nsh",
            "isb",
            options(nostack, preserves_flags)
        )
    };
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
        core::arch::asm!("tlbi vaae1, {}", "dsb nsh", in(reg) operand(address),
            options(nostack, preserves_flags));
    }
}

/// Drops this CPU's translations of a range, page by page.
pub fn flush_pages(start: u64, end: u64) {
    // SAFETY: As above.
    unsafe {
        core::arch::asm!("dsb nshst", options(nostack, preserves_flags));
        let mut at = start;
        while at < end {
            core::arch::asm!("tlbi vaae1, {}", in(reg) operand(at), options(nostack, preserves_flags));
            at += PAGE_SIZE;
        }
        core::arch::asm!("dsb nsh", "isb", options(nostack, preserves_flags));
    }
}

/// Drops a range of translations on all CPUs. When it returns, no access that used one is still under way.
pub fn flush_all_cpus(_space: SpaceId, flush: Flush) {
    // SAFETY: As above. The first barrier orders the changes of entries before the flush.
    unsafe {
        core::arch::asm!("dsb ishst", options(nostack, preserves_flags));
        if flush.end == u64::MAX || flush.pages() > MAX_BROADCAST {
            core::arch::asm!("tlbi aside1is, xzr", options(nostack, preserves_flags));
        } else {
            let mut at = flush.start;
            while at < flush.end {
                core::arch::asm!("tlbi vaae1is, {}", in(reg) operand(at),
                    options(nostack, preserves_flags));
                at += PAGE_SIZE;
            }
        }
        core::arch::asm!("dsb ish", "isb", options(nostack, preserves_flags));
    }
}
