//! A new arena.

use core::ptr::{NonNull, null_mut};

use faultless_frames::NoMemory;
use faultless_paging::{Frame, PAGE_SIZE, Pages};
use faultless_sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
use faultless_sync::{Padded, Ranges, SpinLock};

use super::{ARENAS, Arena, Arenas, Slot, give_frame, take_frame};
use crate::account::Account;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::range::RangeLock;
use crate::space::{AddressSpace, Note};
use crate::tree::{ARENA_LEVEL, Edit, Holes, span};

/// Pages of an arena.
pub(super) const SPAN: u64 = span(ARENA_LEVEL + 1);

/// No arena lies below 4 GiB.
const LOWEST: u64 = if cfg!(any(loom, shuttle)) {
    0
} else {
    (1 << 32) / PAGE_SIZE
};

impl<M: Machine> AddressSpace<M> {
    /// Gives CPUs parts of the address space of their own to map memory in that may lie anywhere, as
    /// happens by itself where threads that map get into each other's way: from then on they do
    /// not. Whether there are more such parts now; not under a policy whose writers take turns, under
    /// a limit of address space or data, without room or memory, or once there are enough.
    pub fn spread_writers(&self) -> bool {
        if self.policy().holds_mmap_lock() {
            return false;
        }
        let all = self.all_pages();
        let lock = self.lock_everything_to_fill(all);
        self.open_arenas(&lock).is_ok_and(|more| more)
    }

    /// The same, for who found writers in each other's way while there were `seen` arenas.
    #[cold]
    pub(crate) fn spread_beside(&self, seen: usize) {
        let all = self.all_pages();
        let lock = self.lock_everything_to_fill(all);
        if self.arena_count() != seen || !self.may_spread() {
            return;
        }
        if !self.open_arenas(&lock).is_ok_and(|more| more) {
            // Not again: it takes everything.
            self.note(Note::SPREAD);
        }
    }

    /// Whether there may be more arenas.
    pub(crate) fn may_spread(&self) -> bool {
        let is_strict = self.arenas().is_some_and(Arenas::is_strict);
        let is_allowed = !self.policy().holds_mmap_lock() && !is_strict;
        is_allowed && self.arena_count() < self.most_arenas() && !self.has_note(Note::SPREAD)
    }

    /// So many, and no more than there are CPUs.
    fn most_arenas(&self) -> usize {
        self.memory
            .cpus()
            .len()
            .next_power_of_two()
            .clamp(1, ARENAS)
    }

    /// As many again as there are, two at first; as far as there is room.
    fn open_arenas(&self, _lock: &RangeLock<'_, M>) -> Result<bool, NoMemory> {
        if self.has_strict_limits() {
            return Ok(false);
        }
        let arenas = match self.arenas() {
            Some(arenas) => arenas,
            None => self.make_table()?,
        };
        let before = arenas.count();
        let most = (before * 2).max(2).min(self.most_arenas());
        while arenas.count() < most {
            let mut edit = self.edit_all(arenas);
            let Some(base) = self.find_arena(&edit, arenas) else {
                break;
            };
            let made = self.make_arena(&mut edit, base);
            let Ok(arena) = made else { break };
            let count = arenas.count();
            let slot = &arenas.slots[count];
            slot.base.store(base, Ordering::Relaxed);
            slot.arena.store(arena.as_ptr(), Ordering::Relaxed);
            let more = count + 1;
            arenas.set(more as u64 | self.strictness(more));
            // Partner: the fence in `AddressSpace::note_locked`.
            fence(Ordering::SeqCst);
            self.settle_strictness();
        }
        Ok(arenas.count() > before)
    }

    /// The highest place for an arena, in all of which nothing is.
    fn find_arena(&self, edit: &Edit<'_, M>, arenas: &Arenas) -> Option<u64> {
        let top = self.layout.mmap_base.min(self.layout.end) / PAGE_SIZE;
        let low = LOWEST.max(self.layout.lowest.div_ceil(PAGE_SIZE));
        let mut end = top & !(SPAN - 1);
        loop {
            let base = end.checked_sub(SPAN).filter(|&base| base >= low)?;
            let taken = arenas.all().any(|arena| arena.stem.pages().start == base);
            end = match edit.last_before(end).filter(|run| run.pages.end > base) {
                Some(run) => run.pages.start & !(SPAN - 1),
                None if taken => base,
                None => return Some(base),
            };
        }
    }

    fn make_table(&self) -> Result<&Arenas, NoMemory> {
        let frame = take_frame(self.memory)?;
        let at = self.machine().pointer(frame).cast::<Arenas>();
        let table = Arenas {
            state: AtomicU64::new(0),
            slots: core::array::from_fn(|_| Slot {
                base: AtomicU64::new(0),
                arena: AtomicPtr::new(null_mut()),
            }),
            frame,
        };
        // SAFETY: a frame of ours, large enough and aligned.
        unsafe { at.write(table) };
        // Release: pairs with the acquire in `AddressSpace::arenas`.
        self.arenas.store(at.as_ptr(), Ordering::Release);
        // SAFETY: just written, and there until the space ends.
        Ok(unsafe { at.as_ref() })
    }

    fn make_arena(&self, edit: &mut Edit<'_, M>, base: u64) -> Result<NonNull<Arena>, NoMemory> {
        let frame = take_frame(self.memory)?;
        let stem = edit
            .pin(base)
            .inspect_err(|_| give_frame(self.memory, frame))?;
        let room = Arena::room(Pages::new(base, base + SPAN));
        let arena = Arena {
            ranges: Padded(Ranges::new()),
            edit: Padded(SpinLock::new(Holes::new(room.end))),
            account: Padded(Account::default()),
            stem,
            frame,
        };
        let at = self.machine().pointer(frame).cast::<Arena>();
        // SAFETY: a frame of ours, large enough and aligned.
        unsafe { at.write(arena) };
        Ok(at)
    }

    /// The frames of arenas and their table, for the verifier.
    pub(crate) fn arena_frames(&self) -> impl Iterator<Item = Frame> {
        let table = self.arenas().into_iter();
        table.flat_map(|table| {
            let arenas = table.all().map(|arena| arena.frame);
            core::iter::once(table.frame).chain(arenas)
        })
    }
}

/// Gives the arenas of a space back that has ended.
pub(crate) fn give_back<M: Machine>(memory: &Memory<M>, arenas: *mut Arenas) {
    // SAFETY: of the space, and nobody looks at it any more.
    if let Some(arenas) = unsafe { arenas.as_ref() } {
        for number in 0..arenas.count() {
            give_frame(memory, arenas.get(number).frame);
        }
        give_frame(memory, arenas.frame);
    }
}
