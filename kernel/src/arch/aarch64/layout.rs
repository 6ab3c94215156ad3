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

/// The address that a program means: without the byte that it may use for a tag.
#[inline]
pub const fn untagged(address: u64) -> u64 {
    match address & 1 << 55 {
        0 => address & ((1 << 56) - 1),
        _ => address,
    }
}

/// Flags of `mmap` that Linux has on x86-64 alone: `MAP_32BIT` and `MAP_ABOVE4G`.
const OF_X86: u32 = 0x40 | 0x80;
/// A flag that means nothing on any architecture.
const UNKNOWN: u32 = 0x200;

/// The flags of `mmap` that there are. The others become an unknown one, which the memory core refuses where the program
/// wants that.
#[inline]
pub const fn map_flags(flags: u32) -> u32 {
    match flags & OF_X86 {
        0 => flags,
        _ => flags & !OF_X86 | UNKNOWN,
    }
}
