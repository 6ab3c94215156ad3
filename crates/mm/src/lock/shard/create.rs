//! Creation of shards.

use core::ptr::{NonNull, null_mut};

use faultless_frames::NoMemory;
use faultless_paging::{Frame, PAGE_SIZE, Pages};
use faultless_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use faultless_sync::{Padded, RangeLock, SpinLock};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::base::notes::Note;
use crate::lock::Edit;
use crate::lock::Mappings;
use crate::lock::shard::{COUNT, COUNT_OF_CPUS, Shard, Shards, Slot};
use crate::lock::{RangeWriteGuard, give_chunks};
use crate::tree::account::Account;
use crate::tree::{GapIndex, span};
use crate::tune::SHARD_LEVEL;
use crate::tune::{LOWEST_SHARD, SHARDS_OF_CPUS};

/// Pages of a per-CPU shard.
pub(super) const SPAN: u64 = span(SHARD_LEVEL + 1);

impl<M: Machine> Mappings<M> {
    /// Creates per-CPU shards for memory that may lie anywhere, so that threads that map memory no longer
    /// contend. This also happens automatically if they do. Returns whether there are more shards now. Fails
    /// under a policy with the mmap lock, under a limit for which accounts are strict
    /// ([`Mappings::has_strict_limits`]), without room or memory, or once there are enough.
    pub(crate) fn spread_writers(&self) -> bool {
        if self.policy().holds_mmap_lock() {
            return false;
        }
        let lock = self.lock_everything_beside_replacing();
        self.open_shards(&lock).is_ok_and(|more| more)
    }

    /// The same, after contention was found while there were `seen` shards.
    #[cold]
    pub(crate) fn spread_beside(&self, seen: usize) {
        let lock = self.lock_everything_beside_replacing();
        if self.shard_count() != seen || !self.may_spread() {
            return;
        }
        if !self.open_shards(&lock).is_ok_and(|more| more) {
            // Do not try again: it locks everything.
            self.note(Note::SPREAD);
        }
    }

    /// Whether more per-CPU shards may be created.
    pub(crate) fn may_spread(&self) -> bool {
        let is_strict = self.shards().is_some_and(Shards::is_strict);
        let is_allowed = !self.policy().holds_mmap_lock() && !is_strict;
        let count = self.shards().map_or(0, Shards::count_of_cpus);
        is_allowed && count < self.most_shards() && !self.has_note(Note::SPREAD)
    }

    /// Returns the most per-CPU shards: the number of CPUs, rounded up to a power of two, up to a bound.
    fn most_shards(&self) -> usize {
        self.memory
            .cpus()
            .len()
            .next_power_of_two()
            .clamp(1, SHARDS_OF_CPUS)
    }

    /// Doubles the number of per-CPU shards, with two at first, as far as there is room. Returns whether
    /// there are more now.
    fn open_shards(&self, _lock: &RangeWriteGuard<'_, M>) -> Result<bool, NoMemory> {
        if self.has_strict_limits() {
            return Ok(false);
        }
        let shards = match self.shards() {
            Some(shards) => shards,
            None => self.make_table()?,
        };
        let before = shards.count_of_cpus();
        let most = (before * 2).max(2).min(self.most_shards());
        while shards.count_of_cpus() < most {
            let mut edit = self.edit_all(shards);
            let Some(base) = self.find_shard(&edit, shards) else {
                break;
            };
            if self
                .open_shard(&mut edit, shards, base, SHARD_LEVEL)
                .is_err()
            {
                break;
            }
            let (number, of_cpus) = (shards.count() - 1, shards.count_of_cpus());
            shards.of_cpus[of_cpus].store(number as u32, Ordering::Relaxed);
            shards.set(shards.state() + (1 << COUNT.count_ones()));
        }
        Ok(shards.count_of_cpus() > before)
    }

    /// Creates a shard of a node at `level`, from page `base` on. The caller holds every range; zaps and
    /// replacements may run elsewhere.
    ///
    /// # Errors
    /// [`NoMemory`]; no shard is added.
    pub(super) fn open_shard(
        &self,
        edit: &mut Edit<'_, M>,
        shards: &Shards,
        base: u64,
        level: usize,
    ) -> Result<(), NoMemory> {
        let pages = Pages::new(base, base + span(level + 1));
        let shard = self.make_shard(edit, pages, level)?;
        let count = shards.count();
        let slot = &shards.slots[count];
        slot.base.store(pages.start, Ordering::Relaxed);
        slot.end.store(pages.end, Ordering::Relaxed);
        slot.shard.store(shard.as_ptr(), Ordering::Relaxed);
        let counts = shards.state() & (COUNT | COUNT_OF_CPUS);
        shards.set((counts + 1) | self.strictness(count + 1));
        // Partner: the fence in `Mappings::note_locked`.
        fence(Ordering::SeqCst);
        self.settle_strictness();
        Ok(())
    }

    /// Whether a zap or a replacement runs in `pages`, or beside them. The caller holds every range.
    pub(super) fn is_zapped_in(&self, pages: Pages) -> bool {
        let (start, end) = (pages.start.saturating_sub(1), pages.end + 1);
        let mut is_zapped = false;
        // A zap across shards is in this list, too.
        self.ranges.for_each_zap(self.machine(), |range, _| {
            is_zapped |= start < range.end && range.start < end;
        });
        is_zapped
    }

    /// Returns the first page of the highest place for a per-CPU shard, in which nothing is mapped or zapped.
    fn find_shard(&self, edit: &Edit<'_, M>, shards: &Shards) -> Option<u64> {
        let top = self.layout.mmap_base.min(self.layout.end) / PAGE_SIZE;
        let low = LOWEST_SHARD.max(self.layout.lowest.div_ceil(PAGE_SIZE));
        let mut end = top & !(SPAN - 1);
        loop {
            let base = end.checked_sub(SPAN).filter(|&base| base >= low)?;
            let pages = Pages::new(base, end);
            let taken = shards.meet(pages) || self.is_zapped_in(pages);
            end = match edit.last_before(end).filter(|run| run.pages.end > base) {
                Some(run) => run.pages.start & !(SPAN - 1),
                None if taken => base,
                None => return Some(base),
            };
        }
    }

    pub(super) fn make_table(&self) -> Result<&Shards, NoMemory> {
        let frame = self.memory.take_space_frame()?;
        let at = self.machine().pointer(frame).cast::<Shards>();
        let table = Shards {
            state: AtomicU64::new(0),
            slots: core::array::from_fn(|_| Slot {
                base: AtomicU64::new(0),
                end: AtomicU64::new(0),
                shard: AtomicPtr::new(null_mut()),
            }),
            of_cpus: core::array::from_fn(|_| AtomicU32::new(0)),
            frame,
        };
        // SAFETY: a frame of ours, large enough and aligned.
        unsafe { at.write(table) };
        // Release: pairs with the acquire in `Mappings::shards`.
        self.shards.store(at.as_ptr(), Ordering::Release);
        // SAFETY: just written, and valid until the space ends.
        Ok(unsafe { at.as_ref() })
    }

    fn make_shard(
        &self,
        edit: &mut Edit<'_, M>,
        pages: Pages,
        level: usize,
    ) -> Result<NonNull<Shard>, NoMemory> {
        let frame = self.memory.take_space_frame()?;
        let stem = edit
            .pin(pages.start, level)
            .inspect_err(|_| self.memory.give_space_frame(frame))?;
        let room = Shard::room(pages);
        let shard = Shard {
            ranges: Padded(RangeLock::new()),
            edit: Padded(SpinLock::new(GapIndex::new(room.end))),
            account: Padded(Account::default()),
            stem,
            frame,
        };
        let at = self.machine().pointer(frame).cast::<Shard>();
        // SAFETY: a frame of ours, large enough and aligned.
        unsafe { at.write(shard) };
        Ok(at)
    }

    /// Returns the frames of shards and their table, for the verifier.
    pub(crate) fn shard_frames(&self) -> impl Iterator<Item = Frame> {
        let table = self.shards().into_iter();
        table.flat_map(|table| {
            let shards = table.all().map(|shard| shard.frame);
            core::iter::once(table.frame).chain(shards)
        })
    }
}

/// Frees the shards of a space that has ended.
pub(crate) fn give_back<M: Machine>(memory: &Memory<M>, shards: *mut Shards) {
    // SAFETY: of the space, and no other code reads it any more.
    if let Some(shards) = unsafe { shards.as_ref() } {
        for number in 0..shards.count() {
            give_chunks(memory, &shards.get(number).ranges);
            memory.give_space_frame(shards.get(number).frame);
        }
        memory.give_space_frame(shards.frame);
    }
}
