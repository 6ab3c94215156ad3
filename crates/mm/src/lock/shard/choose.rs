//! Which part of a space a range belongs to, and the right to change the tree there.
//!
//! What is counted has to be exact where a limit compares with it. An arena's account says by how
//! much it has more than when accounts were last settled ([`crate::tree::account`]). So while there is a
//! limit that is not only of mappings, or there are almost too many mappings, all is counted in the
//! space's own account: who edits an arena takes the space's edit lock first. When an arena has got
//! too many mappings more, accounts are settled.

use faultless_paging::Pages;
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{Mutant, RangeLock, SpinGuard, mutant};

use crate::base::machine::Machine;
use crate::base::notes::Note;
use crate::lock::Edit;
use crate::lock::departing::UnmapGuard;
use crate::lock::shard::{COUNT, COUNT_OF_CPUS, LockDomain, NEAR, STRICT, Shard, Shards};
use crate::lock::{DomainLocks, Mappings};
use crate::tree::GapIndex;
use crate::tune::GUARD_GAP;
use crate::tune::QUOTA;

impl<M: Machine> Mappings<M> {
    /// The table of arenas, once there was one. Acquire: pairs with the release in `open`.
    #[inline]
    pub(crate) fn arenas(&self) -> Option<&Shards> {
        // SAFETY: written before it could be found, and there until the space ends.
        unsafe { self.arenas.load(Ordering::Acquire).as_ref() }
    }

    /// How many parts writers have to themselves ([`Mappings::spread_writers`],
    /// [`Mappings::spread_around`]).
    #[inline]
    pub(crate) fn arena_count(&self) -> usize {
        self.arenas().map_or(0, Shards::count)
    }

    /// Whether there are several edit locks.
    #[inline]
    pub(crate) fn is_divided(&self) -> bool {
        self.arenas().is_some()
    }

    /// Which part `pages` belong to, as long as there are no more arenas. So it stays while the
    /// caller has a range of that part, or its edit lock.
    #[inline]
    pub(crate) fn part_of(&self, pages: Pages) -> LockDomain {
        match self.arenas() {
            None => LockDomain::Central,
            Some(arenas) => arenas.part_of(pages),
        }
    }

    /// Which part an operation belongs to that has two ranges, of which one may be empty.
    pub(crate) fn part_of_both(&self, [one, other]: [Pages; 2]) -> LockDomain {
        let part = self.part_of(one);
        match other.is_empty() || self.part_of(other) == part {
            true => part,
            false => LockDomain::All,
        }
    }

    /// The part of everything.
    pub(crate) fn part_of_everything(&self) -> LockDomain {
        match self.arena_count() {
            0 => LockDomain::Central,
            _ => LockDomain::All,
        }
    }

    /// The list in which an operation of a part has its first place.
    #[inline]
    pub(crate) fn list_of(&self, part: LockDomain) -> &RangeLock {
        match (part, self.arenas()) {
            (LockDomain::Shard(number), Some(arenas)) => &arenas.get(number).ranges,
            _ => &self.ranges,
        }
    }

    /// The right to change the tree in a part, for who has a range of it, or asks again which part it
    /// is.
    #[inline]
    pub(crate) fn edit(&self, part: LockDomain) -> Edit<'_, M> {
        if self.arenas().is_none() {
            let holes = self.tree.lock(self.memory);
            if self.arenas().is_none() {
                return self.central_edit(holes);
            }
        }
        self.edit_beside_others(part)
    }

    /// The right to change what is in no shard, under its lock.
    #[inline]
    fn central_edit<'a>(&'a self, own: SpinGuard<'a, GapIndex>) -> Edit<'a, M> {
        let locks = DomainLocks::new(LockDomain::Central, own, UnmapGuard::new(self.memory));
        self.tree.outside().edit(self.memory, locks)
    }

    #[cold]
    fn edit_beside_others(&self, part: LockDomain) -> Edit<'_, M> {
        loop {
            let Some(arenas) = self.arenas() else {
                return self.central_edit(self.tree.lock(self.memory));
            };
            // Asked again under a lock: it changes under all of them.
            let is_strict = arenas.is_strict();
            match part {
                LockDomain::All => return self.edit_all(arenas),
                LockDomain::Central => {
                    let edit = self.central_edit(self.tree.lock(self.memory));
                    if arenas.is_strict() || !self.is_near_limit(arenas.count()) {
                        return edit;
                    }
                }
                LockDomain::Shard(number) => {
                    let arena = arenas.get(number);
                    // What is counted there is exact.
                    let counts = is_strict.then(|| self.tree.lock(self.memory));
                    let edit = arena.edit(self.memory, number, counts);
                    if arenas.is_strict() != is_strict {
                        continue;
                    }
                    if is_strict || !arena.account.has_used_quota() {
                        return edit;
                    }
                }
            }
            // Settles accounts, and says whether there are almost too many mappings.
            drop(self.edit_all(arenas));
        }
    }

    /// Whether somebody edits what a part is.
    pub(crate) fn is_edited(&self, part: LockDomain) -> bool {
        match (part, self.arenas()) {
            (LockDomain::Shard(number), Some(arenas)) => arenas.get(number).edit.is_locked(),
            _ => self.tree.is_edited(),
        }
    }

    /// The right to change everything.
    pub(super) fn edit_all<'a>(&'a self, arenas: &'a Shards) -> Edit<'a, M> {
        let machine = self.machine();
        let own = self.tree.lock(self.memory);
        let locks = DomainLocks::new(LockDomain::All, own, UnmapGuard::new(self.memory));
        let locks = locks.with_shards(arenas.lock_edits(machine));
        let edit = self.tree.whole().edit(self.memory, locks);
        arenas
            .all()
            .for_each(|arena| self.account.settle(&arena.account));
        self.settle_strictness();
        edit
    }

    /// The right to change `pages`, for who has no range: a stack that grows.
    pub(crate) fn edit_around(&self, pages: Pages) -> Edit<'_, M> {
        let pages = Pages::new(pages.start.saturating_sub(GUARD_GAP), pages.end);
        loop {
            let part = self.part_of(pages);
            let edit = self.edit(part);
            if part == self.part_of(pages) || mutant(Mutant::PartChosenOnce) {
                return edit;
            }
        }
    }

    /// Whether there are so many mappings that so many arenas could make too many.
    fn is_near_limit(&self, arenas: usize) -> bool {
        let most = arenas as u64 * QUOTA;
        self.account.mappings.get().saturating_add(most) > self.limits.mappings.get()
    }

    /// Whether all is counted in the space's own account, for who edits what that is.
    pub(crate) fn counts_strictly(&self) -> bool {
        self.arenas().is_some_and(Shards::is_strict)
    }

    /// Says that something will be locked: a limit of that is exact from then on.
    pub(crate) fn note_locked(&self) {
        self.note(Note::LOCKED);
        // Partner: the fence in `open`. Either the new arena is seen here, or the note there.
        fence(Ordering::SeqCst);
        let is_strict = self.arenas().is_none_or(Shards::is_strict);
        if !is_strict && self.has_strict_limits() {
            drop(self.edit(LockDomain::All));
        }
    }

    /// Whether what is counted has to be exact ([`STRICT`]).
    pub(super) fn has_strict_limits(&self) -> bool {
        let limits = self.limits();
        let is_limited = limits.address_space != u64::MAX || limits.data != u64::MAX;
        is_limited || (self.has_lock_limit() && self.has_note(Note::LOCKED))
    }

    /// Why what is counted has to be exact, if there are so many arenas. Under all edit locks; else it is a
    /// guess.
    pub(super) fn strictness(&self, arenas: usize) -> u64 {
        let strict = if self.has_strict_limits() { STRICT } else { 0 };
        let near = if self.is_near_limit(arenas) { NEAR } else { 0 };
        strict | near
    }

    /// Says in the table whether it has. Under all edit locks, accounts being settled.
    pub(crate) fn settle_strictness(&self) {
        if let Some(arenas) = self.arenas() {
            let counts = arenas.state() & (COUNT | COUNT_OF_CPUS);
            arenas.set(counts | self.strictness(arenas.count()));
        }
    }

    /// The arena in which this CPU finds room first, if mappings are chosen in one.
    pub(crate) fn arena_of_cpu(&self) -> Option<usize> {
        let arenas = self.arenas()?;
        let cpu = self.machine().cpu().index();
        let number = cpu.checked_rem(arenas.count_of_cpus())?;
        Some(arenas.of_cpus[number].load(Ordering::Relaxed) as usize)
    }

    /// Where an operation of a part may choose room: an arena's pages, or all.
    pub(crate) fn room_of(&self, part: LockDomain) -> Option<Pages> {
        match (part, self.arenas()) {
            (LockDomain::Shard(number), Some(arenas)) => {
                Some(Shard::room(arenas.slots[number].pages()))
            }
            _ => None,
        }
    }

    /// Whether an operation of a part may choose `pages`.
    pub(crate) fn may_choose(&self, part: LockDomain, pages: Pages) -> bool {
        match part {
            LockDomain::All => true,
            LockDomain::Shard(_) => self
                .room_of(part)
                .is_some_and(|room| room.start <= pages.start && pages.end <= room.end),
            // What is mapped in an arena may ask for a guard gap below.
            LockDomain::Central => {
                let end = pages.end.saturating_add(GUARD_GAP);
                self.part_of(Pages::new(pages.start, end)) == LockDomain::Central
            }
        }
    }
}

impl Shards {
    fn part_of(&self, pages: Pages) -> LockDomain {
        // With what is looked at, and merged with.
        let start = pages.start.saturating_sub(1);
        let end = pages.end.saturating_add(1);
        let mut arenas = self.slots[..self.count()]
            .iter()
            .map(crate::lock::shard::Slot::pages);
        let met = arenas.position(|arena| start < arena.end && arena.start < end);
        match met {
            None => LockDomain::Central,
            Some(number) => {
                let arena = self.slots[number].pages();
                match arena.start <= start && end <= arena.end {
                    true => LockDomain::Shard(number),
                    false => LockDomain::All,
                }
            }
        }
    }
}
