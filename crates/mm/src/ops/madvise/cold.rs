//! `MADV_COLD`: pages that the program does not expect to use soon. They count as unused, so that reclaim takes
//! them first. Their content stays.
//!
//! * As on Linux a page that others map too is left alone: they may be using it.
//! * A huge page of this space alone becomes cold as a whole; it is split only where the range has a part of it.
//! * The flush at the end makes every later use count ([`crate::table::age`]).
//!
//! *Writes*: the entries.

use faultless_frames::Descriptor;
use faultless_paging::{ENTRIES, Entry, Gather, Pages};

use crate::base::machine::Machine;
use crate::space::AddressSpace;
use crate::table::pages::Span;

/// Makes the pages of `pages` count as unused. Mappings do not change meanwhile.
pub(super) fn cool<M: Machine>(space: &AddressSpace<M>, pages: Pages) {
    let format = AddressSpace::<M>::FORMAT;
    let mut gather = Gather::new();
    let section = space.memory().enter();
    let tables = space.tables();
    let mut of_huge = Gather::new();
    let mut cool = |entry: &Entry, page: u64| {
        let value = entry.load();
        let is_only_here = |page: &Descriptor| page.map_count() == 1;
        // The count may change beside this, which makes the page no less cold for this space.
        if format.is_present(value)
            && tables.counted(value).is_some_and(is_only_here)
            && let Some(before) = tables.clear_accessed(entry)
        {
            tables.gather(before, page, &mut gather);
        }
    };
    tables.visit_spans(pages, &mut |span| match span {
        Span::Table(table, part) => {
            tables.for_each_in(table, part, &mut cool);
            true
        }
        Span::Huge(_, _, part) if part.len() < ENTRIES as u64 => false,
        Span::Huge(_, value, _) if !format.is_used(value) || !tables.is_exclusive_huge(value) => {
            true
        }
        Span::Huge(entry, value, part) => {
            // From this value alone: what has changed is looked at again, and may be a table now.
            let is_cold = entry.replace(value, format.unused(value)).is_ok();
            if is_cold {
                tables.gather_huge(value, part.start, &mut of_huge);
            }
            is_cold
        }
    });
    gather.join(of_huge);
    tables.flush(&mut gather);
    drop(section);
}
