//! Flushes of this CPU's translations. Those of other CPUs are theirs to flush (`shootdown`).

use core::sync::atomic::{Ordering, fence};

use super::{apic, paging, shootdown};
use faultless_paging::{Flush, PAGE_SIZE, SpaceId};

/// The largest number of pages flushed one by one; beyond it everything is flushed. This is Linux's ceiling,
/// for its reasons. An `invlpg` takes about 100 ns, and the walk for one translation lost in a full flush
/// takes at most as long. With 512 translations in use the two costs meet at 256 pages or fewer. Walks are
/// mostly far quicker: Linux took a sixteenth of the TLB (its commit e7b52ffd45a6), and takes this number
/// today (Documentation/arch/x86/tlb.rst). A better number cannot be measured here, because an emulator's
/// `invlpg` says nothing about a processor's.
pub const MAX_SINGLE: u64 = 33;

/// Orders the changes of entries before a flush, for the walks of all CPUs, and before this CPU looks which they are.
#[inline]
pub fn order_changes() {
    fence(Ordering::SeqCst);
}

/// Whether the hardware flushes other CPUs: it does not.
#[inline]
pub const fn broadcasts() -> bool {
    false
}

/// Drops a range of translations on all CPUs, where the hardware can.
pub fn flush_all_cpus(_space: SpaceId, _flush: Flush) {}

/// Drops all translations of user memory.
pub fn flush_everything() {
    paging::load_root(paging::current_root());
}

/// Drops all translations of the space that this CPU is in.
pub fn flush_space(_space: SpaceId) {
    flush_everything();
}

/// Drops the translations of a range of the space that this CPU is in.
pub fn flush_range(_space: SpaceId, flush: Flush) {
    flush_pages(flush.start, flush.end);
}

/// Drops the translations of a range, page by page.
pub fn flush_pages(start: u64, end: u64) {
    let mut at = start;
    while at < end {
        // SAFETY: Dropping a translation is always allowed.
        unsafe { core::arch::asm!("invlpg [{}]", in(reg) at, options(nostack, preserves_flags)) };
        at += PAGE_SIZE;
    }
}

/// The interrupt handler for requests of other CPUs.
pub extern "C" fn flush_interrupt() {
    apic::end_of_interrupt();
    shootdown::interrupt();
}
