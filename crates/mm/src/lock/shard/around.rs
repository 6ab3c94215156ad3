//! Shards around contended mappings.
//!
//! A mapping at a named address cannot go elsewhere, nor can a change of existing memory. So a shard is
//! created around it: a gibibyte or 16 MiB in which there are mappings already. Only the choice of locks
//! changes for them. No shard is created where a zap is in progress: its range is in the space's own list.

use faultless_paging::{PAGE_SIZE, Pages};

use faultless_sync::{Mutant, mutant};

use crate::base::machine::Machine;
use crate::base::notes::Note;
use crate::lock::Mappings;
use crate::lock::RangeWriteGuard;
use crate::lock::shard::contention::Candidate;
use crate::lock::shard::{SHARDS, Shards};
use crate::tune::LOWEST_SHARD;
use crate::tune::SMALL_SHARD_LEVEL;
use crate::tune::{SHARDS_AROUND, SHARDS_OF_CPUS};

impl<M: Machine> Mappings<M> {
    /// Creates a shard of 16 MiB, aligned to its size, around `address`, so that its writers do not contend
    /// with writers elsewhere. This also happens automatically if they do. Returns whether it was created.
    /// Fails under a policy with the mmap lock, and under a limit for which accounts are strict
    /// ([`Mappings::has_strict_limits`]); below 4 GiB, where the heap is, and where a shard exists or a zap
    /// runs; without memory, near the limit of mappings, and once there are enough.
    pub(crate) fn spread_around(&self, address: u64) -> bool {
        let page = address / PAGE_SIZE;
        let candidate = Candidate::around(page, SMALL_SHARD_LEVEL);
        self.open_around(candidate)
    }

    /// Records that an operation at `pages`, outside all shards, met contention.
    #[cold]
    pub(crate) fn note_crowd(&self, pages: Pages) {
        let cpu = self.machine().cpu().index();
        let may_be = |candidate| self.may_be_around(candidate);
        // An operation on everything contends wherever the other writer is.
        let is_place = pages.end <= self.all_pages().end;
        if is_place && self.may_have_around() && self.busy.crowd.note(pages, cpu, may_be) {
            self.note(Note::CONTENDED);
        }
    }

    /// Creates a shard where writers often contend. The caller holds nothing yet.
    #[cold]
    pub(crate) fn spread_crowd(&self) {
        if self.take_note(Note::CONTENDED)
            && let Some(candidate) = self.busy.crowd.take()
        {
            let is_made = self.open_around(candidate);
            self.busy.crowd.note_made(is_made);
        }
    }

    /// Whether there may be one more.
    fn may_have_around(&self) -> bool {
        let shards = self.shards();
        let all = shards.map_or(0, Shards::count);
        let around = shards.map_or(0, |shards| all - shards.count_of_cpus());
        // Not if one more shard requires that everything is counted in the space's own account.
        let is_strict = self.strictness(all + 1) != 0;
        around < SHARDS_AROUND && !is_strict && !self.policy().holds_mmap_lock()
    }

    /// Whether a shard may be there.
    fn may_be_around(&self, candidate: Candidate) -> bool {
        let pages = candidate.pages();
        let (start, end) = self.heap();
        // A writer that moves the heap's end has a slot in the space's own list in any case.
        let is_heap = pages.start <= end / PAGE_SIZE && start / PAGE_SIZE < pages.end;
        let is_met = self.shards().is_some_and(|shards| shards.meet(pages));
        pages.start >= LOWEST_SHARD && pages.end <= self.all_pages().end && !is_heap && !is_met
    }

    fn open_around(&self, candidate: Candidate) -> bool {
        let lock = self.lock_everything_beside_replacing();
        self.may_have_around()
            && self.may_be_around(candidate)
            && self.open_around_under(&lock, candidate).is_some()
    }

    fn open_around_under(
        &self,
        _lock: &RangeWriteGuard<'_, M>,
        candidate: Candidate,
    ) -> Option<()> {
        let Candidate { base, level } = candidate;
        if self.is_zapped_in(candidate.pages()) && !mutant(Mutant::AroundBesideZaps) {
            return None;
        }
        let shards = match self.shards() {
            Some(shards) => shards,
            None => self.make_table().ok()?,
        };
        let mut edit = self.edit_all(shards);
        self.open_shard(&mut edit, shards, base, level).ok()
    }
}

const _: () = assert!(SHARDS_OF_CPUS.is_power_of_two() && SHARDS < 256);
