//! `MADV_DONTNEED`: pages go, mappings stay.
//!
//! No range is held, so that nobody waits for it however large it is: each entry is claimed, and
//! then it is asked whether its page still belongs to a mapping that allows this (rule R1, as for a
//! fault); many entries are flushed together and released as empty (rule R2). Where a writer is at
//! work, or a fork has yet to copy the table, that range is waited for, and held for one batch.
//!
//! Linux has no move come in between. Here one may carry a page from before the walk to behind it, so that, if one
//! that has to do with these pages was shown meanwhile, all is looked through again; beside moves without
//! end, with the range.
//!
//! *Models*: loom `ops/remap.rs`, shuttle `ops/{advice,moves}.rs`.

use faultless_paging::Pages;
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{Mutant, cond_resched, mutant};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::ops::madvise::allow;
use crate::space::AddressSpace;
use crate::table::discard::DISCARD_BATCH;
use crate::tree::{Run, SlotState};
use crate::tune::DONT_NEED_ROUNDS;

impl<M: Machine> AddressSpace<M> {
    /// Takes away what is mapped of `pages`, if `what` is allowed there; `ENOMEM` if
    /// not all was mapped.
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
            self.tables().discard(part);
            Ok(())
        })
    }

    /// The same, where no page moves meanwhile from one of `pages` to another.
    fn dont_need_once(&self, pages: Pages, what: i32) -> Result<(), Errno> {
        let mut at = pages.start;
        let mut holes = false;
        while let Some((run, attributes)) = self.next_part(at, pages.end) {
            holes |= run.pages.start != at;
            at = run.pages.end;
            let Some(attributes) = attributes else {
                // Somebody's munmap is still at it.
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
                    self.tables().discard(part);
                    Ok(())
                });
                match held {
                    Ok(()) => {}
                    // By now.
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

    /// Takes away the pages of a run. The page to go on from: its start where a writer has been at
    /// work, who may have had pages in hand that were in no entry.
    fn discard_run(&self, run: &Run, what: i32) -> u64 {
        let (Run { pages, word }, is_live) = (*run, run.word.is_live());
        if !is_live {
            return pages.start;
        }
        // Where there are no tables it may have gone further.
        let stop = self.discard_allowed(pages, what).min(pages.end);
        // Partner: the fence of a writer, after it has marked what it changes.
        fence(Ordering::SeqCst);
        let is_same = |now: &Run| now.word == word && now.pages.start == pages.start;
        match self.maps.run_in(pages.start, stop).filter(is_same) {
            Some(now) => now.pages.end.min(stop),
            None => pages.start,
        }
    }

    /// Takes away pages from the start of `pages`, as far as each belongs to a live mapping that
    /// allows it. The page to go on from.
    fn discard_allowed(&self, pages: Pages, what: i32) -> u64 {
        self.tables()
            .discard_valid(pages, &|_| true, &|entry, page, _, section| {
                // SAFETY: inside the section in which entries are claimed.
                let is_allowed = match unsafe { self.tree().find(page).word.content() } {
                    SlotState::Live(mapping) => allow(mapping.attributes(), what).is_ok(),
                    _ => false,
                };
                is_allowed && self.tables().is_in_place(entry, page, section)
            })
    }
}
