//! The verifier: checks the design's invariants against what is in memory.
//!
//! No fault and no writer may run on the address space meanwhile.
//!
//! 1. Every present entry lies in exactly one live mapping, and allows no more than it. Every page's frame is
//!    counted (as often as it is mapped: [`AddressSpace::verify_together`]).
//! 2. An exclusive anonymous frame has exactly one entry, and its descriptor says where. A writable anonymous
//!    frame is exclusive. A device's page lies in a mapping of that device.
//! 3. A guard lies in a mapping and has no frame. A writable page is soft-dirty. A writable page of an object is
//!    marked as one that its pager cannot fill again.
//! 4. No entry is claimed, no table is frozen, and no mapping is changing or zapping. The totals of what is
//!    mapped ([`AddressSpace::totals`]) and of what is in memory ([`AddressSpace::rss`]) are right.
//! 5. (With the caller's census of frames) used + free + cached + deferred = all.
//! 6. The machine checks what TLBs hold, on every hit.

mod machine;
mod objects;
mod rss;
mod shared;

use core::fmt;

use faultless_frames::{Flags, FrameSource};
use faultless_paging::{ENTRIES, EntryFormat, Frame, LEVELS, PAGE_SIZE, Page, Table, table};

use crate::base::machine::Machine;
use crate::base::notes::Note;
use crate::space::AddressSpace;
use crate::table::huge::{HUGE_LEVEL, frames_of, huge_span};
use crate::tree::SlotState;
use crate::tree::account::{Sum, VmStats};
use crate::tree::mapping::Mapping;

/// The census of an address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Frames of pages.
    pub pages: u64,
    /// Entries of the shared zero page.
    pub zero_pages: u64,
    /// Frames of tables, the root included.
    pub tables: u64,
    /// Pages that are mapped, present or not.
    pub mapped: u64,
    /// Mappings, as `/proc/PID/maps` shows them.
    pub mappings: u64,
}

/// An invariant that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub rule: &'static str,
    /// The address at which the violation was found.
    pub address: u64,
    /// The entry there.
    pub value: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at {:#x} (entry {:#x})",
            self.rule, self.address, self.value
        )
    }
}

impl core::error::Error for Violation {}

impl<M: Machine> AddressSpace<M> {
    /// Checks every invariant. Returns what the space uses.
    ///
    /// # Errors
    /// The first violation found.
    pub fn verify(&self) -> Result<Census, Violation> {
        let _section = self.memory().enter();
        let mut census = Census::default();
        self.verify_tree(&mut census)?;
        self.verify_table(self.tables().root, LEVELS - 1, 0, &mut census)?;
        self.verify_rss(census.tables - 1)?;
        Ok(census)
    }

    /// Whether a writer is at work on a page's mapping. Then TLBs may hold what its entry no longer allows
    /// (rule R2).
    pub fn is_in_motion(&self, page: Page) -> bool {
        let _section = self.memory().enter();
        // SAFETY: read in this section.
        !matches!(
            unsafe { self.tree().find(page.0).word.content() },
            SlotState::Live(_)
        )
    }

    fn verify_tree(&self, census: &mut Census) -> Result<(), Violation> {
        let mut at = 0;
        let mut sum = Sum::default();
        while let Some(run) = self.tree().next(at) {
            let address = run.pages.start * PAGE_SIZE;
            let wrong = |rule| Violation {
                rule,
                address,
                value: 0,
            };
            // SAFETY: read in the section of `verify`.
            match unsafe { run.word.content() } {
                SlotState::Live(mapping) => {
                    if mapping.pages() < run.pages.len() {
                        return Err(wrong("a mapping counts fewer pages than point to it"));
                    }
                    census.mapped += run.pages.len();
                    sum.add(run.pages, mapping.attributes());
                }
                SlotState::Changing(_) => {
                    return Err(wrong("a mapping is changing without a writer"));
                }
                SlotState::Zapping => return Err(wrong("a range is zapping without a writer")),
                _ => return Err(wrong("a slot holds what it must not")),
            }
            at = run.pages.end;
        }
        let (counted, found) = (self.totals(), sum.totals());
        let counted_now = VmStats {
            peak: counted.mapped,
            ..counted
        };
        if counted_now != found || counted.peak < counted.mapped {
            return Err(Violation {
                rule: "what is mapped was not counted right",
                address: 0,
                value: 0,
            });
        }
        census.mappings = found.mappings;
        Ok(())
    }

    fn verify_table(
        &self,
        frame: Frame,
        level: usize,
        page: u64,
        census: &mut Census,
    ) -> Result<(), Violation> {
        let format = M::Format::FORMAT;
        census.tables += 1;
        // SAFETY: inside the section of `verify`.
        let entries = unsafe { Table::at(self.machine(), frame) };
        for (i, entry) in entries.entries().iter().enumerate() {
            let at = page + i as u64 * table::span(level);
            if at * PAGE_SIZE >= self.layout().end {
                break;
            }
            let value = entry.load();
            if value == 0 {
                continue;
            }
            if format.is_claimed(value) {
                return Err(Violation {
                    rule: "an entry is claimed without a fault",
                    address: at * PAGE_SIZE,
                    value,
                });
            }
            if level == 1 && format.is_frozen(value) {
                return Err(Violation {
                    rule: "a table is frozen without a fork",
                    address: at * PAGE_SIZE,
                    value,
                });
            }
            if format.is_huge(value) && level == HUGE_LEVEL {
                self.verify_huge(value, at, census)?;
            } else if level > 0 {
                self.verify_table(format.frame(value), level - 1, at, census)?;
            } else {
                self.verify_page(value, at, census)?;
            }
        }
        Ok(())
    }

    fn verify_huge(&self, value: u64, page: u64, census: &mut Census) -> Result<(), Violation> {
        let wrong = |rule| {
            Err(Violation {
                rule,
                address: page * PAGE_SIZE,
                value,
            })
        };
        if !M::Format::FORMAT
            .frame(value)
            .0
            .is_multiple_of(ENTRIES as u64)
        {
            return wrong("a huge page is not aligned");
        }
        let frames = self.machine().frames();
        let first = M::Format::FORMAT.frame(value);
        let is_zero = self.tables().is_huge_zero(value);
        let maps = frames.descriptor(first).whole_maps();
        let is_of_object = self.tables().is_huge_of_object(value);
        if is_of_object && !frames.descriptor(first).is_object_whole() {
            return wrong("a huge page is mapped of which the object has lost a part");
        }
        if !is_zero && self.tables().deposited(value).count() as u64 != u64::from(maps) {
            return wrong("a huge page has not as many tables for splits as it is mapped");
        }
        let is_exclusive = |frame| {
            let descriptor = frames.descriptor(frame);
            descriptor.flags().has(Flags::EXCLUSIVE) && descriptor.is_sole_use()
        };
        let is_shared = !is_zero && frames.descriptor(first).is_shared_whole();
        let is_private = !is_zero && !is_shared && !is_of_object;
        if is_private && !frames_of(first).all(is_exclusive) {
            return wrong("a frame of a huge page has another use");
        }
        if is_shared && M::Format::FORMAT.is_writable(value) {
            return wrong("a huge page can be written that several spaces map");
        }
        let span = huge_span(page);
        (span.start..span.end)
            .try_for_each(|page| self.verify_page(self.tables().part_of(value, page), page, census))
    }

    fn verify_page(&self, value: u64, page: u64, census: &mut Census) -> Result<(), Violation> {
        let format = M::Format::FORMAT;
        let wrong = |rule| {
            Err(Violation {
                rule,
                address: page * PAGE_SIZE,
                value,
            })
        };
        let word = self.tree().find(page).word;
        // SAFETY: inside the section of `verify`.
        let SlotState::Live(mapping) = (unsafe { word.content() }) else {
            return wrong("a page is present outside any live mapping");
        };
        if word.protection() != mapping.protection() {
            return wrong("a slot allows what its mapping does not, or less");
        }
        if let Some(swapped) = self.tables().swap_of(value) {
            return match self.memory().slot_uses(&swapped) {
                0 => wrong("an entry names a slot that is free"),
                2.. if swapped.is_exclusive => wrong("a slot has uses beside its exclusive entry"),
                _ => Ok(()),
            };
        }
        if !format.is_claimed(value) && !format.has_page(value) {
            return Ok(());
        }
        if format.is_present(value) && format.is_writable(value) && format.reports_writes(value) {
            return wrong("a page can be written of which stores are to be reported");
        }
        if exceeds(value, mapping, format) {
            return wrong("an entry allows more than its mapping");
        }
        if format.is_present(value) && format.is_writable(value) && !format.is_soft_dirty(value) {
            return wrong("a page can be written that is not soft-dirty");
        }
        let frame = format.frame(value);
        if self.tables().is_zero_page(frame) {
            census.zero_pages += 1;
            if format.is_present(value) && format.is_writable(value) {
                return wrong("the shared zero page is writable");
            }
            return Ok(());
        }
        if format.is_device(value) != mapping.attributes().flags.device {
            return wrong("a device's page is mapped where no device is, or the reverse");
        }
        if format.is_device(value) {
            let backed = &mapping.attributes().backed;
            let is_its =
                backed.is_some_and(|b| b.object().device_frame(b.index(page)) == Some(frame));
            return match is_its {
                true => Ok(()),
                false => wrong("a page shows another frame of its device, or of none"),
            };
        }
        census.pages += 1;
        let descriptor = self.machine().frames().descriptor(frame);
        if descriptor.flags().has(Flags::FILE) {
            let Some(backed) = &mapping.attributes().backed else {
                return wrong("a file's page is mapped where no file is");
            };
            if descriptor.owner() != (backed.object().id, backed.index(page)) {
                return wrong("a page shows another page of the file, or of another file");
            }
            let shared = mapping.attributes().flags.shared;
            if !shared && format.is_present(value) && format.is_writable(value) {
                return wrong("a file's page is writable in private memory");
            }
            if format.is_present(value) && format.is_writable(value) && !descriptor.is_dirty() {
                return wrong("a file's page is writable that reclaim may drop");
            }
            if descriptor.map_count() == 0 {
                return wrong("a mapped frame is not counted");
            }
            return Ok(());
        }
        if !descriptor.flags().has(Flags::ANONYMOUS) {
            return wrong("a mapped frame is not marked as a page");
        }
        if descriptor.flags().has(Flags::EXCLUSIVE) {
            // A page of which the table has moved whole is not where its descriptor says.
            let (owner, at) = descriptor.owner();
            let is_found = at == page || self.maps.has_note(Note::MOVED);
            if descriptor.map_count() != 1 || owner != self.number() || !is_found {
                return wrong("an exclusive frame is mapped elsewhere, or not counted");
            }
        } else if descriptor.map_count() == 0 {
            return wrong("a mapped frame is not counted");
        } else if format.is_present(value) && format.is_writable(value) {
            return wrong("a page is writable that may be shared");
        }
        Ok(())
    }
}

fn exceeds(value: u64, mapping: &Mapping, format: faultless_paging::Format) -> bool {
    let protection = mapping.protection();
    format.is_present(value)
        && (protection.is_none()
            || (format.is_writable(value) && !protection.write)
            || (format.is_executable(value) && !protection.execute)
            // Where entries cannot say that text may not be read, it may be.
            || (format.expresses_execute_only()
                && format.is_execute_only(value) != protection.is_execute_only()))
}
