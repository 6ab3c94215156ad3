//! Clears accessed bits: what `/proc/PID/clear_refs` does beside [`AddressSpace::clear_soft_dirty`].
//!
//! Hardware's accessed bit records that a page was used.
//!
//! It is flushed before the operation ends, so that the next use sets it again ([`crate::table::age`]). Guests lose the entries
//! of these pages, also of those that only they have used.
//!
//! *Writes*: the entries.

use faultless_paging::{Gather, Pages};

use crate::base::machine::Machine;
use crate::space::AddressSpace;
use crate::tree::PAGES;
use crate::tree::mapping::Attributes;

/// The mappings in which pages are to count as unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgingMode {
    /// All mappings.
    All,
    /// Mappings without a memory object.
    Anonymous,
    /// Mappings of memory objects.
    Objects,
}

impl AgingMode {
    fn applies(self, attributes: &Attributes) -> bool {
        match self {
            AgingMode::All => true,
            AgingMode::Anonymous => attributes.backed.is_none(),
            AgingMode::Objects => attributes.backed.is_some(),
        }
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Makes the pages of some mappings count as unused.
    pub fn clear_accessed(&self, of: AgingMode) {
        let _hold = self.maps.hold_everything();
        let mut gather = Gather::new();
        let mut at = 0;
        while let Some(run) = self.maps.run_in(at, PAGES) {
            at = run.pages.end;
            // SAFETY: the hold keeps mappings.
            let mapping = unsafe { run.word.mapping() };
            if mapping.is_some_and(|mapping| of.applies(mapping.attributes())) {
                self.clear_accessed_in(run.pages, &mut gather);
            }
        }
        let section = self.memory().enter();
        self.tables().flush(&mut gather);
        drop(section);
    }

    fn clear_accessed_in(&self, pages: Pages, gather: &mut Gather) {
        let _section = self.memory().enter();
        self.tables().for_each_entry(pages, &mut |entry, page| {
            let before = self.tables().clear_accessed(entry);
            if let Some(before) = before.or_else(|| self.tables().for_guests(entry)) {
                self.tables().gather(before, page, gather);
            }
        });
    }
}
