//! Looks at an address space without changing it.

use faultless_paging::{Access, Frame, PAGE_SIZE, Page, Walk};

use crate::base::machine::Machine;
use crate::object::MemoryObject;
use crate::space::AddressSpace;
use crate::table::huge::huge_span;
use crate::tree::SlotState;
use crate::tree::mapping::Attributes;

impl<M: Machine> AddressSpace<M> {
    /// Returns the attributes of the mapping at an address, if there is one: the lookup with which every fault
    /// begins.
    #[inline]
    pub fn lookup(&self, address: u64) -> Option<Attributes> {
        if address >= self.layout().end {
            return None;
        }
        let _section = self.memory().enter();
        let word = self.tree().find(Page::containing(address).0).word;
        // SAFETY: found in this section.
        match unsafe { word.content() } {
            SlotState::Live(mapping) | SlotState::Changing(mapping) => Some(*mapping.attributes()),
            _ => None,
        }
    }

    /// Returns the memory object that is mapped at an address, held, and which of its bytes is there. `None`
    /// where a device is mapped.
    pub fn object_at(&self, address: u64) -> Option<(MemoryObject<M>, u64)> {
        let (object, byte, _) = self.mapped_object_at(address)?;
        Some((object, byte))
    }

    /// The same, with the attributes of the mapping that has the object.
    pub fn mapped_object_at(&self, address: u64) -> Option<(MemoryObject<M>, u64, Attributes)> {
        if address >= self.layout().end {
            return None;
        }
        let _section = self.memory().enter();
        let page = Page::containing(address).0;
        // SAFETY: found in this section.
        let mapping = unsafe { self.tree().find(page).word.mapping() }?;
        let attributes = mapping.attributes();
        let backed = attributes.backed.filter(|_| !attributes.flags.device)?;
        let byte = backed.index(page).checked_mul(PAGE_SIZE)? + address % PAGE_SIZE;
        let object = MemoryObject::of(self.memory(), backed.pointer());
        Some((object, byte, *attributes))
    }

    /// Returns the frame of the page at an address, if one is present.
    pub fn translate(&self, address: u64) -> Option<Frame> {
        self.entry(address).map(|value| Self::FORMAT.frame(value))
    }

    /// Returns the end of the pages from `page` on that one entry lets a CPU access so, if it does: of a huge page, or
    /// of this page.
    pub(crate) fn permitted(&self, page: Page, access: Access) -> Option<u64> {
        let section = self.memory().enter();
        let walk = self.tables().look(page, &section);
        let value = self.present_in(&walk, page)?;
        let end = match walk {
            Walk::Huge { .. } => huge_span(page.0).end,
            _ => page.0 + 1,
        };
        Self::FORMAT.permits(value, access).then_some(end)
    }

    /// Returns the entry of the page at an address, if one is present and not claimed: what hardware finds when
    /// it walks the tables. Takes no fault and sets no bit.
    pub fn entry(&self, address: u64) -> Option<u64> {
        if address >= self.layout().end {
            return None;
        }
        let section = self.memory().enter();
        let page = Page::containing(address);
        let walk = self.tables().look(page, &section);
        self.present_in(&walk, page)
    }

    /// Returns the entry that hardware finds at the end of a walk.
    fn present_in(&self, walk: &Walk<'_>, page: Page) -> Option<u64> {
        match *walk {
            Walk::Huge { value, .. } => Some(self.tables().part_of(value, page.0)),
            Walk::Leaf { value, link, .. }
                if Self::FORMAT.is_present(value) && !Self::FORMAT.is_claimed(value) =>
            {
                // Under a fork, the entry above allows no store.
                let is_frozen = link.is_frozen();
                Some(if is_frozen {
                    Self::FORMAT.without_write(value)
                } else {
                    value
                })
            }
            _ => None,
        }
    }
}
