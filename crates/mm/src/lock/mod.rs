//! Locks of one address space: the right to change the mappings of a range, which every writer acquires.
//!
//! * Writers of disjoint ranges never wait for each other ([`faultless_sync::RangeLock`]). A writer that
//!   needs more than its own range locks *everything*.
//! * [`crate::lock::shard`] chooses the lists in which a range is locked, and the edit locks that go with it.
//! * Under `classic` and `vma-lock` a writer also holds the mmap lock, as in Linux: there, writers are
//!   serialised.
//! * Only the holder of a range changes what is mapped in it. A mapping with a page in the range is not
//!   retired.
//! * Outside the range mappings may change at any moment. A writer looks at a neighbour, and merges with it,
//!   under the tree's edit lock.
//! * So may counts. A count is compared with its limit under the same edit that changes it.
//!
//! Two kinds of change need no range:
//!
//! * Under the edit lock alone, a growing stack fills empty slots, and a zap that ends clears its marks
//!   ([`crate::lock::pending`]).
//! * Under the edit lock and the lock of the range list, a brief writer changes an uncontended range
//!   ([`brief`]).
//!
//! Lock order: mmap lock (`classic`, `vma-lock`), ranges in the space's list, ranges in shards' lists, VMA
//! locks (`vma-lock`), the tree's edit lock, edit locks of shards, the lock of a range list, an object's
//! list, the lock of pending device unmaps ([`crate::lock::departing`]), allocators, the list of probes.
//!
//! * Under the edit lock a range is tried for, never waited for. Only spin locks that follow in this order
//!   are waited for there.
//! * No user memory is touched under any of these locks.
//! * The holder of a range waits for no other range.
//!
//! Writers do the same work under every policy. Faults of `classic` and `vma-lock` hold a lock, so their
//! validation fails only where a slot was cut or a stack grew ([`vma`]).
//!
//! *Models*: loom `lock/change.rs`, shuttle `lock/{pairs,writers,locks}.rs`; the range lock
//! itself: `crates/sync/tests/loom/ranges.rs`.

mod brief;
pub(crate) mod change;
pub(crate) mod chunks;
pub(crate) mod counting;
mod departing;
pub(crate) mod edit;
mod edit_locks;
pub(crate) mod gap;
mod guard;
pub(crate) mod limits;
pub(crate) mod mappings;
mod mmap_lock;
pub(crate) mod notify;
pub(crate) mod pending;
pub(crate) mod place;
pub(crate) mod probed;
mod shard;
pub(crate) mod vma;
mod zap;

pub(crate) use chunks::give_chunks;
pub(crate) use edit_locks::{DomainLocks, Edit};
pub(crate) use guard::{Held, RangeReadGuard, RangeWriteGuard};
pub(crate) use mappings::Mappings;
pub(crate) use mmap_lock::{MmapHold, MmapLock};
pub(crate) use zap::Zap;

use core::ops::Range;

use faultless_paging::{PAGE_SIZE, Pages};
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{LockRequest, Mutant, RangeGuard, mutant};

use faultless_trace::{Counter, Kind};

use crate::base::machine::Machine;
use crate::base::notes::Note;
use crate::lock::departing::UnmapGuard;
use crate::lock::shard::{LockDomain, ShardGuards, Shards};
use crate::tree::PAGES;
use crate::tune::{GUARD_GAP, RANGE_ROUNDS};

/// All pages, and the heap's end, which is locked like a page.
const EVERYTHING: Range<u64> = 0..PAGES + 1;
/// The heap's end.
const HEAP: Range<u64> = PAGES..PAGES + 1;

/// Rule R1: a full fence between the stores that change what faults validate and the walk that looks for
/// their claims. Partner: the barrier of a claim ([`faultless_paging::Entry::claim`]), which precedes the
/// validation.
pub(crate) fn validation_fence() {
    if !mutant(Mutant::ValidationWithoutFence) {
        fence(Ordering::SeqCst);
    }
}

pub(crate) fn span(pages: Pages) -> Range<u64> {
    pages.start..pages.end
}

impl<M: Machine> Mappings<M> {
    /// Waits until the caller alone may change mappings in `pages`.
    pub(crate) fn lock_range(&self, pages: Pages) -> RangeWriteGuard<'_, M> {
        self.lock_wish(&LockRequest::to_change(span(pages)), || self.part_of(pages))
    }

    /// The same, and waits until no zap runs there: for a new mapping.
    pub(crate) fn lock_range_to_fill(&self, pages: Pages) -> RangeWriteGuard<'_, M> {
        self.lock_wish(&LockRequest::to_fill(span(pages)), || self.part_of(pages))
    }

    /// Waits until the caller alone may change any mapping.
    pub(crate) fn lock_everything(&self) -> RangeWriteGuard<'_, M> {
        self.lock_every(&LockRequest::to_change(EVERYTHING))
    }

    /// The same, while replacements may run. The pages there belong to no mapping, and the mappings keep
    /// their marks ([`crate::lock::pending`]).
    pub(crate) fn lock_everything_beside_replacing(&self) -> RangeWriteGuard<'_, M> {
        self.lock_every(&LockRequest::to_change(EVERYTHING).beside_replacing())
    }

    /// Waits until the caller alone may change any mapping, and until no zap runs in `pages`: for a new
    /// mapping there.
    pub(crate) fn lock_everything_to_fill(&self, pages: Pages) -> RangeWriteGuard<'_, M> {
        self.lock_every(&LockRequest::to_change(EVERYTHING).filling(span(pages)))
    }

    /// Waits until the caller alone may change mappings in two ranges, and until no zap runs in `filled`.
    pub(crate) fn lock_both(&self, ranges: [Pages; 2], filled: Pages) -> RangeWriteGuard<'_, M> {
        let [one, other] = ranges.map(span);
        let wish = LockRequest::to_change(one).and(other).filling(span(filled));
        self.lock_wish(&wish, || self.part_of_both(ranges))
    }

    /// Locks everything in a child that no other operation knows yet, so that only the caller creates its
    /// mappings. No other operation holds a range of the child, so this needs no wait.
    pub(crate) fn keep_others_out(&self) -> Option<RangeGuard<'_, M>> {
        self.ranges
            .try_lock(&LockRequest::to_change(EVERYTHING), self.machine())
    }

    /// Waits until the caller alone may move the heap's end over `pages`; if it `fills` them, also until no
    /// zap runs there.
    pub(crate) fn lock_heap(&self, pages: Pages, fills: bool) -> RangeWriteGuard<'_, M> {
        // A page stays free behind the heap.
        let own = Pages::new(pages.start, pages.end + 1);
        let wish = match fills {
            true => LockRequest::to_fill(span(own)),
            false => LockRequest::to_change(span(own)),
        };
        // The heap's end itself is in the space's own list. A stack behind it may need its guard gap.
        let around = Pages::new(own.start, own.end + GUARD_GAP);
        self.lock_wish(&wish.and(HEAP), || match self.part_of(around) {
            LockDomain::Shard(_) => LockDomain::All,
            part => part,
        })
    }

    fn lock_every(&self, wish: &LockRequest) -> RangeWriteGuard<'_, M> {
        self.lock_wish(wish, || self.part_of_everything())
    }

    fn lock_wish(
        &self,
        wish: &LockRequest,
        part: impl Fn() -> LockDomain,
    ) -> RangeWriteGuard<'_, M> {
        if self.has_note(Note::CONTENDED) {
            self.spread_crowd();
        }
        let guard = self.lock_as_policy();
        // A hint, which models need not explore.
        let is_edited = !cfg!(loom) && self.tree.is_edited();
        let held = self.await_range(wish, part);
        if held.part == LockDomain::Central && (is_edited || held.range.has_company()) {
            let range = wish.range();
            self.note_crowd(Pages::new(range.start, range.end));
        }
        RangeWriteGuard {
            space: self,
            guard,
            held,
            had: self.memory.trace_start(),
            departure: UnmapGuard::new(self.memory),
        }
    }

    #[inline]
    fn await_range(&self, wish: &LockRequest, part: impl Fn() -> LockDomain) -> Held<'_, M> {
        let start = self.memory.trace_start();
        let mut rounds = 0;
        loop {
            let shards = self.shard_count();
            let part = part();
            let list = self.list_of(part);
            self.make_room(list);
            let range = list.lock(wish, self.machine());
            // From here on the number of shards is stable: creating one requires every range.
            if self.shard_count() != shards && !mutant(Mutant::PartChosenOnce) {
                continue;
            }
            if part == LockDomain::All
                && rounds < RANGE_ROUNDS
                && self.awaits_elsewhere(wish, &range)
            {
                // Keep no slot of the first list during this wait: other requests would wait for it.
                drop(range);
                rounds += 1;
                self.await_zaps_in_shards(wish);
                continue;
            }
            return self.await_elsewhere(part, range, wish, start);
        }
    }

    /// Whether a zap or a replacement in a shard is in the way of the request.
    #[cold]
    fn awaits_elsewhere(&self, wish: &LockRequest, _range: &RangeGuard<'_, M>) -> bool {
        let mut shards = self.shards().into_iter().flat_map(Shards::all);
        shards.any(|shard| shard.ranges.is_in_the_way(wish, self.machine()))
    }

    fn await_zaps_in_shards(&self, wish: &LockRequest) {
        let shards = self.shards().into_iter().flat_map(Shards::all);
        shards.for_each(|shard| shard.ranges.await_zaps(wish, self.machine()));
    }

    /// With the range held in the first list, acquires it in the lists of shards.
    #[inline]
    fn await_elsewhere<'a>(
        &'a self,
        part: LockDomain,
        range: RangeGuard<'a, M>,
        wish: &LockRequest,
        start: u64,
    ) -> Held<'a, M> {
        let (elsewhere, meets_zaps, has_waited) = match part {
            LockDomain::All if !mutant(Mutant::OnePartForAll) => ShardGuards::lock(self, wish),
            _ => (ShardGuards::none(self), false, false),
        };
        if has_waited || range.has_waited() {
            self.note_wait(wish, start);
        }
        Held {
            part,
            meets_zaps: meets_zaps || range.meets_zaps(),
            range,
            elsewhere,
        }
    }

    #[cold]
    fn note_wait(&self, wish: &LockRequest, start: u64) {
        self.memory.count(Counter::RangeWaits);
        let range = wish.range();
        let (address, length) = (
            range.start * PAGE_SIZE,
            (range.end - range.start) * PAGE_SIZE,
        );
        self.memory
            .trace_end(Kind::RangeWait, start, address, length, 0);
    }

    fn lock_as_policy(&self) -> Option<MmapLock<'_, M>> {
        let is_held = self.policy().holds_mmap_lock();
        is_held.then(|| MmapLock {
            space: self,
            guard: Some(self.lock.write(self.machine())),
        })
    }

    /// Keeps mappings in `pages` as they are.
    pub(crate) fn hold_range(&self, pages: Pages) -> RangeReadGuard<'_, M> {
        self.hold_wish(&LockRequest::to_keep(span(pages)), || self.part_of(pages))
    }

    /// Keeps all mappings as they are, while replacements may run.
    pub(crate) fn hold_everything(&self) -> RangeReadGuard<'_, M> {
        let wish = LockRequest::to_keep(EVERYTHING).beside_replacing();
        self.hold_wish(&wish, || self.part_of_everything())
    }

    fn hold_wish(
        &self,
        wish: &LockRequest,
        part: impl Fn() -> LockDomain,
    ) -> RangeReadGuard<'_, M> {
        let classic = self.policy().holds_mmap_lock();
        RangeReadGuard {
            _guard: classic.then(|| self.lock.read(self.machine())),
            _range: Some(self.await_range(wish, part)),
        }
    }

    /// The same for one page, for a fault. If the writers of the policy hold the mmap lock, that lock is
    /// enough.
    pub(crate) fn hold_page(&self, page: u64) -> RangeReadGuard<'_, M> {
        if !self.policy().holds_mmap_lock() {
            return self.hold_range(Pages::new(page, page + 1));
        }
        RangeReadGuard {
            _guard: Some(self.lock.read(self.machine())),
            _range: None,
        }
    }

    /// Waits until all zaps have ended that are in progress in `pages` at the time of the call.
    pub(crate) fn await_zaps(&self, pages: Pages) {
        let wish = LockRequest::to_fill(span(pages)).beside_replacing();
        self.await_in_the_way(pages, &wish);
    }

    /// The same for zaps and replacements.
    pub(crate) fn await_zaps_and_replacing(&self, pages: Pages) {
        self.await_in_the_way(pages, &LockRequest::to_fill(span(pages)));
    }

    fn await_in_the_way(&self, pages: Pages, wish: &LockRequest) {
        let part = self.part_of(pages);
        self.list_of(part).await_zaps(wish, self.machine());
        if part == LockDomain::All {
            self.await_zaps_in_shards(wish);
        }
    }

    /// Whether a zap is running or announced anywhere.
    pub(crate) fn is_zapping(&self) -> bool {
        let shards = self.shards().into_iter().flat_map(Shards::all);
        let mut lists = shards.map(|shard| &*shard.ranges).chain([&*self.ranges]);
        lists.any(|list| list.is_zapping(self.machine()))
    }
}
