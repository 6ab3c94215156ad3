//! Whether a page was used, wherever it is mapped: for programs that look for idle memory (Linux: `page_idle`).
//!
//! * Accessed bits are cleared in place, without a flush, and guests age their own entries ([`crate::table::guests`]). The
//!   next access costs nothing, or, for a guest without accessed bits, a fast fault.
//! * An entry that another operation has claimed is in use. So is a page of which not every entry is found: after `mremap` it
//!   is elsewhere than its descriptor says.
//! * The mark is in the descriptor. It comes after the bits are cleared, and is taken away after a bit was found set, so that a
//!   use is lost only if it comes before the mark. A page that changes its frame, or that `fork` shares, may lose the mark.
//! * Reclaim is told of the use that it can no longer see, as on Linux (`PG_young`).
//! * Two looks at one page at the same time: one of them may find the bits that the other has just cleared, and call the page
//!   idle once more, as on Linux.
//!
//! *Writes*: the entries; the descriptor; a slot of an object's page, for the time of the look.
//!
//! *Models*: loom `table/holders.rs` for the entries.

use core::convert::Infallible;

use faultless_frames::{Flags, FrameSource};
use faultless_paging::{Frame, PAGE_SIZE, Page, Walk};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::object::Moving;
use crate::object::radix::PageSlot;
use crate::space::AddressSpace;
use crate::table::huge_share::mappings_of;

/// What the entries of a page say.
#[derive(Default)]
struct Seen {
    /// Entries that show the page.
    entries: u32,
    /// Whether one of them was used, or is in use.
    is_used: bool,
}

impl<M: Machine> Memory<M> {
    /// Marks the page in a frame idle, until it is used. Does nothing if the frame has no page of a program. Not in a section,
    /// and with no lock held.
    pub fn set_idle(&'static self, frame: Frame) {
        if self.age_page(frame).is_some() {
            self.machine().frames().descriptor(frame).set_page_idle();
        }
    }

    /// Whether the page in a frame was marked idle and was not used since. As [`Memory::set_idle`].
    pub fn is_idle(&'static self, frame: Frame) -> bool {
        let Some(page) = self.machine().frames().find(frame) else {
            return false;
        };
        if !page.is_page_idle() {
            return false;
        }
        if self.age_page(frame).unwrap_or(true) {
            page.clear_page_idle();
        }
        // Another look may have taken the mark away.
        page.is_page_idle()
    }

    /// Makes the page in a frame count as unused, but not for reclaim. Returns whether it was used since this was last done;
    /// `None` if the frame has no page of a program, or not all of its entries can be looked at now.
    fn age_page(&'static self, frame: Frame) -> Option<bool> {
        let is_used = self.age_entries(frame);
        if is_used == Some(true) {
            self.machine().frames().descriptor(frame).set_page_young();
        }
        is_used
    }

    fn age_entries(&'static self, frame: Frame) -> Option<bool> {
        let frames = self.machine().frames();
        let descriptor = frames.find(frame)?;
        if !descriptor.is_used() || frame == frames.zero_frame() {
            return None;
        }
        // The flags of an unused frame say what it was last. If it is freed from here on, no entry shows it any more.
        let flags = descriptor.flags();
        if flags.has(Flags::FILE) {
            return self.age_file_page(frame);
        }
        if !flags.has(Flags::ANONYMOUS) {
            return None;
        }
        let (owner, page) = descriptor.owner();
        let mut seen = Seen::default();
        let _ = self.keep_spaces().try_for_each(|space| {
            let is_relative = space.number() == owner || space.family() == owner;
            if is_relative && page < space.layout().end / PAGE_SIZE {
                age(space, page, frame, &mut seen);
            }
            Ok::<(), Infallible>(())
        });
        (seen.entries >= mappings_of(self.machine().frames(), frame)).then_some(seen.is_used)
    }

    fn age_file_page(&'static self, frame: Frame) -> Option<bool> {
        // As for a move: the page stays in its object's slot, and nothing else takes it meanwhile.
        let spaces = self.keep_spaces();
        let mut seen = Seen::default();
        let (store, is_there) = match Moving::begin(self, frame) {
            Ok(moving) => {
                let _ = moving.try_for_each_place(|space, page| {
                    age(space, page, frame, &mut seen);
                    Ok::<(), Infallible>(())
                });
                (Some(moving.end(PageSlot::Page(frame))), true)
            }
            Err(store) => (store, false),
        };
        drop(spaces);
        // This may be the object's last holder.
        drop(store);
        is_there.then_some(seen.is_used)
    }
}

/// Ages the entry of a page, if it shows the frame, and those of guests.
fn age<M: Machine>(space: &AddressSpace<M>, page: u64, frame: Frame, seen: &mut Seen) {
    let format = AddressSpace::<M>::FORMAT;
    let section = space.memory().enter();
    let tables = space.tables();
    let (entry, value) = match tables.look(Page(page), &section) {
        Walk::Leaf { entry, value, .. } => (entry, value),
        Walk::Missing { .. } => return,
        Walk::Huge { entry, value, .. } => {
            if format.frame(tables.part_of(value, page)) == frame {
                seen.entries += 1;
                // One bit for all of the huge page, as on Linux. If the entry has changed, that is a use.
                seen.is_used |= format.is_used(value);
                seen.is_used |= entry.replace(value, format.unused(value)).is_err();
                seen.is_used |= tables.age_guests(page, true);
            }
            return;
        }
        Walk::Busy => {
            seen.is_used = true;
            return;
        }
    };
    if format.is_claimed(value) {
        seen.is_used = true;
        return;
    }
    if !format.has_page(value) || format.frame(value) != frame {
        return;
    }
    seen.entries += 1;
    // Both, whatever the first says.
    seen.is_used |= tables.clear_accessed(entry).is_some();
    seen.is_used |= tables.age_guests(page, true);
}
