//! Page tables of this CPU. `kernel_map` builds the kernel's own; every root table shares the upper half by
//! copying its root entries once.

use bitflags::bitflags;
use faultless_paging::SpaceId;

pub use super::kernel_map::*;

/// The entries of user memory.
pub type Entries = faultless_paging::X86_64;

/// The physical address of an entry.
pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

bitflags! {
    /// The bits of an entry that the kernel's own mappings use.
    #[derive(Clone, Copy)]
    struct Bits: u64 {
        const PRESENT = 1 << 0;
        const WRITABLE = 1 << 1;
        const UNCACHED = 1 << 3 | 1 << 4;
        const ACCESSED = 1 << 5;
        const DIRTY = 1 << 6;
        const LARGE = 1 << 7;
        const GLOBAL = 1 << 8;
        const NO_EXECUTE = 1 << 63;
    }
}

const BASE: Bits = Bits::PRESENT
    .union(Bits::ACCESSED)
    .union(Bits::DIRTY)
    .union(Bits::GLOBAL);
/// An entry that leads to a table.
pub const TABLE: u64 = Bits::PRESENT
    .union(Bits::WRITABLE)
    .union(Bits::ACCESSED)
    .bits();

/// The kernel's image begins here, at the address [`super::boot::KERNEL_BASE`].
pub const fn image_base() -> u64 {
    0
}

/// The bits of an entry that maps memory of the kernel; level 0 is that of pages.
pub fn leaf(kind: Kind, level: usize) -> u64 {
    let bits = match kind {
        Kind::Data => BASE | Bits::WRITABLE | Bits::NO_EXECUTE,
        Kind::Constants => BASE | Bits::NO_EXECUTE,
        Kind::Text => BASE,
        Kind::Device => BASE | Bits::WRITABLE | Bits::NO_EXECUTE | Bits::UNCACHED,
    };
    match level {
        0 => bits.bits(),
        _ => (bits | Bits::LARGE).bits(),
    }
}

/// An entry of the kernel was written, where there was none before: CPUs see it without more.
pub fn mapped() {}

/// Makes the kernel's tables the ones in use, at boot.
pub fn load_kernel_root(root: u64) {
    load_root(root);
}

/// Copies the kernel's half into a new root table.
///
/// # Safety
/// `root` is a table that is not in use yet.
pub unsafe fn init_user_root(root: *mut u64) {
    let kernel = physical_to_virtual(kernel_root()).cast::<u64>();
    // SAFETY: Both are root tables of 512 entries; the kernel's upper half no longer changes.
    unsafe { core::ptr::copy_nonoverlapping(kernel.add(256), root.add(256), 256) };
}

/// A CPU that leaves a space drops its translations: there are no identifiers in them.
pub const KEEPS_TRANSLATIONS: bool = false;

/// Makes this CPU use the tables of a space.
pub fn load_space(space: SpaceId, _joins: bool) {
    load_root(space.root.0 << 12);
}

/// Makes this CPU use no tables but the kernel's.
pub fn load_no_space() {
    load_root(kernel_root());
}

/// Makes this root table the one that this CPU uses; flushes all but global translations.
pub fn load_root(root: u64) {
    // SAFETY: Every root table has the kernel's half, so this code stays mapped.
    unsafe { core::arch::asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) };
}

/// The root table in use.
pub fn current_root() -> u64 {
    let root: u64;
    // SAFETY: Reading CR3 has no effect.
    unsafe { core::arch::asm!("mov {}, cr3", out(reg) root, options(nomem, nostack)) };
    root & ADDRESS
}
