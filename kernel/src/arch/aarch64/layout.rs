//! The addresses of a program, as Linux chooses them.

use faultless_mm::Layout;

/// The usual layout, of 48-bit addresses.
pub const USUAL: Layout = Layout::LINUX_AARCH64;

/// The end of user memory.
pub const USER_END: u64 = USUAL.end;

/// Where a position-independent program is loaded, without randomisation: two thirds up.
pub const PIE_BASE: u64 = 0xaaaa_aaaa_a000;

/// The ELF files that run.
pub const ELF_MACHINE: u16 = elf::abi::EM_AARCH64;

/// The machine's name (`uname`, `AT_PLATFORM`).
pub const MACHINE: &str = "aarch64";

/// Instructions that return from a signal handler: `mov x8, #139` (`rt_sigreturn`), `svc #0`.
pub const TRAMPOLINE: &[u32] = &[0xd280_1168, 0xd400_0001];
