//! The formats of second-level entries, as data.
//!
//! The bits are those of [`faultless_paging::Format`]. Two of its software bits mean something else here:
//!
//! | field | in a guest's entry |
//! | --- | --- |
//! | `soft_dirty` | the host lets the guest store to the page: write access may be restored without a look at the host |
//! | `hidden` | access tracking has taken the rights away, and the entry remembers them |
//!
//! As in the first level, every entry that allows stores has `soft_dirty`.

use faultless_paging::{EntryFormat, Flag, Format, Frame, SwapBits, X86_64};

/// A format of second-level entries.
pub trait SecondLevel: EntryFormat {
    /// The bits without which hardware lets no access through. Access tracking takes them away.
    const RIGHTS: u64;
    /// The shift by which the rights that were taken away are remembered in free bits.
    const SAVED: u32;

    /// Whether access tracking takes write access away, too.
    const TRACKS_WRITES: bool =
        Self::RIGHTS & (Self::FORMAT.write.yes | Self::FORMAT.write.no) != 0;

    /// Returns the entry of a page: `write`, it allows stores now; `is_dirty`, it counts as written; `may_write`, the host
    /// lets the guest store to it.
    #[inline]
    fn page(frame: Frame, [write, is_dirty, may_write]: [bool; 3]) -> u64 {
        let format = Self::FORMAT;
        let leaf = format.leaf(frame, write, true, is_dirty);
        leaf | if may_write { format.soft_dirty } else { 0 }
    }

    /// Whether the host lets the guest store to the page of an entry.
    #[inline]
    fn may_write(value: u64) -> bool {
        value & Self::FORMAT.soft_dirty != 0
    }

    /// Returns the entry with write access. It has [`SecondLevel::may_write`].
    #[inline]
    fn writable(value: u64) -> u64 {
        let format = Self::FORMAT;
        (value & !(format.write.yes | format.write.no)) | format.write.yes | format.dirty
    }

    /// Returns the entry, perhaps a tracked one, without write access and clean.
    #[inline]
    fn protected(value: u64) -> u64 {
        let format = Self::FORMAT;
        if Self::TRACKS_WRITES && Self::is_tracked(value) {
            return Self::tracked(Self::protected(Self::restored(value)));
        }
        (value & !(format.write.yes | format.write.no | format.dirty)) | format.write.no
    }

    /// Returns the entry of a page to which the host no longer lets the guest store.
    #[inline]
    fn lowered(value: u64) -> u64 {
        Self::protected(value) & !Self::FORMAT.soft_dirty
    }

    /// Whether the guest may have written the page of an entry since the entry was made or protected.
    #[inline]
    fn is_written(value: u64) -> bool {
        if Self::TRACKS_WRITES && Self::is_tracked(value) {
            return Self::is_written(Self::restored(value));
        }
        Self::has_page(value) && Self::FORMAT.is_writable(value) && Self::FORMAT.is_dirty(value)
    }

    /// Whether an entry shows a page, perhaps one of which access is tracked.
    #[inline]
    fn has_page(value: u64) -> bool {
        let format = Self::FORMAT;
        value & format.claim == 0 && value & (format.present | format.hidden) != 0
    }

    /// Whether an entry above the lowest level shows a huge page, perhaps one of which access is tracked. No table does.
    #[inline]
    fn has_huge(value: u64) -> bool {
        let rights = match Self::is_tracked(value) {
            true => Self::restored(value),
            false => value,
        };
        Self::has_page(value) && Self::FORMAT.is_huge(rights)
    }

    /// Whether the rights of an entry were taken away to see the next access.
    #[inline]
    fn is_tracked(value: u64) -> bool {
        let format = Self::FORMAT;
        value & (format.present | format.claim | format.hidden) == format.hidden
    }

    /// Returns a present entry without its rights, which it remembers.
    #[inline]
    fn tracked(value: u64) -> u64 {
        let saved = (value & Self::RIGHTS) << Self::SAVED;
        (value & !Self::RIGHTS) | saved | Self::FORMAT.hidden
    }

    /// Returns an entry with the rights that it remembers.
    #[inline]
    fn restored(value: u64) -> u64 {
        let saved = Self::RIGHTS << Self::SAVED;
        let rights = (value & saved) >> Self::SAVED;
        (value & !(saved | Self::FORMAT.hidden)) | rights
    }
}

/// Nested page tables of AMD's SVM: entries of x86-64, with the user bit everywhere (AMD64 Architecture Programmer's Manual,
/// volume 2, 15.25.5).
#[derive(Clone, Copy, Debug)]
pub struct Npt;

impl EntryFormat for Npt {
    const FORMAT: Format = Format {
        // Protection keys do not apply.
        execute_only: Flag { yes: 0, no: 0 },
        execute_only_chosen: None,
        ..X86_64::FORMAT
    };
}

impl SecondLevel for Npt {
    const RIGHTS: u64 = 1 << 0;
    const SAVED: u32 = 54;
}

/// Extended page tables of Intel's VMX, four levels, with accessed and dirty flags (Intel SDM, volume 3, 29.3).
///
/// Software bits: 11 claim, 52 hidden, 53 may be written, 54–56 rights taken away.
#[derive(Clone, Copy, Debug)]
pub struct Ept;

impl EntryFormat for Ept {
    const FORMAT: Format = Format {
        present: 1 << 0,
        // Readable, write-back memory.
        leaf: (1 << 0) | (6 << 3),
        table: (1 << 0) | (1 << 1) | (1 << 2) | (1 << 8),
        write: Flag { yes: 1 << 1, no: 0 },
        table_write: Flag { yes: 1 << 1, no: 0 },
        execute: Flag { yes: 1 << 2, no: 0 },
        execute_only: Flag { yes: 0, no: 0 },
        execute_only_chosen: None,
        accessed: 1 << 8,
        dirty: 1 << 9,
        clean: 0,
        faults_for_marks: false,
        breaks_before_make: false,
        address: 0x000f_ffff_ffff_f000,
        claim: 1 << 11,
        hidden: 1 << 52,
        guard: 1 << 53,
        soft_dirty: 1 << 53,
        moving: 1 << 57,
        device: 1 << 58,
        uncached: 0,
        huge: Flag { yes: 1 << 7, no: 0 },
        reports_writes: 1 << 59,
        swap: SwapBits {
            device_shift: 3,
            exclusive: 1 << 8,
            is_inverted: true,
        },
        // Bits 0 to 2 stay clear: each of them alone lets an access through.
        claimer_shift: 3,
        owner: 0,
    };
}

impl SecondLevel for Ept {
    const RIGHTS: u64 = 0b111;
    const SAVED: u32 = 54;
}

/// Stage 2 of AArch64, 4 KiB granule (Arm Architecture Reference Manual, D8.3), without hardware management of the dirty
/// state.
///
/// Software bits: 55 claim, 56 may be written, 57 hidden, 58 the valid bit that was taken away.
#[derive(Clone, Copy, Debug)]
pub struct Stage2;

impl EntryFormat for Stage2 {
    const FORMAT: Format = Format {
        present: 1 << 0,
        // Valid, page, normal write-back memory, readable, inner shareable.
        leaf: (1 << 0) | (1 << 1) | (0b1111 << 2) | (1 << 6) | (0b11 << 8),
        table: (1 << 0) | (1 << 1),
        write: Flag { yes: 1 << 7, no: 0 },
        // Stage 2 has no rights in table entries.
        table_write: Flag { yes: 0, no: 0 },
        execute: Flag {
            yes: 0,
            no: 1 << 54,
        },
        execute_only: Flag { yes: 0, no: 0 },
        execute_only_chosen: None,
        accessed: 1 << 10,
        dirty: 1 << 51,
        clean: 0,
        // The machine sets the access flag (`VTCR_EL2.HA`).
        faults_for_marks: false,
        breaks_before_make: true,
        address: 0x0000_ffff_ffff_f000,
        claim: 1 << 55,
        hidden: 1 << 57,
        guard: 1 << 56,
        soft_dirty: 1 << 56,
        moving: 1 << 52,
        device: 1 << 59,
        uncached: 0,
        huge: Flag { yes: 0, no: 1 << 1 },
        reports_writes: 1 << 60,
        swap: SwapBits {
            device_shift: 1,
            exclusive: 1 << 11,
            is_inverted: false,
        },
        claimer_shift: 1,
        owner: 0,
    };
}

impl SecondLevel for Stage2 {
    const RIGHTS: u64 = 1 << 0;
    const SAVED: u32 = 58;
}

const _: () = Npt::FORMAT.check();
const _: () = Ept::FORMAT.check();
const _: () = Stage2::FORMAT.check();

#[cfg(test)]
mod tests {
    use faultless_paging::{Access, Frame, Pte};

    use super::{Ept, Npt, SecondLevel, Stage2};

    const FRAME: Frame = Frame(0xa_bcde_f012);

    fn follows_the_protocol<F: SecondLevel>() {
        let format = F::FORMAT;
        for (write, may_write) in [(false, false), (false, true), (true, true)] {
            let page = F::page(FRAME, [write, write, may_write]);
            assert_eq!(format.decode(page, 0), Pte::Page(FRAME));
            assert!(format.permits(page, Access::Read));
            assert_eq!(format.permits(page, Access::Write), write);
            assert!(format.permits(page, Access::Execute));
            assert_eq!(F::may_write(page), may_write);
            assert!(F::has_page(page) && !F::is_tracked(page));

            let tracked = F::tracked(page);
            assert_eq!(tracked & F::RIGHTS, 0, "hardware lets something through");
            assert!(F::has_page(tracked) && F::is_tracked(tracked));
            assert!(!format.is_present(tracked) && !format.is_claimed(tracked));
            assert_eq!(format.frame(tracked), FRAME);
            assert_eq!(F::restored(tracked), page);
            assert_eq!(F::is_written(tracked), write, "a store is forgotten");
            assert_eq!(F::restored(F::protected(tracked)), F::protected(page));
            assert!(!F::is_written(F::protected(tracked)));
            assert_eq!(F::restored(F::lowered(tracked)), F::lowered(page));
        }
        let logged = F::page(FRAME, [false, false, true]);
        assert_eq!(F::writable(logged), F::page(FRAME, [true; 3]));
        assert_eq!(
            format.without_write(F::writable(logged)) & !format.dirty,
            logged
        );
        let table = format.table(FRAME);
        assert_eq!(format.decode(table, 1), Pte::Table(FRAME));
        assert!(!F::has_page(0) && !F::has_huge(0) && !F::has_huge(table));
        let first = Frame(FRAME.0 & !0x1ff);
        let huge = format.huge(F::page(first, [true; 3]));
        assert_eq!(format.decode(huge, 1), Pte::Huge(first));
        for value in [huge, F::tracked(huge), F::lowered(F::tracked(huge))] {
            assert!(F::has_huge(value) && !format.is_table(value));
            let part = format.part(value, 7);
            assert!(F::has_page(part) && !F::has_huge(part));
            assert_eq!(format.frame(part), Frame(first.0 + 7));
        }
        assert!(F::is_written(F::tracked(huge)));
    }

    #[test]
    fn formats() {
        follows_the_protocol::<Npt>();
        follows_the_protocol::<Ept>();
        follows_the_protocol::<Stage2>();
    }

    #[test]
    fn bits_of_hardware() {
        // Present, writable, user, accessed, dirty.
        assert_eq!(Npt::page(Frame(1), [true; 3]) & 0xfff & !(1 << 11), 0x67);
        // Readable, writable, executable, write-back, accessed, dirty.
        assert_eq!(Ept::page(Frame(1), [true; 3]) & 0xfff, 0x337);
        // Valid, page, write-back, readable and writable, inner shareable, accessed.
        assert_eq!(
            Stage2::page(Frame(1), [true; 3]) & 0xfff,
            0x7ff & !(1 << 10) | 1 << 10
        );
    }
}
