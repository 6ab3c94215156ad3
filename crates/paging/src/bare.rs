//! Whether a range has nothing to zap: no page, and no table that only this range needs.
//!
//! Memory is often mapped and never used. Its first and last pages may still lie in tables of its neighbours,
//! so the walk follows either end of the range down to the lowest table that exists there. All entries between
//! the two ends have to be empty. The lowest tables at the ends may stay only if something else needs them; the
//! tables above them then stay as well.

use crate::address::{Frame, Pages};
use crate::format::EntryFormat;
use crate::memory::PhysicalMemory;
use crate::table::{ENTRIES, LEVELS, Table, index, span};

/// Whether `pages` have neither a page nor a table of their own. `is_needed` says whether the table over a span
/// of pages, some of them in the range, has another use. Returns `false` while a table there is being installed
/// or freed.
///
/// # Safety
/// As for [`crate::walk()`]. `pages` is not empty, and ends within the root's span.
pub unsafe fn is_bare<F: EntryFormat, P: PhysicalMemory + ?Sized>(
    memory: &P,
    root: Frame,
    pages: Pages,
    is_needed: &mut dyn FnMut(Pages) -> bool,
) -> bool {
    let last = pages.end - 1;
    let (mut frame, mut level) = (root, LEVELS - 1);
    // SAFETY: the root.
    let mut table = unsafe { Table::at(memory, frame) };
    while level > 0 && index(pages.start, level) == index(last, level) {
        match table.entry(last, level).load() {
            0 => return is_needed(span_of(last, level)),
            value if F::FORMAT.is_table(value) => frame = F::FORMAT.frame(value),
            _ => return false,
        }
        level -= 1;
        // SAFETY: found linked as a table after the section began.
        table = unsafe { Table::at(memory, frame) };
    }
    let [is_start_cut, is_end_cut] = cuts(pages, level);
    let between = index(pages.start, level) + usize::from(is_start_cut)
        ..index(last, level) + usize::from(!is_end_cut);
    if table.next_used(between.start, between.end).is_some() {
        return false;
    }
    if !is_start_cut && !is_end_cut {
        return is_needed(span_of(last, level));
    }
    // SAFETY: as above.
    let mut is_end_bare =
        |end| unsafe { is_end_bare::<F, P>(memory, (table, level), pages, end, is_needed) };
    (!is_start_cut || is_end_bare(End::Start)) && (!is_end_cut || is_end_bare(End::Last))
}

/// An end of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Start,
    Last,
}

/// The same at one end of `pages`, which cuts an entry of `table`.
///
/// # Safety
/// As for [`is_bare`].
unsafe fn is_end_bare<F: EntryFormat, P: PhysicalMemory + ?Sized>(
    memory: &P,
    (mut table, mut level): (&Table, usize),
    pages: Pages,
    end: End,
    is_needed: &mut dyn FnMut(Pages) -> bool,
) -> bool {
    let page = match end {
        End::Start => pages.start,
        End::Last => pages.end - 1,
    };
    loop {
        let value = table.entry(page, level).load();
        if value == 0 {
            return is_needed(span_of(page, level));
        }
        if !F::FORMAT.is_table(value) {
            return false;
        }
        level -= 1;
        // SAFETY: found linked as a table after the section began.
        table = unsafe { Table::at(memory, F::FORMAT.frame(value)) };
        let number = index(page, level);
        let cuts = cuts(pages, level);
        let (inside, is_cut) = match end {
            End::Start => (number + usize::from(cuts[0])..ENTRIES, cuts[0]),
            End::Last => (0..number + usize::from(!cuts[1]), cuts[1]),
        };
        if table.next_used(inside.start, inside.end).is_some() {
            return false;
        }
        if !is_cut {
            return is_needed(span_of(page, level));
        }
    }
}

/// Whether the start and the end of `pages` lie inside entries at `level`.
fn cuts(pages: Pages, level: usize) -> [bool; 2] {
    [pages.start, pages.end].map(|at| !at.is_multiple_of(span(level)))
}

/// Returns the pages of the table at `level` over `page`.
fn span_of(page: u64, level: usize) -> Pages {
    let start = page & !(span(level + 1) - 1);
    Pages::new(start, start + span(level + 1))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::ptr::NonNull;
    use std::vec::Vec;

    use super::*;
    use crate::address::PAGE_SIZE;
    use crate::protection::Protection;
    use crate::x86_64::X86_64;

    /// Physical memory for a few tables.
    #[repr(align(4096))]
    #[derive(Clone)]
    struct Block(
        #[expect(dead_code, reason = "only its address is used")] [u8; PAGE_SIZE as usize],
    );

    struct Blocks(Vec<Block>);

    impl PhysicalMemory for Blocks {
        fn pointer(&self, frame: Frame) -> NonNull<u8> {
            NonNull::from(&self.0[frame.0 as usize]).cast()
        }
    }

    impl Blocks {
        /// Installs the tables over `page` down to `level`, and with level 0 its page.
        fn install(&mut self, page: u64, level: usize, has_page: bool) {
            let mut frame = Frame(0);
            for at in (level + 1..LEVELS).rev() {
                // SAFETY: a table.
                let entry = unsafe { Table::at(&*self, frame) }.entry(page, at);
                let mut value = entry.load();
                if value == 0 {
                    value = X86_64::FORMAT.table(Frame(self.0.len() as u64));
                    entry.set(value);
                    self.0.push(Block([0; PAGE_SIZE as usize]));
                }
                frame = X86_64::FORMAT.frame(value);
            }
            if has_page {
                let protection = Protection {
                    read: true,
                    write: true,
                    execute: false,
                };
                let leaf = X86_64::FORMAT.leaf_of(Frame(1 << 20), true, protection, true);
                // SAFETY: a table.
                unsafe { Table::at(&*self, frame) }.entry(page, 0).set(leaf);
            }
        }

        /// Returns the span and the level of each table.
        fn tables(&self, frame: Frame, level: usize, page: u64, all: &mut Vec<(Pages, usize)>) {
            all.push((span_of(page, level), level));
            for number in (0..ENTRIES).filter(|_| level > 0) {
                // SAFETY: a table.
                let value = unsafe { Table::at(self, frame) }.entries()[number].load();
                if value != 0 {
                    let start = page + number as u64 * span(level);
                    self.tables(X86_64::FORMAT.frame(value), level - 1, start, all);
                }
            }
        }
    }

    #[test]
    fn a_bare_range_has_no_page_and_no_table_of_its_own() {
        let mut seed = 1u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let mut outcomes = [0; 2];
        for _ in 0..4000 {
            // Pages near the edges of tables at each level.
            let mut spot = || match random(3) {
                0 => random(2) * span(3) + random(2) * span(2) + random(3) * span(1) + random(3),
                1 => random(2) * span(2) + random(4) * span(1),
                _ => random(3) * span(1) + random(512),
            };
            let mut memory = Blocks(std::vec![Block([0; PAGE_SIZE as usize])]);
            let pages: Vec<u64> = (0..spot() % 3).map(|_| spot()).collect();
            pages.iter().for_each(|&page| memory.install(page, 0, true));
            for _ in 0..spot() % 3 {
                let (page, level) = (spot(), spot() as usize % 3);
                memory.install(page, level, false);
            }
            let needed: Vec<u64> = (0..spot() % 4).map(|_| spot()).collect();
            let [one, other] = [spot(), spot()];
            let range = Pages::new(one.min(other), one.max(other) + 1);
            let is_in = |page: u64, pages: Pages| pages.start <= page && page < pages.end;
            let is_needed = |of: Pages| {
                needed
                    .iter()
                    .any(|&page| is_in(page, of) && !is_in(page, range))
            };
            let mut tables = Vec::new();
            memory.tables(Frame(0), LEVELS - 1, 0, &mut tables);
            let expected = !pages.iter().any(|&page| is_in(page, range))
                && tables.iter().all(|&(of, level)| {
                    let meets = of.start < range.end && range.start < of.end;
                    let is_inside =
                        level < LEVELS - 1 && range.start <= of.start && of.end <= range.end;
                    !meets || !is_inside && is_needed(of)
                });
            // SAFETY: the tables of this test.
            let found =
                unsafe { is_bare::<X86_64, _>(&memory, Frame(0), range, &mut |of| is_needed(of)) };
            assert_eq!(
                found, expected,
                "{range:?} with {pages:?}, {tables:?}, {needed:?}"
            );
            outcomes[usize::from(found)] += 1;
        }
        assert!(outcomes.iter().all(|&times| times > 100), "{outcomes:?}");
    }
}
