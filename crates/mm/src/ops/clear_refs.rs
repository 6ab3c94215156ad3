//! Letting pages count as not used: what `/proc/PID/clear_refs` does beside
//! [`AddressSpace::clear_soft_dirty`].
//!
//! What says that a page was used is hardware's accessed bit. Clearing it takes no right away,
//! so that nothing is claimed; it is flushed before the end, so that the next use sets it again
//! and an entry that names no owner ([`faultless_paging::holders`]) and has a clear bit was in no TLB when
//! it was flushed (rule R8). Until then it does not,
//! so that an entry's owner goes with its bit ([`faultless_paging::holders`]).
//!
//! Written lines: the entries.

use faultless_paging::{Gather, Pages};
use faultless_sync::{Mutant, mutant};

use crate::base::machine::Machine;
use crate::space::AddressSpace;
use crate::tree::PAGES;
use crate::tree::mapping::Attributes;

/// Which mappings' pages are to count as not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgingMode {
    /// All.
    All,
    /// Those without a store.
    Anonymous,
    /// Those with one.
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
    /// Lets the pages of some mappings count as not used.
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
        let format = Self::FORMAT;
        let _section = self.memory().enter();
        self.tables().for_each_entry(pages, &mut |entry, page| {
            loop {
                let value = entry.load();
                // A claim is a use that goes on.
                if !format.is_used(value) || format.is_claimed(value) {
                    return;
                }
                // Not by a store: hardware may set bits at any moment (rule R8).
                let unused = match mutant(Mutant::OwnerNotTakenAway) {
                    true => value & !format.accessed,
                    false => format.unused(value),
                };
                if entry.replace(value, unused).is_ok() {
                    self.tables().gather(value, page, gather);
                    return;
                }
            }
        });
    }
}
