//! The verifier over several address spaces, for what a single space cannot check.
//!
//! 1. As many entries map a page's frame as its descriptor counts.
//! 2. One entry maps an exclusive frame.
//!
//! It counts in the links of descriptors, which a mapped frame does not use.

use faultless_frames::{Flags, FrameSource};
use faultless_paging::{PAGE_SIZE, Pages};

use crate::base::machine::Machine;
use crate::space::AddressSpace;
use crate::table::huge_share::mappings_of;
use crate::verify::{Census, Violation};

impl<M: Machine> AddressSpace<M> {
    /// Checks every invariant of `spaces`, which must be all that share pages with each other. No fault and
    /// no writer may run on any of them. Returns what they use together, each frame counted once.
    ///
    /// # Errors
    /// The first violation found.
    pub fn verify_together<S: AsRef<Self>>(spaces: &[&S]) -> Result<Census, Violation> {
        let mut all = Census::default();
        for space in spaces.iter().map(|space| (*space).as_ref()) {
            let census = space.verify()?;
            all.zero_pages += census.zero_pages;
            all.tables += census.tables;
            all.mapped += census.mapped;
            all.mappings += census.mappings;
            space.for_each_page(&mut |space, frame, _| {
                space.machine().frames().descriptor(frame).set_link(0);
                Ok(())
            })?;
        }
        for space in spaces.iter().map(|space| (*space).as_ref()) {
            space.for_each_page(&mut |space, frame, _| {
                let descriptor = space.machine().frames().descriptor(frame);
                all.pages += u64::from(descriptor.link() == 0);
                descriptor.set_link(descriptor.link() + 1);
                Ok(())
            })?;
        }
        for space in spaces.iter().map(|space| (*space).as_ref()) {
            space.for_each_page(&mut |space, frame, wrong| {
                let descriptor = space.machine().frames().descriptor(frame);
                let mapped = descriptor.link();
                if descriptor.flags().has(Flags::FILE) {
                    // Spaces outside `spaces` may map it.
                    return Ok(());
                }
                if mapped != u64::from(mappings_of(space.machine().frames(), frame)) {
                    return Err(wrong("a frame is not mapped as often as is counted"));
                }
                if mapped != 1 && descriptor.flags().has(Flags::EXCLUSIVE) {
                    return Err(wrong("an exclusive frame is mapped more than once"));
                }
                Ok(())
            })?;
        }
        Ok(all)
    }

    /// Calls `visit` with the frame of every page, and with a function that makes a violation of it.
    fn for_each_page(
        &self,
        visit: &mut impl FnMut(
            &Self,
            faultless_paging::Frame,
            &dyn Fn(&'static str) -> Violation,
        ) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let _section = self.memory().enter();
        let mut result = Ok(());
        let pages = Pages::of_bytes(0..self.layout().end);
        self.tables().for_each_page(pages, &mut |value, page| {
            let frame = Self::FORMAT.frame(value);
            let is_page = Self::FORMAT.has_page(value) && self.tables().counted(value).is_some();
            if !is_page || result.is_err() {
                return;
            }
            let wrong = |rule| Violation {
                rule,
                address: page * PAGE_SIZE,
                value,
            };
            result = visit(self, frame, &wrong);
        });
        result
    }
}
