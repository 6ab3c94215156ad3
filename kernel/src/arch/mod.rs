//! The architecture. The rest of the kernel uses architecture-specific names only through this module.
//!
//! Each architecture is a folder, and both provide the same names. What they have in common lies here:
//! per-CPU data, flushes of other CPUs' translations, the kernel's own page tables, counts of interrupts.

mod fault;
pub mod interrupts;
pub mod kernel_map;
pub mod percpu;
pub mod random;
pub mod shootdown;
pub mod uaccess;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

pub use shootdown::relax;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the kernel runs on x86-64 and AArch64");
