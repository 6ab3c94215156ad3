//! The PVH start information from the loader (Xen's `hvm_start_info`). It is copied out of low memory before
//! anything is allocated, because its pages are not marked as reserved.

use arrayvec::ArrayVec;

use super::paging::{physical_slice, physical_to_virtual};

/// The kind of a range of physical memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeKind {
    /// Ordinary memory.
    Usable,
    /// Firmware tables and the like: readable, not allocatable.
    Reserved,
}

/// A range of physical memory.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub start: u64,
    pub end: u64,
    pub kind: RangeKind,
}

/// The start information.
pub struct StartInfo {
    pub ranges: ArrayVec<Range, 64>,
    /// The initramfs: physical start and length.
    pub module: Option<(u64, u64)>,
    /// Physical address of the ACPI root pointer, 0 if there is none.
    pub rsdp: u64,
}

const MAGIC: u32 = 0x336e_c578;

#[repr(C)]
#[derive(Clone, Copy)]
struct Raw {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_map_entries: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawModule {
    start: u64,
    size: u64,
    command_line: u64,
    reserved: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawRange {
    start: u64,
    size: u64,
    kind: u32,
    reserved: u32,
}

impl StartInfo {
    /// Copies the start information at this physical address.
    ///
    /// # Errors
    /// A line that says what is wrong with it.
    pub fn read(address: u32) -> Result<Self, &'static str> {
        // SAFETY: The loader gives the address of such a structure below 4 GiB, which the boot
        // tables map; any bit pattern is a value of it.
        let raw = unsafe { *physical_to_virtual(u64::from(address)).cast::<Raw>() };
        if raw.magic != MAGIC || raw.version == 0 {
            return Err("the loader gave no PVH start information of version 1");
        }
        // SAFETY: As above; the loader vouches for the number of entries.
        let map =
            unsafe { physical_slice::<RawRange>(raw.memory_map, raw.memory_map_entries as usize) };
        let ranges = map
            .iter()
            .filter(|range| range.size != 0)
            .take(64)
            .map(|range| Range {
                start: range.start,
                end: range.start.saturating_add(range.size),
                kind: if range.kind == 1 {
                    RangeKind::Usable
                } else {
                    RangeKind::Reserved
                },
            })
            .collect();
        let module = (raw.modules > 0).then(|| {
            // SAFETY: There is at least one module, so its entry is there.
            let module = unsafe { *physical_to_virtual(raw.module_list).cast::<RawModule>() };
            (module.start, module.size)
        });
        Ok(Self {
            ranges,
            module,
            rsdp: raw.rsdp,
        })
    }
}
