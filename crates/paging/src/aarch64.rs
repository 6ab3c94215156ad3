//! The page-table entry format of AArch64.

use crate::format::{EntryFormat, Flag, Format, SwapBits};

/// AArch64, stage 1, 4 KiB granule, four levels, EL0 pages (Arm Architecture Reference Manual, D8.3), without
/// hardware management of the dirty state.
///
/// Software has four bits in a valid entry: 55 claim, 56 soft-dirty, 57 device, 58 write reports. Bit 51
/// (DBM, ignored without hardware management of the dirty state) marks a dirty page. An entry that is not
/// valid has free bits: 5 hidden, 52 moving.
#[derive(Clone, Copy, Debug)]
pub struct AArch64;

impl EntryFormat for AArch64 {
    const FORMAT: Format = Format {
        present: 1 << 0,
        // Valid, page, EL0, inner shareable, not global, never executed by EL1; memory attributes 0.
        leaf: (1 << 0) | (1 << 1) | (1 << 6) | (0b11 << 8) | (1 << 11) | (1 << 53),
        table: (1 << 0) | (1 << 1),
        write: Flag { yes: 0, no: 1 << 7 },
        // APTable: no store at the levels below.
        table_write: Flag {
            yes: 0,
            no: 1 << 62,
        },
        execute: Flag {
            yes: 0,
            no: 1 << 54,
        },
        execute_only: 0,
        accessed: 1 << 10,
        dirty: 1 << 51,
        address: 0x0000_ffff_ffff_f000,
        claim: 1 << 55,
        hidden: 1 << 5,
        guard: 1 << 56,
        soft_dirty: 1 << 56,
        moving: 1 << 52,
        device: 1 << 57,
        // Memory attributes 1: device memory.
        uncached: 1 << 2,
        huge: Flag { yes: 0, no: 1 << 1 },
        reports_writes: 1 << 58,
        swap: SwapBits {
            device_shift: 6,
            exclusive: 1 << 11,
            is_inverted: false,
        },
        claimer_shift: 1,
        owner: 0,
    };
}

const _: () = AArch64::FORMAT.check();
