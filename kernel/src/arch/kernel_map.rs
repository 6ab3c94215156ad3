//! The kernel's own page tables and the protection of kernel memory.
//!
//! Three regions, each beginning at a root entry of its own:
//! - the direct map of all physical memory, writable, never executable, and read-only where it
//!   aliases the kernel's text and constants;
//! - the window for device registers and kernel stacks (`map_device`, `map_stack_page`);
//! - the kernel image at -2 GiB: text executable and read-only, constants read-only, the rest
//!   writable and not executable.
//!
//! All third-level tables of the window exist from the start, because an architecture may copy the root entries
//! into the root table of each space. Nothing mapped here is ever unmapped or lowered after boot; that is why
//! the kernel half needs no shootdowns and may be global.

use core::sync::atomic::{AtomicU64, Ordering};

use super::boot::KERNEL_BASE;
use super::paging::{self, ADDRESS, TABLE};
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

/// What the kernel may do with a page of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Read and write.
    Data,
    /// Read.
    Constants,
    /// Read and execute.
    Text,
    /// Read and write, in order and uncached.
    Device,
}

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
pub fn image_to_physical(address: u64) -> u64 {
    address - KERNEL_BASE + paging::image_base()
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
        image_to_physical(symbol(&raw const __image_start)),
        image_to_physical(symbol(&raw const __image_end)),
    )
}

/// Builds the kernel's tables and switches to them. Below `memory_begins` there are devices only.
pub fn build(
    info: &StartInfo,
    frames: &mut BootFrames,
    gigabyte_pages: bool,
    memory_begins: u64,
    at_least: u64,
) {
    let mut new_table = || frames.allocate_zeroed(1);
    let root = new_table();
    let mut map = |at: u64, physical: u64, size: u64, kind: Kind| {
        map_one(root, at, physical, size, kind, &mut new_table);
    };

    let top = info
        .ranges
        .iter()
        .filter(|range| range.kind == RangeKind::Usable)
        .map(|range| range.end)
        .max()
        .unwrap_or(0)
        .max(at_least);
    let constants = image_to_physical(symbol(&raw const __text_start))
        ..image_to_physical(symbol(&raw const __data_start));
    let mut at = 0;
    while at < top {
        let fits = |size| {
            let overlaps = at < constants.end && constants.start < at + size;
            at.is_multiple_of(size) && at + size <= top && !overlaps
        };
        let size = match () {
            () if gigabyte_pages && fits(HUGE) => HUGE,
            () if fits(LARGE) => LARGE,
            () => PAGE,
        };
        let kind = match at {
            at if at < memory_begins => Kind::Device,
            at if constants.contains(&at) => Kind::Constants,
            _ => Kind::Data,
        };
        map(DIRECT_MAP + at, at, size, kind);
        at += size;
    }

    let mut map_image = |from: *const u8, to: *const u8, kind: Kind| {
        let mut at = symbol(from);
        while at < symbol(to) {
            map(at, image_to_physical(at), PAGE, kind);
            at += PAGE;
        }
    };
    map_image(&raw const __text_start, &raw const __text_end, Kind::Text);
    map_image(
        &raw const __rodata_start,
        &raw const __data_start,
        Kind::Constants,
    );
    map_image(&raw const __data_start, &raw const __data_end, Kind::Data);

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
    paging::load_kernel_root(root);
}

/// Makes one page of device registers accessible; boot only.
pub fn map_device(physical: u64, frames: &mut BootFrames) -> *mut u8 {
    let at = NEXT_DEVICE.fetch_add(PAGE, Ordering::Relaxed);
    map_one(kernel_root(), at, physical, PAGE, Kind::Device, &mut || {
        frames.allocate_zeroed(1)
    });
    at as *mut u8
}

/// Maps one page of a kernel stack.
///
/// `tables` are zeroed frames for missing tables, taken as needed; two always suffice.
pub fn map_stack_page(at: u64, physical: u64, tables: &mut dyn Iterator<Item = u64>) {
    let _guard = TABLES.lock();
    map_one(kernel_root(), at, physical, PAGE, Kind::Data, &mut || {
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
    kind: Kind,
    new_table: &mut dyn FnMut() -> u64,
) {
    let last = match size {
        HUGE => 2,
        LARGE => 1,
        _ => 0,
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
            .add(index(at, last)) = physical | paging::leaf(kind, last);
    }
    paging::mapped();
}
