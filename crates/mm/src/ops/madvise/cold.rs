//! `MADV_COLD`: pages that the program does not expect to use soon. They count as unused, so that reclaim takes
//! them first. Their content stays.
//!
//! * As on Linux a page that others map too is left alone: they may be using it.
//! * The flush at the end makes every later use count ([`crate::table::age`]).
//!
//! *Writes*: the entries.

use faultless_frames::Descriptor;
use faultless_paging::{Gather, Pages};

use crate::base::machine::Machine;
use crate::space::AddressSpace;

/// Makes the pages of `pages` count as unused. Mappings do not change meanwhile.
pub(super) fn cool<M: Machine>(space: &AddressSpace<M>, pages: Pages) {
    let format = AddressSpace::<M>::FORMAT;
    let mut gather = Gather::new();
    let section = space.memory().enter();
    let tables = space.tables();
    tables.for_each_entry(pages, &mut |entry, page| {
        let value = entry.load();
        let is_only_here = |page: &Descriptor| page.map_count() == 1;
        // The count may change beside this, which makes the page no less cold for this space.
        if format.is_present(value)
            && tables.counted(value).is_some_and(is_only_here)
            && let Some(before) = tables.clear_accessed(entry)
        {
            tables.gather(before, page, &mut gather);
        }
    });
    tables.flush(&mut gather);
    drop(section);
}
