//! The kernel's own page tables and the protection of kernel memory.
//!
//! Three regions, each beginning at a root entry of its own:
//! - the direct map of all physical memory, writable, never executable, and read-only where it
//!   aliases the kernel's text and constants;
//! - the window for device registers and kernel stacks (`map_device`, `map_stack_page`);
//! - the kernel image at -2 GiB: text executable and read-only, constants read-only, the rest
//!   writable and not executable.
//!
//! Every root table shares the upper half by copying the root entries once (`copy_upper_half`), so
//! all third-level tables of the window exist from the start. Nothing mapped here is ever unmapped
//! or lowered after boot; that is why the kernel half needs no shootdowns and may be global.

use core::sync::atomic::{AtomicU64, Ordering};

use bitflags::bitflags;

use super::boot::KERNEL_BASE;
use super::start_info::{RangeKind, StartInfo};
use crate::memory::boot_frames::BootFrames;
use crate::sync::SpinLock;

/// The address of physical address 0 in the direct map.
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;
/// Device registers.
const DEVICES: u64 = 0xffff_fe00_0000_0000;
/// Kernel stacks.
pub const STACKS: u64 = 0xffff_ff00_0000_0000;
/// Size of the stack region: one root entry.
pub const STACKS_SIZE: u64 = 1 << 39;

const PAGE: u64 = 4096;
const LARGE: u64 = 2 << 20;
const HUGE: u64 = 1 << 30;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

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
const TABLE: u64 = Bits::PRESENT
    .union(Bits::WRITABLE)
    .union(Bits::ACCESSED)
    .bits();

/// The kernel's root table; 0 until it is built.
static ROOT: AtomicU64 = AtomicU64::new(0);
/// Serialises changes of the kernel's tables.
static TABLES: SpinLock<()> = SpinLock::new(());
/// The next free address of the device window.
static NEXT_DEVICE: AtomicU64 = AtomicU64::new(DEVICES);

/// The address of physical memory in the direct map.
pub const fn physical_to_virtual(physical: u64) -> *mut u8 {
    (DIRECT_MAP + physical) as *mut u8
}

/// The physical address of a part of the kernel's image.
pub const fn image_to_physical(address: u64) -> u64 {
    address - KERNEL_BASE
}

/// Physical memory as a slice.
///
/// # Safety
/// The range is memory in the direct map, holds values of `T`, and is not written.
pub unsafe fn physical_slice<T>(physical: u64, length: usize) -> &'static [T] {
    // SAFETY: The caller's promise.
    unsafe { core::slice::from_raw_parts(physical_to_virtual(physical).cast(), length) }
}

/// The kernel's root table.
pub fn kernel_root() -> u64 {
    ROOT.load(Ordering::Relaxed)
}

unsafe extern "C" {
    static __image_start: u8;
    static __text_start: u8;
    static __text_end: u8;
    static __rodata_start: u8;
    static __data_start: u8;
    static __data_end: u8;
    static __image_end: u8;
}

fn symbol(symbol: *const u8) -> u64 {
    symbol as u64
}

/// The physical range that the kernel image takes.
pub fn image_range() -> (u64, u64) {
    (
        symbol(&raw const __image_start) - KERNEL_BASE,
        symbol(&raw const __image_end) - KERNEL_BASE,
    )
}

/// Builds the kernel's tables and switches to them.
pub fn build(info: &StartInfo, frames: &mut BootFrames, gigabyte_pages: bool) {
    let mut new_table = || frames.allocate_zeroed(1);
    let root = new_table();
    let data = BASE | Bits::WRITABLE | Bits::NO_EXECUTE;
    let mut map = |at: u64, physical: u64, size: u64, bits: Bits| {
        map_one(root, at, physical, size, bits, &mut new_table);
    };

    let top = info
        .ranges
        .iter()
        .filter(|range| range.kind == RangeKind::Usable)
        .map(|range| range.end)
        .max()
        .unwrap_or(0)
        .max(4 << 30)
        .next_multiple_of(HUGE);
    let constants = symbol(&raw const __text_start) - KERNEL_BASE
        ..symbol(&raw const __data_start) - KERNEL_BASE;
    let mut at = 0;
    while at < top {
        let overlaps = |size| at < constants.end && constants.start < at + size;
        if gigabyte_pages && at % HUGE == 0 && !overlaps(HUGE) {
            map(DIRECT_MAP + at, at, HUGE, data);
            at += HUGE;
        } else if at % LARGE == 0 && !overlaps(LARGE) {
            map(DIRECT_MAP + at, at, LARGE, data);
            at += LARGE;
        } else {
            let read_only = constants.contains(&at);
            let bits = if read_only {
                data - Bits::WRITABLE
            } else {
                data
            };
            map(DIRECT_MAP + at, at, PAGE, bits);
            at += PAGE;
        }
    }

    let mut map_image = |from: *const u8, to: *const u8, bits: Bits| {
        let mut at = symbol(from);
        while at < symbol(to) {
            map(at, at - KERNEL_BASE, PAGE, bits);
            at += PAGE;
        }
    };
    map_image(&raw const __text_start, &raw const __text_end, BASE);
    map_image(
        &raw const __rodata_start,
        &raw const __data_start,
        BASE | Bits::NO_EXECUTE,
    );
    map_image(&raw const __data_start, &raw const __data_end, data);

    for region in [DEVICES, STACKS] {
        // SAFETY: The new root is ours alone, and its upper half has 256 entries.
        unsafe {
            let entry = physical_to_virtual(root)
                .cast::<u64>()
                .add(index(region, 3));
            *entry = new_table() | TABLE;
        }
    }
    ROOT.store(root, Ordering::Release);
    load_root(root);
}

/// Copies the kernel's half into a new root table.
///
/// # Safety
/// `root` is a table that is not in use yet.
pub unsafe fn copy_upper_half(root: *mut u64) {
    let kernel = physical_to_virtual(kernel_root()).cast::<u64>();
    // SAFETY: Both are root tables of 512 entries; the kernel's upper half no longer changes.
    unsafe { core::ptr::copy_nonoverlapping(kernel.add(256), root.add(256), 256) };
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

/// Makes one page of device registers accessible; boot only.
pub fn map_device(physical: u64, frames: &mut BootFrames) -> *mut u8 {
    let at = NEXT_DEVICE.fetch_add(PAGE, Ordering::Relaxed);
    let bits = BASE | Bits::WRITABLE | Bits::NO_EXECUTE | Bits::UNCACHED;
    map_one(kernel_root(), at, physical, PAGE, bits, &mut || {
        frames.allocate_zeroed(1)
    });
    at as *mut u8
}

/// Maps one page of a kernel stack.
///
/// `tables` are zeroed frames for missing tables, taken as needed; two always suffice.
pub fn map_stack_page(at: u64, physical: u64, tables: &mut dyn Iterator<Item = u64>) {
    let bits = BASE | Bits::WRITABLE | Bits::NO_EXECUTE;
    let _guard = TABLES.lock();
    map_one(kernel_root(), at, physical, PAGE, bits, &mut || {
        tables.next().expect("two tables suffice for one page")
    });
}

const fn index(at: u64, level: usize) -> usize {
    (at >> (12 + 9 * level)) as usize & 511
}

fn map_one(
    root: u64,
    at: u64,
    physical: u64,
    size: u64,
    bits: Bits,
    new_table: &mut dyn FnMut() -> u64,
) {
    let (last, large) = match size {
        HUGE => (2, Bits::LARGE),
        LARGE => (1, Bits::LARGE),
        _ => (0, Bits::empty()),
    };
    let mut table = root;
    for level in (last + 1..=3).rev() {
        // SAFETY: `table` is a live table, and only one CPU changes the kernel's tables at a time.
        let entry = unsafe {
            &mut *physical_to_virtual(table)
                .cast::<u64>()
                .add(index(at, level))
        };
        if *entry & 1 == 0 {
            *entry = new_table() | TABLE;
        }
        table = *entry & ADDRESS;
    }
    // SAFETY: As above.
    unsafe {
        *physical_to_virtual(table)
            .cast::<u64>()
            .add(index(at, last)) = physical | (bits | large).bits();
    }
}
