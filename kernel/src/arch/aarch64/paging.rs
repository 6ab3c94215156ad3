//! Page tables of this CPU. TTBR1 leads to the kernel's own (`kernel_map`), TTBR0 to the tables of the space that
//! runs, or to an empty table.

use core::sync::atomic::{AtomicU64, Ordering};

use faultless_paging::SpaceId;

pub use super::kernel_map::*;
use super::sysreg::{isb, read_sysreg, write_sysreg};
use super::{asid, rmw, shootdown, tlb};

/// The entries of user memory.
pub type Entries = faultless_paging::AArch64;

/// The physical address of an entry.
pub const ADDRESS: u64 = 0x0000_ffff_ffff_f000;
/// An entry that leads to a table.
pub const TABLE: u64 = 0b11;

/// Memory attributes: 0 is normal memory, write-back; 1 is device memory that may acknowledge writes early.
pub const MAIR: u64 = 0x04ff;

const BLOCK: u64 = 0b01;
const PAGE: u64 = 0b11;
const DEVICE: u64 = 1 << 2;
const READ_ONLY: u64 = 1 << 7;
const INNER_SHAREABLE: u64 = 0b11 << 8;
const ACCESSED: u64 = 1 << 10;
const NO_KERNEL_EXECUTE: u64 = 1 << 53;
const NO_USER_EXECUTE: u64 = 1 << 54;
const NO_EXECUTE: u64 = NO_KERNEL_EXECUTE | NO_USER_EXECUTE;

/// Blocks of the boot tables.
pub const BOOT_MEMORY: u64 = BLOCK | INNER_SHAREABLE | ACCESSED | NO_USER_EXECUTE;
pub const BOOT_DEVICE: u64 = BLOCK | DEVICE | ACCESSED | NO_EXECUTE;

/// TCR_EL1 without the size of physical addresses: 48 bits and 4 KiB pages on both sides, cacheable and inner
/// shareable walks, 16-bit ASIDs, and the top byte of user addresses ignored.
pub const TCR: u64 = 16
    | 16 << 16
    | 0b01 << 8
    | 0b01 << 10
    | 0b11 << 12
    | 0b01 << 24
    | 0b01 << 26
    | 0b11 << 28
    | 0b10 << 30
    | 1 << 36
    | 1 << 37;
/// Hardware sets the accessed bit (HA), and clears the bit of clean pages (HD).
pub const TCR_HA: u64 = 1 << 39;
pub const TCR_HD: u64 = 1 << 40;

/// Where the loader has put the image.
static IMAGE: AtomicU64 = AtomicU64::new(0);
/// An empty root table, for CPUs that are in no space.
static EMPTY: AtomicU64 = AtomicU64::new(0);

/// Sets where the image lies, before anything asks.
pub fn set_image_base(physical: u64) {
    IMAGE.store(physical, Ordering::Relaxed);
}

/// The physical address of the kernel's image.
pub fn image_base() -> u64 {
    IMAGE.load(Ordering::Relaxed)
}

/// Sets the table of CPUs that are in no space.
pub fn set_empty_root(root: u64) {
    EMPTY.store(root, Ordering::Relaxed);
}

/// The bits of an entry that maps memory of the kernel; level 0 is that of pages.
pub fn leaf(kind: Kind, level: usize) -> u64 {
    let bits = match kind {
        Kind::Data => INNER_SHAREABLE | NO_EXECUTE,
        Kind::Constants => INNER_SHAREABLE | NO_EXECUTE | READ_ONLY,
        Kind::Text => INNER_SHAREABLE | NO_USER_EXECUTE | READ_ONLY,
        Kind::Device => DEVICE | NO_EXECUTE,
    };
    let size = if level == 0 { PAGE } else { BLOCK };
    bits | size | ACCESSED
}

/// An entry of the kernel was written, where there was none before: walks by any CPU see it from here on.
pub fn mapped() {
    // SAFETY: Barriers.
    unsafe { core::arch::asm!("dsb ishst", "isb", options(nostack, preserves_flags)) };
}

/// Makes the kernel's tables the ones in use, at boot.
pub fn load_kernel_root(root: u64) {
    // SAFETY: The tables map all of the kernel as the boot tables do, and no CPU is in user mode.
    unsafe {
        core::arch::asm!("dsb sy", options(nostack, preserves_flags));
        write_sysreg!("ttbr1_el1", root);
        write_sysreg!("ttbr0_el1", EMPTY.load(Ordering::Relaxed));
        core::arch::asm!(
            "isb",
            "tlbi vmalle1",
            "dsb nsh",
            "isb",
            options(nostack, preserves_flags)
        );
    }
}

/// A root table of user memory has nothing of the kernel.
///
/// # Safety
/// None: it does nothing.
pub unsafe fn init_user_root(_root: *mut u64) {}

/// A CPU that leaves a space keeps its translations ([`asid`]), and stays in the space's set of CPUs.
pub const KEEPS_TRANSLATIONS: bool = true;

/// Makes this CPU use the tables of a space. `joins`: the CPU was not in the space's set of CPUs before.
pub fn load_space(space: SpaceId, joins: bool) {
    if joins {
        // The walks from here on come after the CPU has joined. A CPU that was in the set has missed no flush.
        tlb::order_changes();
    }
    if !tlb::broadcasts() {
        // A flush that this CPU has put off: what it asked for is gone before a walk may begin.
        shootdown::poll();
    }
    let asid = asid::of(space);
    if asid::is_new(asid, space) {
        // The space that this CPU is in may have the same ASID: no walk fills the TLB after the flush.
        load_user_root(EMPTY.load(Ordering::Relaxed));
        tlb::flush_asid(asid);
    }
    load_user_root(space.root.0 << 12 | asid << 48);
    rmw::forget();
}

/// Makes this CPU use no tables of user memory.
pub fn load_no_space() {
    load_user_root(EMPTY.load(Ordering::Relaxed));
}

/// Loads a root table and its ASID.
#[inline]
fn load_user_root(root: u64) {
    // SAFETY: The kernel's half is elsewhere, so this code stays mapped.
    unsafe { write_sysreg!("ttbr0_el1", root) };
    isb();
}

/// The physical address of normal memory that the kernel reads at a user address; `None`: none is mapped there. The hardware
/// walks the tables; this cannot fault.
pub fn translate(address: u64) -> Option<u64> {
    // SAFETY: The instruction changes nothing but PAR_EL1, which only this function uses after boot.
    unsafe {
        core::arch::asm!("at s1e1r, {}", "isb", in(reg) address, options(nostack, preserves_flags));
    }
    let result = read_sysreg!("par_el1");
    let is_memory = result & 1 == 0 && result >> 56 == MAIR & 0xff;
    is_memory.then_some(result & ADDRESS | address & 0xfff)
}
