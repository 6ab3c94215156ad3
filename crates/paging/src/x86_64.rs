//! The page-table entry format of x86-64.

use crate::format::{EntryFormat, Flag, Format, SwapBits};

/// x86-64, four levels, 4 KiB leaves (AMD64 Architecture Programmer's Manual, volume 2, 5.3).
///
/// Software bits: 9 claim, 10 hidden, 11 guard and soft-dirty, 52 moving, 53 write reports, 58 device.
#[derive(Clone, Copy, Debug)]
pub struct X86_64;

impl EntryFormat for X86_64 {
    const FORMAT: Format = Format {
        present: 1 << 0,
        leaf: (1 << 0) | (1 << 2),
        table: (1 << 0) | (1 << 1) | (1 << 2) | (1 << 5),
        write: Flag { yes: 1 << 1, no: 0 },
        table_write: Flag { yes: 1 << 1, no: 0 },
        execute: Flag {
            yes: 0,
            no: 1 << 63,
        },
        // Protection key 1.
        execute_only: Flag {
            yes: 1 << 59,
            no: 0,
        },
        execute_only_chosen: None,
        accessed: 1 << 5,
        dirty: 1 << 6,
        clean: 0,
        faults_for_marks: false,
        breaks_before_make: false,
        address: 0x000f_ffff_ffff_f000,
        claim: 1 << 9,
        hidden: 1 << 10,
        guard: 1 << 11,
        soft_dirty: 1 << 11,
        moving: 1 << 52,
        device: 1 << 58,
        // PWT and PCD: entry 3 of the page attribute table, strongly uncacheable after reset.
        uncached: (1 << 3) | (1 << 4),
        huge: Flag { yes: 1 << 7, no: 0 },
        reports_writes: 1 << 53,
        swap: SwapBits {
            device_shift: 1,
            exclusive: 1 << 6,
            is_inverted: true,
        },
        claimer_shift: 1,
        owner: 0,
    };
}

/// x86-64 for a machine that walks the tables in software and marks the entries that it loads
/// ([`crate::Tlb::marks_loads`]). Four more software bits name the only CPU that may hold an entry
/// ([`crate::holders`]).
#[derive(Clone, Copy, Debug)]
pub struct MarkedX86_64;

impl EntryFormat for MarkedX86_64 {
    const FORMAT: Format = Format {
        owner: 0xf << 54,
        ..X86_64::FORMAT
    };
}

const _: () = X86_64::FORMAT.check();
const _: () = MarkedX86_64::FORMAT.check();
