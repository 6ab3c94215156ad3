//! A software TLB: set-associative, tagged by page. Its CPU alone touches it.

use std::cell::Cell;
use std::ptr::NonNull;

use faultless_paging::{Access, Flush, PAGE_SIZE};

const SETS: usize = 64;
const WAYS: usize = 4;

/// More pages than this are flushed by flushing everything, as Linux does on x86-64.
const SINGLE_PAGES: u64 = 33;

/// A cached translation.
#[derive(Clone, Copy)]
pub struct Translation {
    /// The page.
    pub page: u64,
    /// Where its frame is on the host.
    pub host: NonNull<u8>,
    /// Stores are let through, and the entry's dirty bit is set.
    pub write: bool,
    /// Instruction fetches are let through.
    pub execute: bool,
    /// Nothing else is.
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

/// How a flush was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Everything went.
    All,
    /// So many single pages.
    Pages(u64),
}

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

    pub fn flush(&self, flush: Flush) -> Flushed {
        let (first, pages) = (flush.start / PAGE_SIZE, flush.pages());
        if pages > SINGLE_PAGES {
            self.flush_all();
            return Flushed::All;
        }
        for page in first..first + pages {
            for way in self.set(page) {
                if way.get().is_some_and(|t| t.page == page) {
                    way.set(None);
                }
            }
        }
        Flushed::Pages(pages)
    }
}
