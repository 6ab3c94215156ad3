//! AArch64: Armv8.1 and later, with a GICv3, as QEMU's machine `virt` and servers have it.
//!
//! Reading order: `boot` (first instructions), `entry` and `trap` (the way in and out), `context` (switching
//! threads), `tlb`. The rest of the kernel uses the names that are re-exported here.

mod asid;
pub mod boot;
pub mod context;
pub mod cpu;
pub mod debugcon;
pub mod entropy;
pub mod entry;
pub mod features;
pub mod fpu;
pub mod frame;
pub mod gic;
pub mod layout;
pub mod legacy;
mod memory_functions;
pub mod paging;
pub mod pci;
pub mod power;
pub mod protection_keys;

pub mod registers;
pub mod rmw;
pub mod serial;
pub mod signal_frame;
pub mod smp;
pub mod sources;
mod start;
pub mod start_info;
pub mod stat;
mod sysreg;
pub mod this_cpu;
pub mod time;
pub mod tlb;
pub mod trap;
pub mod user_copy;
pub mod window;
mod zero;

use super::{fault, interrupts, kernel_map, percpu, shootdown, uaccess};
pub use features::hardware_capabilities;
pub use frame::TrapFrame;
pub use zero::zero_page;

/// Waits for an interrupt, with interrupts on only at its end. None is missed between the caller's last look and
/// the wait: a pending interrupt ends the wait although it is masked. The caller holds no lock.
pub fn wait_for_interrupt() {
    // SAFETY: The kernel can be interrupted here, as the caller says.
    unsafe { core::arch::asm!("dsb sy", "wfi", options(nostack)) };
    take_interrupts();
}

/// Takes pending interrupts, if any. The caller holds no lock.
pub fn take_interrupts() {
    // SAFETY: As above. They come at the latest at the barrier.
    unsafe {
        core::arch::asm!(
            "msr daifclr, #2",
            "isb",
            "msr daifset, #2",
            options(nostack)
        )
    };
}
