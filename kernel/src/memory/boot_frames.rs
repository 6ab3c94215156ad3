//! The boot-time frame allocator: a bump allocator over the memory map.
//!
//! It takes from the ends of usable ranges that the boot tables map. Its frames
//! are never returned; the rest goes to the real allocator (`remaining`).

use arrayvec::ArrayVec;

use crate::arch::boot::BOOT_MAPPED_END;
use crate::arch::paging::{image_range, physical_to_virtual};
use crate::arch::start_info::{RangeKind, StartInfo};
use crate::report::refuse;

const PAGE: u64 = 4096;

/// The error when memory, less the kernel and the initramfs, does not suffice.
pub const TOO_LITTLE: &str = "too little memory to boot with this initramfs";

/// Page-aligned free ranges.
pub struct BootFrames {
    free: ArrayVec<(u64, u64), 80>,
}

impl BootFrames {
    /// Usable memory less the first MiB (firmware, the trampoline), the kernel and the module.
    pub fn new(info: &StartInfo) -> Self {
        let mut free: ArrayVec<(u64, u64), 80> = info
            .ranges
            .iter()
            .filter(|range| range.kind == RangeKind::Usable)
            .map(|range| (range.start.next_multiple_of(PAGE), range.end & !(PAGE - 1)))
            .filter(|(start, end)| start < end)
            .collect();
        let module = info.module.map(|(start, size)| (start, start + size));
        for taken in [Some((0, 1 << 20)), Some(image_range()), module]
            .into_iter()
            .flatten()
        {
            let (start, end) = (taken.0 & !(PAGE - 1), taken.1.next_multiple_of(PAGE));
            let mut left = ArrayVec::new();
            for (from, to) in free {
                if from < start.min(to) {
                    let _ = left.try_push((from, start.min(to)));
                }
                if end.max(from) < to {
                    let _ = left.try_push((end.max(from), to));
                }
            }
            free = left;
        }
        Self { free }
    }

    /// Takes this many pages in a row. Without such memory the machine is too small to boot on, and
    /// the run ends.
    pub fn allocate(&mut self, pages: u64) -> u64 {
        let size = pages * PAGE;
        let range = self
            .free
            .iter_mut()
            .rev()
            .find(|(start, end)| *end <= BOOT_MAPPED_END && end - start >= size)
            .unwrap_or_else(|| refuse(format_args!("{TOO_LITTLE}")));
        range.1 -= size;
        range.1
    }

    /// The same, zeroed.
    pub fn allocate_zeroed(&mut self, pages: u64) -> u64 {
        let start = self.allocate(pages);
        // SAFETY: The range is ours and lies in memory that the boot tables map.
        unsafe { physical_to_virtual(start).write_bytes(0, (pages * PAGE) as usize) };
        start
    }

    /// Bytes left.
    pub fn free_bytes(&self) -> u64 {
        self.free.iter().map(|(start, end)| end - start).sum()
    }

    /// The free ranges, page aligned.
    pub fn remaining(&self) -> &[(u64, u64)] {
        &self.free
    }
}
