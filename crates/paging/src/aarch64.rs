//! The page-table entry format of AArch64.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::format::{EntryFormat, Flag, Format, SwapBits};

/// AArch64, stage 1 of EL1&0, 4 KiB granule, four levels, EL0 pages (Arm Architecture Reference Manual, D8.3).
///
/// Right with and without hardware management of the access flag and the dirty state (`FEAT_HAFDBS`, `TCR_EL1.HA`
/// and `HD`). Bit 51 (DBM) says that stores are allowed, bit 7 (`AP[2]`) that the page is clean:
///
/// | DBM | `AP[2]` | meaning |
/// | --- | --- | --- |
/// | 0 | 1 | read-only; bit 63 says whether the page was written before |
/// | 1 | 1 | writable, clean: with HD, hardware clears `AP[2]` at the first store; without it the store faults |
/// | 1 | 0 | writable, written |
///
/// Hardware ignores bits 55 to 58 of a valid entry, and, where neither permission overlays nor hardware attributes of
/// pages are on, 59 to 63 (`TCR_EL1.HWU*`, `TCR2_EL1.POE` and `AIE` are 0). Software has 55 claim, 56 soft-dirty,
/// 57 device, 58 write reports, 63 written. An entry that is not valid has free bits: 5 hidden, 52 moving.
///
/// A port keeps `TCR_EL1.HPD0` 0, because a fork freezes tables by APTable, and memory attributes 0 write-back, 1 device
/// (nGnRE). It drops its own translation of a page, and of the tables above it (`TLBI VAE1`), at each permission fault,
/// before the program goes on: unlike on x86-64 it stays in the TLB, and the core raises entries without a flush.
///
/// Execute-only memory is a choice of the port ([`AArch64::choose_execute_only`]).
#[derive(Clone, Copy, Debug)]
pub struct AArch64;

/// Whether pages that may only be executed cannot be loaded by EL0.
static EXECUTE_ONLY: AtomicBool = AtomicBool::new(false);

impl AArch64 {
    /// Chooses, before there are entries, whether memory that a mapping allows only to execute is refused to loads. Linux
    /// does so where the kernel's own loads are refused, too, although EL0 may not load (`FEAT_PAN3`, `SCTLR_EL1.EPAN`).
    pub fn choose_execute_only(refuses: bool) {
        EXECUTE_ONLY.store(refuses, Ordering::Relaxed);
    }
}

impl EntryFormat for AArch64 {
    const FORMAT: Format = Format {
        present: 1 << 0,
        // Valid, page, inner shareable, not global, never executed by EL1; memory attributes 0.
        leaf: (1 << 0) | (1 << 1) | (0b11 << 8) | (1 << 11) | (1 << 53),
        table: (1 << 0) | (1 << 1),
        write: Flag {
            yes: 1 << 51,
            no: 0,
        },
        // APTable: no store at the levels below.
        table_write: Flag {
            yes: 0,
            no: 1 << 62,
        },
        execute: Flag {
            yes: 0,
            no: 1 << 54,
        },
        // AP[1]: EL0 may load.
        execute_only: Flag { yes: 0, no: 1 << 6 },
        execute_only_chosen: Some(&EXECUTE_ONLY),
        accessed: 1 << 10,
        dirty: 1 << 63,
        clean: 1 << 7,
        faults_for_marks: true,
        breaks_before_make: true,
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

/// AArch64 for a machine that walks the tables in software and marks the entries that it loads
/// ([`crate::Tlb::marks_loads`]). It ignores bits 58 to 61, which name the only CPU that may hold an entry
/// ([`crate::holders`]).
#[derive(Clone, Copy, Debug)]
pub struct MarkedAArch64;

impl EntryFormat for MarkedAArch64 {
    const FORMAT: Format = Format {
        owner: 0xf << 58,
        // Bits of memory attributes and PXN, which matter to hardware alone.
        reports_writes: 1 << 3,
        leaf: AArch64::FORMAT.leaf & !(1 << 53) | 1 << 6,
        execute_only: Flag {
            yes: 1 << 53,
            no: 0,
        },
        execute_only_chosen: None,
        ..AArch64::FORMAT
    };
}

const _: () = AArch64::FORMAT.check();
const _: () = MarkedAArch64::FORMAT.check();

#[cfg(test)]
mod tests {
    use super::AArch64;
    use crate::{Access, EntryFormat, Format, Frame, Protection};

    const FORMAT: Format = AArch64::FORMAT;
    const FRAME: Frame = Frame(0xa_bcde_f012);
    const DBM: u64 = 1 << 51;
    const READ_ONLY: u64 = 1 << 7;
    const RW: Protection = Protection {
        read: true,
        write: true,
        execute: false,
    };

    fn leaf(write: bool, dirty: bool) -> u64 {
        FORMAT.leaf(FRAME, write, false, dirty)
    }

    /// A store through an entry, as a CPU with or without management of the dirty state executes it.
    fn store(value: u64, by_hardware: bool) -> Option<u64> {
        match (value & READ_ONLY != 0, value & DBM != 0) {
            (false, _) => Some(value),
            (true, true) if by_hardware => Some(value & !READ_ONLY),
            // A fault: the engine finds that the entry permits the access, and marks it.
            (true, _) if FORMAT.permits(value, Access::Write) => {
                Some(FORMAT.touched(value, Access::Write))
            }
            _ => None,
        }
    }

    /// One test, because the choice is the process's.
    #[test]
    fn execute_only_is_a_choice() {
        const USER: u64 = 1 << 6;
        let only = Protection {
            read: false,
            write: false,
            execute: true,
        };
        let chosen = [false, true].map(|refuses| {
            AArch64::choose_execute_only(refuses);
            let leaf = FORMAT.leaf_of(FRAME, false, only, false);
            let changed =
                FORMAT.with_protection(FORMAT.leaf_of(FRAME, true, RW, true), only, false);
            for value in [leaf, changed] {
                assert_eq!(value & USER == 0, refuses);
                assert_eq!(FORMAT.is_execute_only(value), refuses);
                assert!(FORMAT.is_executable(value) && !FORMAT.is_writable(value));
                let again = FORMAT.with_protection(value, RW, true);
                assert!(again & USER != 0 && !FORMAT.is_execute_only(again));
            }
            // All other mappings can be read.
            assert!(FORMAT.leaf_of(FRAME, true, RW, true) & USER != 0);
            FORMAT.expresses_execute_only()
        });
        AArch64::choose_execute_only(false);
        assert_eq!(chosen, [false, true]);
    }

    #[test]
    fn bits_of_hardware() {
        // Valid, page, EL0, inner shareable, accessed, not global; neither executed by EL1 nor by EL0.
        let common = 0b11 | 1 << 6 | 0b11 << 8 | 1 << 10 | 1 << 11 | 1 << 53 | 1 << 54;
        let hardware = |value: u64| value & !(FORMAT.address | FORMAT.soft_dirty | FORMAT.dirty);
        assert_eq!(hardware(leaf(false, false)), common | READ_ONLY);
        assert_eq!(hardware(leaf(false, true)), common | READ_ONLY);
        assert_eq!(hardware(leaf(true, false)), common | READ_ONLY | DBM);
        assert_eq!(hardware(leaf(true, true)), common | DBM);
        // A block.
        assert_eq!(hardware(FORMAT.huge(leaf(true, true))), (common | DBM) & !2);
        assert_eq!(
            FORMAT.frozen(FORMAT.table(FRAME)) & !FORMAT.address,
            3 | 1 << 62
        );
    }

    #[test]
    fn a_store_is_marked_and_never_forgotten() {
        for by_hardware in [false, true] {
            let clean = leaf(true, false);
            assert!(FORMAT.is_writable(clean) && !FORMAT.is_dirty(clean));
            let written = store(clean, by_hardware).expect("it is writable");
            assert_eq!(written & READ_ONLY, 0, "the next store would fault again");
            assert!(FORMAT.is_writable(written) && FORMAT.is_dirty(written));
            for lowered in [
                FORMAT.without_write(written),
                FORMAT.watched(written),
                FORMAT.reported(written),
                FORMAT.with_protection(written, RW, false),
                FORMAT.with_protection(written, Protection::default(), false),
            ] {
                assert!(FORMAT.is_dirty(lowered), "{lowered:#x}");
                assert!(!FORMAT.is_writable(lowered) && lowered & READ_ONLY != 0);
                assert_eq!(
                    FORMAT
                        .is_present(lowered)
                        .then(|| store(lowered, by_hardware)),
                    FORMAT.is_present(lowered).then_some(None)
                );
                let raised = FORMAT.with_protection(lowered | FORMAT.soft_dirty, RW, true);
                assert!(FORMAT.is_dirty(raised));
            }
            let cleaned = FORMAT.cleaned(written);
            assert!(FORMAT.is_writable(cleaned) && !FORMAT.is_dirty(cleaned));
            assert!(FORMAT.is_dirty(store(cleaned, by_hardware).expect("it is writable")));
            let kept = FORMAT.with_protection(cleaned, RW, true);
            assert!(FORMAT.is_writable(kept) && !FORMAT.is_dirty(kept));
            assert!(!FORMAT.is_dirty(FORMAT.without_write(cleaned)));
        }
    }

    #[test]
    fn a_moved_page_keeps_its_state() {
        for value in [
            leaf(true, true),
            leaf(true, false),
            leaf(false, true),
            leaf(false, false),
        ] {
            assert_eq!(FORMAT.settled(FORMAT.moving(value)), value);
            let hidden = FORMAT.with_protection(value, Protection::default(), false);
            assert_eq!(FORMAT.is_dirty(hidden), FORMAT.is_dirty(value));
        }
    }
}
