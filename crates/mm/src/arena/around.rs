//! An arena around what somebody works at, who is in others' way there.
//!
//! Memory at a place that was named, and what is done to memory that is there, cannot go to another
//! place. So the arena comes to it: a gibibyte or 16 MiB in which things are mapped already, which only
//! changes what locks are taken for them. Where somebody zaps there is none until he has done: his range is in the
//! space's own list.

use faultless_paging::{PAGE_SIZE, Pages};

use faultless_sync::{Flaw, flawed};

use super::crowd::Candidate;
use super::{ARENAS, AROUND, Arenas, OF_CPUS};
use crate::machine::Machine;
use crate::range::RangeLock;
use crate::space::{AddressSpace, Note};
use crate::tree::SMALL_ARENA_LEVEL;

impl<M: Machine> AddressSpace<M> {
    /// Gives who changes mappings around `address` a part of the address space of their own, as
    /// happens by itself where they get into the way of writers elsewhere: from then on they do not. 16 MiB, beginning at a
    /// multiple of that. Whether there is such a part now; not under a policy whose writers take turns, under
    /// a limit of address space or data, where the heap is, where there is one already or pages are being taken away, without
    /// memory, or once there are enough.
    pub fn spread_around(&self, address: u64) -> bool {
        let page = address / PAGE_SIZE;
        let candidate = Candidate::around(page, SMALL_ARENA_LEVEL);
        candidate.pages().end <= self.all_pages().end && self.open_around(candidate)
    }

    /// Somebody has found others in his way when he came to `pages`, outside of all arenas.
    #[cold]
    pub(crate) fn note_crowd(&self, pages: Pages) {
        if self.may_have_around() && self.busy.crowd.note(pages, self.machine().cpu().index()) {
            self.note(Note::CROWDED);
        }
    }

    /// An arena where writers often get into each other's way, for who has nothing yet.
    #[cold]
    pub(crate) fn spread_crowd(&self) {
        if self.take_note(Note::CROWDED)
            && let Some(candidate) = self.busy.crowd.take()
        {
            self.open_around(candidate);
        }
    }

    fn may_have_around(&self) -> bool {
        let count = |arenas: &Arenas| arenas.count() - arenas.count_of_cpus();
        let is_strict = self.arenas().is_some_and(Arenas::is_strict);
        let is_allowed = !self.policy().holds_mmap_lock() && !is_strict;
        is_allowed && self.arenas().map_or(0, count) < AROUND
    }

    fn open_around(&self, candidate: Candidate) -> bool {
        let lock = self.lock_everything_beside_replacing();
        self.may_have_around() && self.open_around_under(&lock, candidate).is_some()
    }

    fn open_around_under(&self, _lock: &RangeLock<'_, M>, candidate: Candidate) -> Option<()> {
        let pages = candidate.pages();
        let (start, end) = self.heap();
        // Who moves its end has a place in the space's own list in any case.
        let is_heap = pages.start <= end / PAGE_SIZE && start / PAGE_SIZE < pages.end;
        let is_zapped = self.is_zapped_in(pages) && !flawed(Flaw::AroundBesideZaps);
        if self.has_strict_limits() || is_heap || is_zapped {
            return None;
        }
        let arenas = match self.arenas() {
            Some(arenas) => arenas,
            None => self.make_table().ok()?,
        };
        let mut edit = self.edit_all(arenas);
        if arenas.meet(pages) {
            return None;
        }
        self.open_arena(&mut edit, arenas, candidate.base, candidate.level)
            .ok()
    }
}

const _: () = assert!(OF_CPUS.is_power_of_two() && ARENAS < 256);
