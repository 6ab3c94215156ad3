//! The addresses of a program, as Linux chooses them.

use faultless_mm::Layout;

/// The usual layout.
pub const USUAL: Layout = Layout::LINUX_X86_64;

/// The end of user memory.
pub const USER_END: u64 = USUAL.end;

/// Where a position-independent program is loaded, without randomisation.
pub const PIE_BASE: u64 = 0x5555_5555_4000;

/// The ELF files that run.
pub const ELF_MACHINE: u16 = elf::abi::EM_X86_64;

/// The machine's name (`uname`, `AT_PLATFORM`).
pub const MACHINE: &str = "x86_64";

/// Instructions that return from a signal handler: programs have their own.
pub const TRAMPOLINE: &[u32] = &[];

/// The address that a program means: it has no tags here.
#[inline]
pub const fn untagged(address: u64) -> u64 {
    address
}

/// The flags of `mmap` that there are: all of them.
#[inline]
pub const fn map_flags(flags: u32) -> u32 {
    flags
}
