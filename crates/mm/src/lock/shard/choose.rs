//! The lock domain of a range, and edits of it.
//!
//! A count must be exact if a limit compares with it. A shard's account holds only differences since accounts
//! were last settled ([`crate::tree::account`]). So everything is counted in the space's own account in two
//! cases: there is a limit other than that of mappings, or the number of mappings is near its limit. An edit
//! of a shard then takes the space's edit lock first. When a shard has gained too many mappings, accounts are
//! settled.

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
    /// Returns the table of shards, if it was created. Acquire: pairs with the release in `make_table`.
    #[inline]
    pub(crate) fn shards(&self) -> Option<&Shards> {
        // SAFETY: written before it could be found, and valid until the space ends.
        unsafe { self.shards.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the number of shards ([`Mappings::spread_writers`], [`Mappings::spread_around`]).
    #[inline]
    pub(crate) fn shard_count(&self) -> usize {
        self.shards().map_or(0, Shards::count)
    }

    /// Whether there may be several edit locks.
    #[inline]
    pub(crate) fn is_divided(&self) -> bool {
        self.shards().is_some()
    }

    /// Returns the lock domain of `pages`. It stays the same until more shards are created, so as long as the
    /// caller holds a range of that domain, or its edit lock.
    #[inline]
    pub(crate) fn part_of(&self, pages: Pages) -> LockDomain {
        match self.shards() {
            None => LockDomain::Central,
            Some(shards) => shards.part_of(pages),
        }
    }

    /// Returns the lock domain of an operation with two ranges, of which one may be empty.
    pub(crate) fn part_of_both(&self, [one, other]: [Pages; 2]) -> LockDomain {
        let part = self.part_of(one);
        match other.is_empty() || self.part_of(other) == part {
            true => part,
            false => LockDomain::All,
        }
    }

    /// Returns the lock domain of everything.
    pub(crate) fn part_of_everything(&self) -> LockDomain {
        match self.shard_count() {
            0 => LockDomain::Central,
            _ => LockDomain::All,
        }
    }

    /// Returns the list in which an operation of a lock domain has its first slot.
    #[inline]
    pub(crate) fn list_of(&self, part: LockDomain) -> &RangeLock {
        match (part, self.shards()) {
            (LockDomain::Shard(number), Some(shards)) => &shards.get(number).ranges,
            _ => &self.ranges,
        }
    }

    /// Begins an edit of a lock domain. The caller holds a range of it, or asks again which lock domain it
    /// is.
    #[inline]
    pub(crate) fn edit(&self, part: LockDomain) -> Edit<'_, M> {
        if self.shards().is_none() {
            let holes = self.tree.lock(self.memory);
            if self.shards().is_none() {
                return self.central_edit(holes);
            }
        }
        self.edit_beside_others(part)
    }

    /// Begins an edit of what is in no shard, under its lock.
    #[inline]
    fn central_edit<'a>(&'a self, own: SpinGuard<'a, GapIndex>) -> Edit<'a, M> {
        let locks = DomainLocks::new(LockDomain::Central, own, UnmapGuard::new(self.memory));
        self.tree.outside().edit(self.memory, locks)
    }

    #[cold]
    fn edit_beside_others(&self, part: LockDomain) -> Edit<'_, M> {
        loop {
            let Some(shards) = self.shards() else {
                return self.central_edit(self.tree.lock(self.memory));
            };
            // Checked again under a lock: it changes only under all of them.
            let is_strict = shards.is_strict();
            match part {
                LockDomain::All => return self.edit_all(shards),
                LockDomain::Central => {
                    let edit = self.central_edit(self.tree.lock(self.memory));
                    if shards.is_strict() || !self.is_near_limit(shards.count()) {
                        return edit;
                    }
                }
                LockDomain::Shard(number) => {
                    let shard = shards.get(number);
                    // What is counted under this lock is exact.
                    let counts = is_strict.then(|| self.tree.lock(self.memory));
                    let edit = shard.edit(self.memory, number, counts);
                    if shards.is_strict() != is_strict {
                        continue;
                    }
                    if is_strict || !shard.account.has_used_quota() {
                        return edit;
                    }
                }
            }
            // Settles accounts, and records whether the number of mappings is near its limit.
            drop(self.edit_all(shards));
        }
    }

    /// Whether an edit of a lock domain is in progress.
    pub(crate) fn is_edited(&self, part: LockDomain) -> bool {
        match (part, self.shards()) {
            (LockDomain::Shard(number), Some(shards)) => shards.get(number).edit.is_locked(),
            _ => self.tree.is_edited(),
        }
    }

    /// Begins an edit of everything, and settles accounts.
    pub(super) fn edit_all<'a>(&'a self, shards: &'a Shards) -> Edit<'a, M> {
        let machine = self.machine();
        let own = self.tree.lock(self.memory);
        let locks = DomainLocks::new(LockDomain::All, own, UnmapGuard::new(self.memory));
        let locks = locks.with_shards(shards.lock_edits(machine));
        let edit = self.tree.whole().edit(self.memory, locks);
        shards
            .all()
            .for_each(|shard| self.account.settle(&shard.account));
        self.settle_strictness();
        edit
    }

    /// Begins an edit of `pages` without a range, for a stack that grows.
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

    /// Whether so many shards could exceed the limit of mappings before accounts are settled.
    fn is_near_limit(&self, shards: usize) -> bool {
        let most = shards as u64 * QUOTA;
        self.account.mappings.get().saturating_add(most) > self.limits.mappings.get()
    }

    /// Whether everything is counted in the space's own account. Stable during an edit.
    pub(crate) fn counts_strictly(&self) -> bool {
        self.shards().is_some_and(Shards::is_strict)
    }

    /// Records that memory will be locked: a limit of locked memory is exact from then on.
    pub(crate) fn note_locked(&self) {
        self.note(Note::LOCKED);
        // Partner: the fence in `open_shard`. Either the new shard is seen here, or the flag is seen there.
        fence(Ordering::SeqCst);
        let is_strict = self.shards().is_none_or(Shards::is_strict);
        if !is_strict && self.has_strict_limits() {
            drop(self.edit(LockDomain::All));
        }
    }

    /// Whether a limit requires exact counts ([`STRICT`]).
    pub(super) fn has_strict_limits(&self) -> bool {
        let limits = self.limits();
        let is_limited = limits.address_space != u64::MAX || limits.data != u64::MAX;
        is_limited || (self.has_lock_limit() && self.has_note(Note::LOCKED))
    }

    /// Returns why counts must be exact with so many shards. Under all edit locks; otherwise it is a guess.
    pub(super) fn strictness(&self, shards: usize) -> u64 {
        let strict = if self.has_strict_limits() { STRICT } else { 0 };
        let near = if self.is_near_limit(shards) { NEAR } else { 0 };
        strict | near
    }

    /// Records these reasons in the table. Under all edit locks, with accounts settled.
    pub(crate) fn settle_strictness(&self) {
        if let Some(shards) = self.shards() {
            let counts = shards.state() & (COUNT | COUNT_OF_CPUS);
            shards.set(counts | self.strictness(shards.count()));
        }
    }

    /// Returns the shard that this CPU searches first, if there are per-CPU shards.
    pub(crate) fn shard_of_cpu(&self) -> Option<usize> {
        let shards = self.shards()?;
        let cpu = self.machine().cpu().index();
        let number = cpu.checked_rem(shards.count_of_cpus())?;
        Some(shards.of_cpus[number].load(Ordering::Relaxed) as usize)
    }

    /// Returns the pages in which an operation of a shard may choose addresses; `None` for other lock
    /// domains.
    pub(crate) fn room_of(&self, part: LockDomain) -> Option<Pages> {
        match (part, self.shards()) {
            (LockDomain::Shard(number), Some(shards)) => {
                Some(Shard::room(shards.slots[number].pages()))
            }
            _ => None,
        }
    }

    /// Whether an operation of a lock domain may choose `pages`.
    pub(crate) fn may_choose(&self, part: LockDomain, pages: Pages) -> bool {
        match part {
            LockDomain::All => true,
            LockDomain::Shard(_) => self
                .room_of(part)
                .is_some_and(|room| room.start <= pages.start && pages.end <= room.end),
            // A mapping in a shard may need its guard gap below.
            LockDomain::Central => {
                let end = pages.end.saturating_add(GUARD_GAP);
                self.part_of(Pages::new(pages.start, end)) == LockDomain::Central
            }
        }
    }
}

impl Shards {
    fn part_of(&self, pages: Pages) -> LockDomain {
        // With the pages on either side, which are looked at and may merge.
        let start = pages.start.saturating_sub(1);
        let end = pages.end.saturating_add(1);
        let mut shards = self.slots[..self.count()]
            .iter()
            .map(crate::lock::shard::Slot::pages);
        let met = shards.position(|shard| start < shard.end && shard.start < end);
        match met {
            None => LockDomain::Central,
            Some(number) => {
                let shard = self.slots[number].pages();
                match shard.start <= start && end <= shard.end {
                    true => LockDomain::Shard(number),
                    false => LockDomain::All,
                }
            }
        }
    }
}
