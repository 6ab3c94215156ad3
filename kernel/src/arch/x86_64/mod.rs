//! x86-64.
//!
//! Reading order: `boot` (first instructions), `paging` (protection of kernel memory), `entry` and `trap`
//! (the way in and out), `context` (switching threads), `tlb` (shootdowns). The rest of the kernel uses the
//! names that are re-exported here.

pub mod acpi;
pub mod apic;
pub mod boot;
pub mod context;
pub mod cpu;
pub mod debugcon;
pub mod entropy;
pub mod entry;
pub mod features;
pub mod fpu;
pub mod frame;
pub mod gdt;
pub mod idt;
pub mod io_apic;
pub mod layout;
pub mod legacy;
pub mod msr;
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
pub mod svm;
pub mod this_cpu;
pub mod time;
pub mod tlb;
pub mod trap;
pub mod user_copy;
pub mod window;
mod zero;

use super::{fault, interrupts, kernel_map, percpu, relax, shootdown, uaccess};
pub use frame::TrapFrame;
pub use zero::zero_page;

/// Waits for an interrupt with interrupts on, then turns them off again. None is missed between the
/// caller's last look and the halt. The caller holds no lock.
pub fn wait_for_interrupt() {
    entry::wait_for_interrupt();
}

/// Takes pending interrupts, if any. The caller holds no lock.
pub fn take_interrupts() {
    // SAFETY: `sti` takes effect after the next instruction; then they come, before `cli`.
    unsafe { core::arch::asm!("sti", "nop", "cli", options(nostack)) };
}

/// The value of AT_HWCAP: the CPU's basic feature word.
pub fn hardware_capabilities() -> u64 {
    raw_cpuid::cpuid!(1).edx.into()
}
