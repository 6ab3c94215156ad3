//! Whether a page was used, wherever it is mapped: for those who look for idle memory (Linux: `page_idle`).
//!
//! * Accessed bits are cleared in place, without a flush, and guests age their own entries ([`crate::table::guests`]): the next
//!   access costs nothing, or, for a guest without accessed bits, a fast fault.
//! * Entries of an anonymous page that has moved (`mremap`) are not found; the page then looks idle sooner.
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

impl<M: Machine> Memory<M> {
    /// Marks the page in a frame idle, until it is used. Does nothing if the frame has no page of a program.
    pub fn set_idle(&'static self, frame: Frame) {
        if self.age_page(frame).is_some() {
            self.machine().frames().descriptor(frame).set_page_idle();
        }
    }

    /// Whether the page in a frame was marked idle and was not used since.
    pub fn is_idle(&'static self, frame: Frame) -> bool {
        let Some(page) = self.machine().frames().find(frame) else {
            return false;
        };
        if !page.is_page_idle() {
            return false;
        }
        let is_used = self.age_page(frame).unwrap_or(true);
        if is_used {
            page.clear_page_idle();
        }
        !is_used
    }

    /// Makes the page in a frame count as unused. Returns whether it was used since this was last done; `None` if the frame
    /// has no page of a program, or the page cannot be looked at now.
    fn age_page(&'static self, frame: Frame) -> Option<bool> {
        let machine = self.machine();
        let descriptor = machine.frames().find(frame)?;
        if !descriptor.is_used() || frame == machine.frames().zero_frame() {
            return None;
        }
        let flags = descriptor.flags();
        let mut is_used = false;
        if flags.has(Flags::FILE) {
            // As for a move: the page stays in its object's slot, and nothing else takes it meanwhile.
            let spaces = self.keep_spaces();
            let moving = match Moving::begin(self, frame) {
                Ok(moving) => moving,
                Err(store) => {
                    drop(spaces);
                    // This may be the object's last holder.
                    drop(store);
                    return None;
                }
            };
            let _ = moving.try_for_each_place(|space, page| {
                is_used |= age(space, page, frame);
                Ok::<(), Infallible>(())
            });
            let store = moving.end(PageSlot::Page(frame));
            drop(spaces);
            drop(store);
            return Some(is_used);
        }
        if !flags.has(Flags::ANONYMOUS) {
            return None;
        }
        let (owner, page) = descriptor.owner();
        let _ = self.keep_spaces().try_for_each(|space| {
            let is_relative = space.number() == owner || space.family() == owner;
            if is_relative && page < space.layout().end / PAGE_SIZE {
                is_used |= age(space, page, frame);
            }
            Ok::<(), Infallible>(())
        });
        Some(is_used)
    }
}

/// Ages the entry of a page, if it shows the frame, and those of guests. Whether any was used.
fn age<M: Machine>(space: &AddressSpace<M>, page: u64, frame: Frame) -> bool {
    let section = space.memory().enter();
    let tables = space.tables();
    let Walk::Leaf { entry, value, .. } = tables.descend(Page(page), &section) else {
        return false;
    };
    let format = AddressSpace::<M>::FORMAT;
    if !format.is_present(value) || format.frame(value) != frame {
        return false;
    }
    let by_guests = tables.age_guests(page, true);
    tables.clear_accessed(entry).is_some() || by_guests
}
