//! What every writer goes through: the right to change the mappings of a range.
//!
//! Writers of ranges that do not meet never wait for each other ([`faultless_sync::Ranges`]).
//! Who needs more than its own range takes *everything*. Under `classic` and `vma-lock` a writer
//! also has the mmap lock, as in Linux, so that there they take turns.
//!
//! A range gives the right to change what is mapped in it, and nobody else does; mappings that
//! have a page in it are not retired. Beside it everything may change at any moment: a neighbour
//! is looked at, and merged with, under the tree's edit lock. So is everything that is counted:
//! what is compared with a limit is changed under the same edit.
//!
//! Without a range, under the edit lock alone: a stack that grows fills empty slots; who is done
//! with zapping clears his notes ([`crate::zapping`]).
//!
//! Lock order: mmap lock (`classic`, `vma-lock`), range lock, VMA locks (`vma-lock`), the tree's
//! edit lock, the lock of the list of ranges, allocators. A range is tried for under the edit
//! lock, never waited for. Nothing is waited for under the edit lock, and no user memory is
//! touched under any of them. Who has a range waits for no other.
//!
//! Writers do the same under every policy; that faults of `classic` and `vma-lock` hold something
//! makes their validation always succeed.

use core::ops::Range;

use faultless_frames::NoMemory;
use faultless_paging::{PAGE_SIZE, Pages};
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{Flaw, RangeGuard, ReadGuard, Wish, WriteGuard, flawed};

use faultless_trace::{Counter, Kind};

use crate::errno::Errno;
use crate::machine::Machine;
use crate::ops::room;
use crate::policy::Policy;
use crate::space::{AddressSpace, Note};
use crate::tree::{Edit, PAGES};
use crate::zapping::{Replacing, Zapping};

/// How often room is chosen that somebody else has just then, before everything is kept from
/// changing.
pub(crate) const ROUNDS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 4 };

/// All pages, and what is not a page but has a lock of its own.
const EVERYTHING: Range<u64> = 0..PAGES + 1;
/// The heap's end.
const HEAP: Range<u64> = PAGES..PAGES + 1;

/// The right to change the mappings of a range.
pub(crate) struct RangeLock<'a, M: Machine> {
    space: &'a AddressSpace<M>,
    /// The mmap lock goes first.
    guard: Option<MmapLock<'a, M>>,
    range: RangeGuard<'a, M>,
}

/// What is held of the mmap lock during a zap.
pub(crate) enum MmapHold<'a, M: Machine> {
    Read { _guard: ReadGuard<'a, M> },
    Write { _lock: MmapLock<'a, M> },
}

/// The mmap lock, for writing.
pub(crate) struct MmapLock<'a, M: Machine> {
    space: &'a AddressSpace<M>,
    guard: Option<WriteGuard<'a, M>>,
}

/// That nobody changes the mappings of a range.
pub(crate) struct RangeHold<'a, M: Machine> {
    _guard: Option<ReadGuard<'a, M>>,
    _range: Option<RangeGuard<'a, M>>,
}

/// Room for a mapping, under the edit under which it was found.
pub(crate) type Room<'a, M> = (RangeLock<'a, M>, Edit<'a, M>, Pages);

/// Rule R1: after the stores that change what faults validate, before the
/// walk that looks for their claims. Partner: the barrier of a claim
/// ([`faultless_paging::Entry::claim`]), which precedes the validation.
pub(crate) fn settle() {
    if !flawed(Flaw::SettleWithoutFence) {
        fence(Ordering::SeqCst);
    }
}

fn span(pages: Pages) -> Range<u64> {
    pages.start..pages.end
}

impl<M: Machine> AddressSpace<M> {
    /// Waits until the caller alone may change mappings in `pages`.
    pub(crate) fn lock_range(&self, pages: Pages) -> RangeLock<'_, M> {
        self.lock_wish(&Wish::to_change(span(pages)))
    }

    /// The same, and until nothing is being zapped there: something new comes there.
    pub(crate) fn lock_range_to_fill(&self, pages: Pages) -> RangeLock<'_, M> {
        self.lock_wish(&Wish::to_fill(span(pages)))
    }

    /// Waits until the caller alone may change any mapping.
    pub(crate) fn lock_everything(&self) -> RangeLock<'_, M> {
        self.lock_wish(&Wish::to_change(EVERYTHING))
    }

    /// The same, but for what takes the place of something else: its pages are nobody's, and what is
    /// mapped there stays as it is marked ([`crate::zapping`]).
    pub(crate) fn lock_everything_beside_replacing(&self) -> RangeLock<'_, M> {
        self.lock_wish(&Wish::to_change(EVERYTHING).beside_replacing())
    }

    /// Waits until the caller alone may change mappings in two ranges, and nothing is being zapped in
    /// `filled`.
    pub(crate) fn lock_both(&self, ranges: [Pages; 2], filled: Pages) -> RangeLock<'_, M> {
        let [one, other] = ranges.map(span);
        let wish = Wish::to_change(one).and(other).filling(span(filled));
        self.lock_wish(&wish)
    }

    /// The same, and until nothing is being zapped in `pages`: something new comes there.
    pub(crate) fn lock_everything_to_fill(&self, pages: Pages) -> RangeLock<'_, M> {
        self.lock_wish(&Wish::to_change(EVERYTHING).filling(span(pages)))
    }

    /// Waits until the caller alone may move the heap's end, over `pages`; and until nothing is being
    /// zapped there, if it `fills` them.
    pub(crate) fn lock_heap(&self, pages: Pages, fills: bool) -> RangeLock<'_, M> {
        let wish = match fills {
            true => Wish::to_fill(span(pages)),
            false => Wish::to_change(span(pages)),
        };
        self.lock_wish(&wish.and(HEAP))
    }

    fn lock_wish(&self, wish: &Wish) -> RangeLock<'_, M> {
        let guard = self.lock_as_policy();
        RangeLock {
            space: self,
            guard,
            range: self.await_range(wish),
        }
    }

    fn await_range(&self, wish: &Wish) -> RangeGuard<'_, M> {
        let start = self.trace_start();
        let (guard, has_waited) = self.ranges.lock(wish, self.machine());
        if has_waited {
            self.memory.count(Counter::RangeWaits);
            let range = wish.range();
            let (address, length) = (
                range.start * PAGE_SIZE,
                (range.end - range.start) * PAGE_SIZE,
            );
            self.trace_end(Kind::RangeWait, start, address, length, 0);
        }
        guard
    }

    fn lock_as_policy(&self) -> Option<MmapLock<'_, M>> {
        let is_held = self.policy().holds_mmap_lock();
        is_held.then(|| MmapLock {
            space: self,
            guard: Some(self.lock.write(self.machine())),
        })
    }

    /// Chooses room for a mapping, and waits until the caller alone may change what is there.
    ///
    /// # Errors
    /// `ENOMEM`: there is none, and none will come of what is being zapped.
    pub(crate) fn lock_room(&self, wish: &room::Wish) -> Result<Room<'_, M>, Errno> {
        let machine = self.machine();
        let guard = self.lock_as_policy();
        let mut had: Option<(RangeGuard<'_, M>, Range<u64>)> = None;
        let mut rounds = 0;
        let (edit, own, pages) = loop {
            let mut edit = self.tree.edit(self.memory);
            let found = self.find_room(&mut edit, wish);
            let wanted = match found {
                Ok(pages) => {
                    let is_had =
                        |had: &Range<u64>| had.start <= pages.start && pages.end <= had.end;
                    match had.take() {
                        Some((own, range)) if is_had(&range) => break (edit, own, pages),
                        Some(other) => {
                            drop(edit);
                            drop(other);
                            continue;
                        }
                        None => {}
                    }
                    let wish = Wish::to_change(span(pages));
                    if let Some(own) = self.ranges.try_lock(&wish, machine) {
                        break (edit, own, pages);
                    }
                    rounds += 1;
                    match rounds > ROUNDS {
                        true => Wish::to_change(EVERYTHING),
                        false => wish,
                    }
                }
                // With everything to be filled nothing is being zapped.
                Err(error) if !self.ranges.is_zapping(machine) => return Err(error),
                Err(_) => Wish::to_fill(EVERYTHING),
            };
            drop(edit);
            drop(had.take());
            let range = wanted.range();
            had = Some((self.await_range(&wanted), range));
        };
        let lock = RangeLock {
            space: self,
            guard,
            range: own,
        };
        Ok((lock, edit, pages))
    }

    /// Keeps mappings in `pages` as they are.
    pub(crate) fn hold_range(&self, pages: Pages) -> RangeHold<'_, M> {
        self.hold_wish(&Wish::to_keep(span(pages)))
    }

    /// Keeps all mappings as they are, but for what takes the place of something else.
    pub(crate) fn hold_everything(&self) -> RangeHold<'_, M> {
        self.hold_wish(&Wish::to_keep(EVERYTHING).beside_replacing())
    }

    fn hold_wish(&self, wish: &Wish) -> RangeHold<'_, M> {
        let classic = self.policy().holds_mmap_lock();
        RangeHold {
            _guard: classic.then(|| self.lock.read(self.machine())),
            _range: Some(self.await_range(wish)),
        }
    }

    /// The same of a page for a fault: under a policy whose writers have the mmap lock that is enough.
    pub(crate) fn hold_page(&self, page: u64) -> RangeHold<'_, M> {
        if !self.policy().holds_mmap_lock() {
            return self.hold_range(Pages::new(page, page + 1));
        }
        RangeHold {
            _guard: Some(self.lock.read(self.machine())),
            _range: None,
        }
    }

    /// Waits until nothing is being zapped any more of what is now in `pages`.
    pub(crate) fn await_zaps(&self, pages: Pages) {
        self.ranges
            .await_zaps(&Wish::to_fill(span(pages)), self.machine());
    }
}

impl<'a, M: Machine> RangeLock<'a, M> {
    /// Lets no fault hold a mapping of `pages` (policy `vma-lock`); to be
    /// called before they change. Ends with the hold of the mmap lock.
    pub(crate) fn lock_out_readers(&self, pages: Pages) {
        if self.guard.is_none() || self.space.policy() != Policy::VmaLock {
            return;
        }
        let hold = self.space.write_hold.load(Ordering::Relaxed);
        let mut at = pages.start;
        while let Some(run) = self.space.run_in(at, pages.end) {
            // SAFETY: the range keeps mappings from being retired.
            if let Some(mapping) = unsafe { run.word.mapping() } {
                mapping
                    .vma_lock()
                    .lock_out_readers(hold, self.space.machine());
            }
            at = run.pages.end;
        }
    }

    /// Makes the ends of `pages` fall between slots, and begins an edit.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing has changed.
    pub(crate) fn cut(&self, pages: Pages) -> Result<Edit<'a, M>, NoMemory> {
        let edit = self.edit();
        edit.cut(pages)?;
        Ok(edit)
    }

    pub(crate) fn edit(&self) -> Edit<'a, M> {
        self.space.tree.edit(self.space.memory)
    }

    /// See [`settle`].
    pub(crate) fn settle(&self) {
        settle();
    }

    /// Whether no other writer is at work.
    pub(crate) fn has_everything(&self) -> bool {
        self.range.has(&EVERYTHING)
    }

    /// Takes a second range, if that can be had at once; whether it is had. For who is editing.
    pub(crate) fn try_extend(&self, pages: Pages) -> bool {
        self.range.try_extend(&span(pages))
    }

    /// The number by which this writer's notes are known.
    pub(crate) fn place(&self) -> usize {
        self.range.place()
    }

    /// Says, under the edit under which it can be seen, that something will be zapped.
    pub(crate) fn announce_zap(&self) {
        self.range.announce_zap();
    }

    /// Whether others zap in the range.
    pub(crate) fn meets_zaps(&self) -> bool {
        self.range.meets_zaps()
    }

    /// Gives up everything but that nothing new comes to `pages`, which say that this writer zaps
    /// there, as far as anything was mapped. Of the mmap lock the right to read is kept.
    pub(crate) fn begin_zap(self, pages: Pages) -> Zapping<'a, M> {
        let meets_zaps = self.meets_zaps();
        self.begin_zap_beside(pages, meets_zaps)
    }

    /// The same where only what was mapped says so: a stack may grow into what was not.
    pub(crate) fn begin_zap_of_mapped(self, pages: Pages) -> Zapping<'a, M> {
        self.begin_zap_beside(pages, true)
    }

    fn begin_zap_beside(self, pages: Pages, is_beside_others: bool) -> Zapping<'a, M> {
        let space = self.space;
        let Self { guard, range, .. } = self;
        let guard = guard.and_then(MmapLock::for_zap);
        let zap = range.begin_zap(span(pages));
        Zapping::new(space, pages, is_beside_others, zap, guard)
    }

    /// Gives up everything but `pages`, where what is mapped takes the place of what was, and says
    /// so. Only who asks for it passes. The mmap lock is kept, as in Linux.
    pub(crate) fn begin_replace(self, pages: Pages) -> Replacing<'a, M> {
        let space = self.space;
        let Self { guard, range, .. } = self;
        let guard = guard.map(|lock| MmapHold::Write { _lock: lock });
        let zap = range.begin_replace(span(pages));
        Replacing::new(space, pages, zap, guard)
    }
}

impl<'a, M: Machine> MmapLock<'a, M> {
    /// Ends the write hold, and keeps the right to read; or keeps all, for comparisons.
    fn for_zap(mut self) -> Option<MmapHold<'a, M>> {
        if self.space.has_note(Note::HELD_ZAPS) {
            return Some(MmapHold::Write { _lock: self });
        }
        self.end_hold();
        let guard = self.guard.take().map(WriteGuard::downgrade);
        guard.map(|guard| MmapHold::Read { _guard: guard })
    }

    fn end_hold(&self) {
        if self.guard.is_some() {
            // Release: a fault that finds its mapping unlocked sees what was changed
            // (acquire in `Mapping::try_read`).
            let hold = self.space.write_hold.load(Ordering::Relaxed);
            self.space
                .write_hold
                .store(hold.wrapping_add(1), Ordering::Release);
        }
    }
}

impl<M: Machine> Drop for MmapLock<'_, M> {
    fn drop(&mut self) {
        self.end_hold();
    }
}
