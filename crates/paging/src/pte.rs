//! Decodes a page-table entry into its kind, by which every walk and every fault decides.
//!
//! A swap entry names a slot of a swap device in place of the frame. A marker has no slot and no page; it
//! says that stores are to be reported. Poison has neither, and says that every access is an error. The first
//! two keep the soft-dirty bit and the write reports in the same bits as entries with a page.

use crate::address::{Frame, PAGE_SIZE};
use crate::format::{Format, SwapBits};

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pte {
    /// Empty: the whole entry is 0.
    Empty,
    /// A link to a table. Only above the lowest level.
    Table(Frame),
    /// A present page.
    Page(Frame),
    /// A present huge page. Only above the lowest level.
    Huge(Frame),
    /// A claim: another operation is at work on the entry.
    Claimed,
    /// A page that no access reaches (`PROT_NONE`).
    Hidden(Frame),
    /// A guard: no page, and no access may install one.
    Guard,
    /// A page that was swapped out.
    Swap(SwapEntry),
    /// No page; stores are reported to a handler.
    Marker,
    /// No page, and every access is an error (userfaultfd's poison).
    Poison,
}

/// The location of a swapped-out page, and its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapEntry {
    /// The device's number, less than [`SwapEntry::DEVICES`].
    pub device: u32,
    /// The slot, in pages from the start of the device.
    pub slot: u64,
    /// The page belongs to a single address space.
    pub is_exclusive: bool,
    /// The page was written since its soft-dirty bit was cleared.
    pub is_soft_dirty: bool,
    /// Stores to the page are reported.
    pub reports_writes: bool,
}

impl SwapEntry {
    /// The maximum number of swap devices.
    pub const DEVICES: u32 = (1 << SwapBits::DEVICE_BITS) - 1;
}

impl Format {
    /// Returns the kind of an entry at `level`, where 0 is the lowest.
    #[inline(always)]
    pub const fn decode(&self, value: u64, level: usize) -> Pte {
        // Apart, because most faults find an empty entry.
        match value {
            0 => Pte::Empty,
            _ => self.decode_used(value, level),
        }
    }

    #[inline]
    const fn decode_used(&self, value: u64, level: usize) -> Pte {
        if self.is_claimed(value) {
            Pte::Claimed
        } else if self.is_present(value) {
            if level == 0 {
                Pte::Page(self.frame(value))
            } else if self.huge.holds(value) {
                Pte::Huge(self.frame(value))
            } else {
                Pte::Table(self.frame(value))
            }
        } else {
            self.decode_absent(value)
        }
    }

    #[cold]
    const fn decode_absent(&self, value: u64) -> Pte {
        if self.is_guard(value) {
            Pte::Guard
        } else if value & self.moving == 0 {
            Pte::Hidden(self.frame(value))
        } else if self.device_number(value) == SwapEntry::DEVICES {
            if value & self.reports_writes != 0 {
                Pte::Marker
            } else {
                Pte::Poison
            }
        } else {
            Pte::Swap(SwapEntry {
                device: self.device_number(value),
                slot: ((value ^ self.inversion()) & self.address) / PAGE_SIZE,
                is_exclusive: value & self.swap.exclusive != 0,
                is_soft_dirty: value & self.soft_dirty != 0,
                reports_writes: value & self.reports_writes != 0,
            })
        }
    }

    const fn device_number(&self, value: u64) -> u32 {
        ((value >> self.swap.device_shift) & SwapEntry::DEVICES as u64) as u32
    }

    const fn inversion(&self) -> u64 {
        if self.swap.is_inverted {
            self.address
        } else {
            0
        }
    }

    /// Returns the number of slots that an entry can name.
    pub const fn slots(&self) -> u64 {
        self.address / PAGE_SIZE + 1
    }

    /// Encodes the entry of a swapped-out page. `None` if the device or the slot is out of range.
    pub const fn swap_entry(&self, entry: &SwapEntry) -> Option<u64> {
        if entry.device >= SwapEntry::DEVICES || entry.slot >= self.slots() {
            return None;
        }
        let mut value = self.moving | (entry.device as u64) << self.swap.device_shift;
        value |= (entry.slot * PAGE_SIZE) ^ self.inversion();
        if entry.is_exclusive {
            value |= self.swap.exclusive;
        }
        if entry.is_soft_dirty {
            value |= self.soft_dirty;
        }
        if entry.reports_writes {
            value |= self.reports_writes;
        }
        Some(value)
    }

    /// Returns a marker: the entry without a page that reports stores.
    pub const fn marker(&self) -> u64 {
        self.moving
            | (SwapEntry::DEVICES as u64) << self.swap.device_shift
            | self.inversion()
            | self.reports_writes
    }

    /// Returns poison: the entry without a page of which every access is an error.
    pub const fn poison(&self) -> u64 {
        self.marker() & !self.reports_writes
    }

    /// Whether the entry, of the lowest level, has a page and is not claimed.
    #[inline]
    pub const fn has_page(&self, value: u64) -> bool {
        value & self.claim == 0 && value & (self.present | self.hidden) != 0
    }

    /// Whether stores to the entry's page are reported to a handler.
    #[inline]
    pub const fn reports_writes(&self, value: u64) -> bool {
        value & self.reports_writes != 0
    }

    /// Returns the entry of a page, of which stores are reported from now on. It allows none.
    #[inline]
    pub const fn reported(&self, value: u64) -> u64 {
        self.without_write(value) | self.reports_writes
    }
}

#[cfg(test)]
mod tests {
    use faultless_sync::Cpu;

    use super::{Pte, SwapEntry};
    use crate::{
        AArch64, EntryFormat, Format, Frame, MarkedAArch64, MarkedX86_64, Protection, X86_64,
    };

    const FORMATS: [Format; 4] = [
        X86_64::FORMAT,
        MarkedX86_64::FORMAT,
        AArch64::FORMAT,
        MarkedAArch64::FORMAT,
    ];
    const FRAME: Frame = Frame(0xa_bcde_f012);
    const ALL: [bool; 2] = [false, true];

    fn protections() -> impl Iterator<Item = Protection> {
        (1..8).map(|bits| Protection {
            read: bits & 1 != 0,
            write: bits & 2 != 0,
            execute: bits & 4 != 0,
        })
    }

    #[test]
    fn pages_and_tables_are_told_apart_by_level() {
        for format in FORMATS {
            for (write, protection) in ALL
                .into_iter()
                .flat_map(|w| protections().map(move |p| (w, p)))
            {
                let page = format.leaf_of(FRAME, write, protection, write);
                assert_eq!(format.decode(page, 0), Pte::Page(FRAME));
                let reported = page | format.reports_writes;
                assert_eq!(format.decode(reported, 0), Pte::Page(FRAME));
                let hidden = format.with_protection(reported, Protection::default(), false);
                assert_eq!(format.decode(hidden, 0), Pte::Hidden(FRAME));
                assert_ne!(
                    hidden & format.reports_writes,
                    0,
                    "kept by what hides a page"
                );
                assert_eq!(format.decode(format.moving(page), 0), Pte::Claimed);
                assert_eq!(format.settled(format.moving(page)), page);
                assert_eq!(format.settled(format.moving(hidden)), hidden);
                assert_eq!(
                    format.decode(format.claim_of(page, Cpu(7)), 0),
                    Pte::Claimed
                );
                assert_eq!(format.frame(format.claim_of(page, Cpu(255))), FRAME);
            }
            let table = format.table(FRAME);
            assert!(format.is_table(table) && format.is_table(format.frozen(table)));
            for other in [
                0,
                table | format.claim,
                format.claim_of(table, Cpu(3)),
                format.marker(),
            ] {
                assert!(!format.is_table(other));
            }
            for level in 1..4 {
                assert_eq!(format.decode(table, level), Pte::Table(FRAME));
                assert_eq!(
                    format.decode(format.frozen(table), level),
                    Pte::Table(FRAME)
                );
            }
            assert_eq!(format.decode(0, 0), Pte::Empty);
            assert_eq!(format.decode(format.guard, 0), Pte::Guard);
        }
    }

    #[test]
    fn a_huge_page_is_no_table() {
        for format in FORMATS {
            let page = format.leaf(FRAME, true, false, true);
            let huge = format.huge(page);
            assert_eq!(format.decode(huge, 1), Pte::Huge(FRAME));
            assert_eq!(format.part(huge, 0), page);
            let last = format.part(huge, 511);
            assert_eq!(format.decode(last, 0), Pte::Page(Frame(FRAME.0 + 511)));
            assert_eq!(last, format.with_frame(page, Frame(FRAME.0 + 511)));
            assert!(format.is_huge(huge) && !format.is_huge(format.table(FRAME)));
            assert!(!format.is_table(huge));
        }
    }

    #[test]
    fn swap_entries_come_back_as_they_were() {
        for format in FORMATS {
            for slot in [0, 1, 0x1234_5678, format.slots() - 1] {
                for device in [0, 1, SwapEntry::DEVICES - 1] {
                    for bits in 0..8 {
                        let entry = SwapEntry {
                            device,
                            slot,
                            is_exclusive: bits & 1 != 0,
                            is_soft_dirty: bits & 2 != 0,
                            reports_writes: bits & 4 != 0,
                        };
                        let value = format.swap_entry(&entry).expect("there is such a slot");
                        assert_eq!(format.decode(value, 0), Pte::Swap(entry));
                        let claim = format.claim_of(value, Cpu(3));
                        assert_eq!(format.decode(claim, 0), Pte::Claimed);
                        assert_eq!(format.frame(claim), Frame(0), "a slot is no frame");
                        assert!(!format.is_device(claim) && !format.is_hidden(value));
                    }
                }
            }
            assert_eq!(format.decode(format.marker(), 0), Pte::Marker);
            assert_eq!(format.decode(format.poison(), 0), Pte::Poison);
            for value in [format.marker(), format.poison(), format.guard, 0] {
                assert!(!format.has_page(value) && !format.is_soft_dirty(value));
                assert_eq!(format.frame(format.claim_of(value, Cpu(1))), Frame(0));
            }
        }
    }

    #[test]
    fn what_no_entry_can_say_is_refused() {
        for format in FORMATS {
            let entry = SwapEntry {
                device: 0,
                slot: format.slots(),
                is_exclusive: false,
                is_soft_dirty: false,
                reports_writes: false,
            };
            assert_eq!(format.swap_entry(&entry), None);
            let device = SwapEntry::DEVICES;
            assert_eq!(
                format.swap_entry(&SwapEntry {
                    device,
                    slot: 0,
                    ..entry
                }),
                None
            );
        }
    }

    #[test]
    fn no_slot_reads_as_memory_where_that_is_dangerous() {
        let slot = 0x4_2000;
        let entry = SwapEntry {
            device: 1,
            slot,
            is_exclusive: true,
            is_soft_dirty: true,
            reports_writes: false,
        };
        let value = X86_64::FORMAT
            .swap_entry(&entry)
            .expect("there is such a slot");
        assert!(
            X86_64::FORMAT.frame(value).0 > 1 << 39,
            "an address of memory"
        );
    }
}
