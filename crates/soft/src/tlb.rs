//! A software TLB: set-associative, tagged by page. Only its CPU uses it.

use std::cell::Cell;
use std::ops::Range;
use std::ptr::NonNull;

use faultless_paging::{Access, PAGE_SIZE};

const SETS: usize = 64;
const WAYS: usize = 4;

/// The maximum number of pages that are flushed one by one. For more, one pass over all sets drops what lies
/// in the ranges and keeps the rest. A pass takes as long as 140 pages (690 ns and 4.8 ns, figures
/// `soft_flush_pass_ns`, `soft_flush_page_ns`). Hardware would flush everything instead; to reload what is
/// used again would cost ten times as much (`soft_flush_refill_ns`). Only for more than `MANY` ranges is
/// everything flushed.
pub const SINGLE_PAGES: u64 = 128;

/// A cached translation.
#[derive(Clone, Copy)]
pub struct Translation {
    /// The page.
    pub page: u64,
    /// The host address of its frame.
    pub host: NonNull<u8>,
    /// Stores are allowed, and the entry's dirty bit is set.
    pub write: bool,
    /// Instruction fetches are allowed.
    pub execute: bool,
    /// Only instruction fetches are allowed.
    pub execute_only: bool,
}

impl Translation {
    /// Whether an access needs no walk.
    #[inline]
    pub fn permits(&self, access: Access) -> bool {
        match access {
            Access::Read => !self.execute_only,
            Access::Write => self.write,
            Access::Execute => self.execute,
        }
    }
}

/// The TLB of one CPU.
pub struct Tlb {
    sets: [[Cell<Option<Translation>>; WAYS]; SETS],
    victim: Cell<usize>,
}

/// The way in which a flush was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// The whole TLB was scanned or emptied.
    All,
    /// This many single pages were flushed.
    Pages(u64),
}

/// With more ranges than this, a large flush empties the TLB: to check each translation against all ranges
/// takes as long as to reload all.
const MANY: usize = 8;

impl Tlb {
    pub fn new() -> Self {
        Self {
            sets: [const { [const { Cell::new(None) }; WAYS] }; SETS],
            victim: Cell::new(0),
        }
    }

    #[inline]
    fn set(&self, page: u64) -> &[Cell<Option<Translation>>; WAYS] {
        &self.sets[page as usize % SETS]
    }

    #[inline]
    pub fn find(&self, page: u64) -> Option<Translation> {
        self.set(page)
            .iter()
            .filter_map(Cell::get)
            .find(|t| t.page == page)
    }

    pub fn insert(&self, translation: Translation) {
        let set = self.set(translation.page);
        let same = set
            .iter()
            .position(|way| way.get().is_some_and(|t| t.page == translation.page));
        let way = same.or_else(|| set.iter().position(|way| way.get().is_none()));
        let way = way.unwrap_or_else(|| {
            self.victim.set((self.victim.get() + 1) % WAYS);
            self.victim.get()
        });
        set[way].set(Some(translation));
    }

    pub fn flush_all(&self) {
        self.sets.iter().flatten().for_each(|way| way.set(None));
    }

    /// Drops the translations in these ranges of bytes.
    pub fn flush(&self, ranges: impl Iterator<Item = Range<u64>> + Clone) -> Flushed {
        let ranges = ranges.map(|range| range.start / PAGE_SIZE..range.end / PAGE_SIZE);
        let pages = ranges.clone().map(|range| range.end - range.start).sum();
        if pages > SINGLE_PAGES && ranges.clone().count() > MANY {
            self.flush_all();
            return Flushed::All;
        }
        if pages > SINGLE_PAGES {
            for way in self.sets.iter().flatten() {
                let has = |page| ranges.clone().any(|range| range.contains(&page));
                if way.get().is_some_and(|t| has(t.page)) {
                    way.set(None);
                }
            }
            return Flushed::All;
        }
        for page in ranges.flatten() {
            for way in self.set(page) {
                if way.get().is_some_and(|t| t.page == page) {
                    way.set(None);
                }
            }
        }
        Flushed::Pages(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::{Flushed, PAGE_SIZE, SINGLE_PAGES, Tlb, Translation};
    use std::ptr::NonNull;

    fn full() -> Tlb {
        let tlb = Tlb::new();
        for page in 0..256 {
            tlb.insert(Translation {
                page,
                host: NonNull::dangling(),
                write: true,
                execute: true,
                execute_only: false,
            });
        }
        tlb
    }

    fn flush(tlb: &Tlb, pages: &[(u64, u64)]) -> Flushed {
        let bytes = |&(first, end): &(u64, u64)| first * PAGE_SIZE..end * PAGE_SIZE;
        tlb.flush(pages.iter().map(bytes))
    }

    #[test]
    fn what_was_not_asked_for_stays() {
        let ranges: [&[(u64, u64)]; 5] = [
            &[],
            &[(7, 8)],
            &[(0, SINGLE_PAGES)],
            &[(0, SINGLE_PAGES + 1)],
            &[(10, 20), (30, 150), (200, 1 << 40)],
        ];
        for ranges in ranges {
            let tlb = full();
            let pages = ranges.iter().map(|(first, end)| end - first).sum();
            let expected = match pages {
                0..=SINGLE_PAGES => Flushed::Pages(pages),
                _ => Flushed::All,
            };
            assert_eq!(flush(&tlb, ranges), expected);
            for page in 0..256 {
                let is_asked = ranges
                    .iter()
                    .any(|&(first, end)| (first..end).contains(&page));
                assert_eq!(
                    tlb.find(page).is_none(),
                    is_asked,
                    "page {page}, {ranges:?}"
                );
            }
        }
    }
}
