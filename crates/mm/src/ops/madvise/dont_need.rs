//! `MADV_DONTNEED`: discards pages; the mappings stay.
//!
//! No range is held, so that no operation waits for it, however large it is. Each entry is claimed and then
//! validated: the page still belongs to a mapping that allows this (rule R1, as for a fault). Many entries are
//! flushed together and released as empty (rule R2). Where a writer is at work, or a fork has not copied the
//! table yet, the range is waited for, and held for one batch.
//!
//! On Linux no move intervenes. Here a move can carry a page from ahead of the walk to behind it. If a move
//! that concerns these pages was shown meanwhile, the walk is repeated. If moves do not end, the walk holds the
//! range.
//!
//! *Models*: loom `ops/remap.rs`, shuttle `ops/{advice,moves}.rs`.

use faultless_paging::{Entry, Format, Page, Pages};
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::reclaim::Section;
use faultless_sync::{Mutant, cond_resched, mutant};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::ops::madvise::allow;
use crate::space::AddressSpace;
use crate::table::discard::DISCARD_BATCH;
use crate::tree::mapping::Attributes;
use crate::tree::{Run, SlotState, SlotValue};
use crate::tune::DONT_NEED_ROUNDS;

/// Whether an entry outlasts a discard. As on Linux, a marker does in mappings of objects.
fn is_kept(of: Option<&Attributes>, value: u64, format: Format) -> bool {
    value == format.marker() && of.is_some_and(|of| of.backed.is_some())
}

impl<M: Machine> AddressSpace<M> {
    /// Discards what is mapped of `pages`, if `what` is allowed there. Fails with `ENOMEM` if not all was
    /// mapped.
    pub(crate) fn dont_need(&self, pages: Pages, what: i32) -> Result<(), Errno> {
        for _ in 0..DONT_NEED_ROUNDS {
            let moves = self.tables().forks.moves.shown();
            let result = self.dont_need_once(pages, what);
            let is_unchanged = self
                .tables()
                .forks
                .moves
                .is_unchanged(moves, pages, self.machine());
            if is_unchanged || mutant(Mutant::MovesNotCounted) {
                return result;
            }
        }
        self.over_mapped(pages, what, |part| {
            self.discard_held(part);
            Ok(())
        })
    }

    /// Discards the pages of a mapping, which does not change meanwhile.
    fn discard_held(&self, part: Pages) {
        let of = self.lookup(Page(part.start).address());
        let is_meant = |value| !is_kept(of.as_ref(), value, Self::FORMAT);
        self.tables().discard(part, &is_meant);
    }

    /// The same, as long as no page moves from one of `pages` to another.
    fn dont_need_once(&self, pages: Pages, what: i32) -> Result<(), Errno> {
        let mut at = pages.start;
        let mut holes = false;
        while let Some((run, attributes)) = self.next_part(at, pages.end) {
            holes |= run.pages.start != at;
            at = run.pages.end;
            let Some(attributes) = attributes else {
                // A zap is still in progress here.
                holes = true;
                continue;
            };
            allow(&attributes, what)?;
            at = self.discard_run(&run, what);
            if at < pages.end {
                cond_resched(self.machine());
            }
            if at == run.pages.start {
                let first = Pages::new(at, run.pages.end.min(at + DISCARD_BATCH));
                let held = self.over_mapped(first, what, |part| {
                    self.discard_held(part);
                    Ok(())
                });
                match held {
                    Ok(()) => {}
                    // Unmapped since.
                    Err(Errno::ENOMEM) => holes = true,
                    Err(error) => return Err(error),
                }
                at = first.end;
            }
        }
        match holes || at < pages.end {
            true => Err(Errno::ENOMEM),
            false => Ok(()),
        }
    }

    /// Discards the pages of a run. Returns the page to continue from: the run's start if a writer was at work,
    /// which may have held pages that were in no entry.
    fn discard_run(&self, run: &Run, what: i32) -> u64 {
        let (Run { pages, word }, is_live) = (*run, run.word.is_live());
        if !is_live {
            return pages.start;
        }
        // Where there are no tables, the walk may have passed the end.
        let stop = self.discard_allowed(pages, what).min(pages.end);
        // Partner: the fence of a writer, after it has marked what it changes.
        fence(Ordering::SeqCst);
        let is_same = |now: &Run| now.word == word && now.pages.start == pages.start;
        match self.maps.run_in(pages.start, stop).filter(is_same) {
            Some(now) => now.pages.end.min(stop),
            None => pages.start,
        }
    }

    /// Discards pages from the start of `pages`, as far as each belongs to a live mapping that allows it.
    /// Returns the page to continue from.
    fn discard_allowed(&self, pages: Pages, what: i32) -> u64 {
        let of = self.lookup(Page(pages.start).address());
        let is_meant = |value| !is_kept(of.as_ref(), value, Self::FORMAT);
        let is_allowed = |word: SlotValue| {
            // SAFETY: inside the section in which entries are claimed.
            match unsafe { word.content() } {
                SlotState::Live(mapping) => allow(mapping.attributes(), what).is_ok(),
                _ => false,
            }
        };
        let is_valid = |entry: &Entry, page, _, section: &Section<'_>| {
            is_allowed(self.tree().find(page).word)
                && self.tables().is_in_place(entry, page, section)
        };
        // The entries of huge pages stay in their tables, which never move.
        let is_huge_valid = |span: Pages| self.tree().all_slots(span, is_allowed);
        self.tables()
            .discard_valid(pages, &is_meant, (&is_valid, &is_huge_valid))
    }
}
