//! Looking at an address space without changing it.

use faultless_paging::{ENTRIES, EntryFormat, Frame, LEVELS, PAGE_SIZE, Page, Table, Walk, table};

use crate::base::machine::Machine;
use crate::object::MemoryObject;
use crate::space::AddressSpace;
use crate::tree::SlotState;
use crate::tree::mapping::Attributes;

impl<M: Machine> AddressSpace<M> {
    /// What is true of the mapping at an address, if there is one: the lookup
    /// that every fault begins with.
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

    /// The store that is mapped at an address, held, and which of its bytes is there. None where a
    /// device is mapped.
    pub fn store_at(&self, address: u64) -> Option<(MemoryObject<M>, u64)> {
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
        Some((MemoryObject::of(self.memory(), backed.pointer()), byte))
    }

    /// The frame of the page at an address, if one is present.
    pub fn translate(&self, address: u64) -> Option<Frame> {
        self.entry(address).map(|value| Self::FORMAT.frame(value))
    }

    /// The entry of the page at an address, if one is present and not claimed:
    /// what hardware finds when it walks the tables. Takes no fault and sets
    /// no bit.
    pub fn entry(&self, address: u64) -> Option<u64> {
        if address >= self.layout().end {
            return None;
        }
        let section = self.memory().enter();
        let walked = self.tables().descend(Page::containing(address), &section);
        match walked {
            Walk::Leaf { value, link, .. }
                if Self::FORMAT.is_present(value) && !Self::FORMAT.is_claimed(value) =>
            {
                // As the entry above says, under a fork.
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

    /// How many pages there are, without those that are the shared zero page; those included that
    /// no access may reach, and not those of devices.
    /// A look at all tables beside whoever changes them: exact if nobody does.
    pub fn resident(&self) -> u64 {
        let _section = self.memory().enter();
        self.resident_below(self.tables().root, LEVELS - 1)
    }

    fn resident_below(&self, table: Frame, level: usize) -> u64 {
        let format = M::Format::FORMAT;
        // SAFETY: found in the caller's section, so it stays a table until that ends.
        let table = unsafe { Table::at(self.machine(), table) };
        let user = if level == LEVELS - 1 {
            (self.layout().end.div_ceil(PAGE_SIZE)).div_ceil(table::span(level)) as usize
        } else {
            ENTRIES
        };
        let mut pages = 0;
        let mut at = 0;
        while let Some(number) = table.next_used(at, user) {
            at = number + 1;
            let value = table.entries()[number].load();
            let below = format.frame(value);
            if level > 0 && format.is_present(value) {
                pages += self.resident_below(below, level - 1);
            } else if level == 0 && below != Frame(0) && self.tables().counted(value).is_some() {
                // A claim remembers the frame that it replaces.
                pages += 1;
            }
        }
        pages
    }
}
