//! Moves under way, and how a fork goes on beside them.
//!
//! A move (`mremap`) shows in one step that its pages are at their new place, *replacing* what was
//! there, and that nothing is at the old one. Then it has no range any more, and carries them, which takes time
//! by pages ([`crate::table::move_ptes`]). Nobody else has to be let in between but a fork, whose child is to have
//! all of them at the new place, wherever they are.
//!
//! So each move goes in *turns*, of the pages of one table, and lets forks in between two of them: a
//! fork waits for a turn, and then no move goes on until it is done. Before it gives up its ranges, and another fork
//! gets them, each move that waits has its turn. Moves do not wait for each
//! other. What the fork has to know is in the move's record: what was carried, and what is
//! still to be flushed. It
//!
//! 1. stops all stores by the old addresses: flushes what was carried, and write-protects what was not.
//!    That is before it freezes tables ([`crate::table::freeze`]), so that of two stores, of which the first went by
//!    an old address, the child has the first if it has the second;
//! 2. copies what was carried with the tables that it is in, which are frozen with all others;
//! 3. copies the rest from where it was to where it goes.
//!
//! A record enters the list while the move has its range, and leaves it in a turn: whoever has
//! every range and lets no move go on finds the list as it stays.
//!
//! Whoever goes through pages without having them, in order (`MADV_DONTNEED`), may miss what moves from
//! before him to behind him. He asks whether any move was shown meanwhile ([`Moves::shown`]).
//!
//! Written lines: the lock of turns, twice for each; that of the list, and the counts, twice for each move.

use faultless_paging::{Gather, Pages, Protection};
use faultless_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use faultless_sync::{
    Backoff, Mutant, ReadGuard, RwLock, SpinLock, WriteGuard, check_park, mutant,
};

use crate::base::list::{Hook, List};
use crate::base::machine::Machine;
use crate::table::Tables;
use crate::tree::mapping::Attributes;
use crate::tune::LAST_MOVES;

/// The moves of an address space.
pub(crate) struct Moves {
    /// Had for reading by a move that goes on, for writing by a fork.
    turn: RwLock,
    /// Moves that wait for a fork.
    waiting: AtomicU32,
    list: SpinLock<List>,
    /// How many began to be shown, above [`SHOWN_BITS`]; below, how many of them are not shown yet.
    shown: AtomicU64,
    /// Source and target of the last that began to be shown, by their numbers.
    last: SpinLock<[(Pages, Pages); LAST_MOVES]>,
}

/// Turns for which moves that are being shown are waited for.
const PATIENCE: u32 = 1024;

/// Moves are shown under an edit, of which there are fewer at once.
const SHOWN_BITS: u32 = 16;

/// Which moves had been shown at some moment.
#[derive(Clone, Copy)]
pub(crate) struct MovesShown(u64);

impl Moves {
    /// None.
    pub(crate) fn new() -> Self {
        Self {
            turn: RwLock::new(),
            waiting: AtomicU32::new(0),
            list: SpinLock::new(List::new()),
            shown: AtomicU64::new(0),
            last: SpinLock::new([(Pages::new(0, 0), Pages::new(0, 0)); LAST_MOVES]),
        }
    }

    /// A move is about to be shown, under an edit.
    pub(crate) fn begin_show<M: Machine>(&self, source: Pages, target: Pages, machine: &M) {
        let mut last = self.last.lock(machine);
        let begun = self.shown.load(Ordering::Relaxed) >> SHOWN_BITS;
        last[begun as usize % LAST_MOVES] = (source, target);
        // Partner: the fence in `is_unchanged`. Whoever has seen a slot that is written from now on, or an entry
        // without the page that has moved, sees this behind that fence: a release follows, of the slot or the
        // writer's fence.
        self.shown
            .fetch_add((1 << SHOWN_BITS) + 1, Ordering::Relaxed);
    }

    /// It is shown, under the same edit.
    pub(crate) fn end_show(&self) {
        // Release, with the acquire in `shown`: who sees this sees the slots.
        self.shown.fetch_sub(1, Ordering::Release);
    }

    /// Which have been shown: whoever goes through pages now sees what those moves do. One that is being shown is
    /// waited for, as who has an edit is; not without end, for there may always be another.
    pub(crate) fn shown<M: Machine>(&self, machine: &M) -> MovesShown {
        let mut backoff = Backoff::new();
        loop {
            let shown = self.shown.load(Ordering::Acquire);
            if shown.is_multiple_of(1 << SHOWN_BITS) || backoff.turns() >= PATIENCE {
                return MovesShown(shown);
            }
            backoff.turn(machine);
        }
    }

    /// Whether none was being shown then, or has begun to be since that has to do with `pages`, as far as
    /// the caller can have seen anything of it.
    pub(crate) fn is_unchanged<M: Machine>(
        &self,
        then: MovesShown,
        pages: Pages,
        machine: &M,
    ) -> bool {
        // Partner: what follows `begin_show`.
        fence(Ordering::SeqCst);
        let begun = then.0 >> SHOWN_BITS;
        if !then.0.is_multiple_of(1 << SHOWN_BITS) {
            return false;
        }
        if self.shown.load(Ordering::Relaxed) >> SHOWN_BITS == begun {
            return true;
        }
        let last = self.last.lock(machine);
        let now = self.shown.load(Ordering::Relaxed) >> SHOWN_BITS;
        let is_apart = |(source, target): (Pages, Pages)| {
            pages.and(source).is_empty() && pages.and(target).is_empty()
        };
        now - begun <= LAST_MOVES as u64
            && (begun..now).all(|number| is_apart(last[number as usize % LAST_MOVES]))
    }
}

/// A move's record.
#[repr(C)]
pub(crate) struct Move {
    hook: Hook,
    /// Where the pages were. Of both places the same length.
    pub(crate) source: Pages,
    /// Where they go.
    pub(crate) target: Pages,
    /// What the mapping there allows.
    pub(crate) protection: Protection,
    /// Whether it is shared: then a child has nothing of its pages.
    pub(crate) shared: bool,
    progress: SpinLock<Progress>,
}

/// How far a move has come. Written in turns.
#[derive(Clone)]
struct Progress {
    /// The first page of the source that may not have been carried.
    next: u64,
    /// Of what was carried: what CPUs may still hold by the old addresses.
    unflushed: Gather,
}

impl Move {
    /// A move that begins.
    pub(crate) fn new(source: Pages, target: Pages, attributes: &Attributes) -> Self {
        Self {
            hook: Hook::new(),
            source,
            target: Pages::new(target.start, target.start + source.len()),
            protection: attributes.protection,
            shared: attributes.flags.shared,
            progress: SpinLock::new(Progress {
                next: source.start,
                unflushed: Gather::new(),
            }),
        }
    }

    /// Where a page of the source goes.
    pub(crate) fn goes_to(&self, page: u64) -> u64 {
        page - self.source.start + self.target.start
    }

    /// Where a page of the target comes from.
    pub(crate) fn comes_from(&self, page: u64) -> u64 {
        page - self.target.start + self.source.start
    }

    /// In a turn: all before `next` was carried, and this is not flushed yet.
    pub(crate) fn note<M: Machine>(&self, next: u64, unflushed: &Gather, machine: &M) {
        *self.progress.lock(machine) = Progress {
            next,
            unflushed: unflushed.clone(),
        };
    }

    /// For a fork: what CPUs may still hold of what was carried, by the old addresses.
    pub(crate) fn unflushed<M: Machine>(&self, machine: &M) -> Gather {
        self.progress.lock(machine).unflushed.clone()
    }

    /// For a fork: the pages of the target that were carried there.
    pub(crate) fn carried<M: Machine>(&self, machine: &M) -> Pages {
        let next = self.progress.lock(machine).next;
        Pages::new(self.target.start, self.goes_to(next))
    }

    /// For a fork: the pages of the source that were not carried yet.
    pub(crate) fn left<M: Machine>(&self, machine: &M) -> Pages {
        Pages::new(self.progress.lock(machine).next, self.source.end)
    }
}

/// That a move is in the list.
pub(crate) struct Listed<'a, M: Machine> {
    tables: &'a Tables<M>,
    of: &'a Move,
}

impl<M: Machine> Drop for Listed<'_, M> {
    fn drop(&mut self) {
        let mut list = self.tables.forks.moves.list.lock(self.tables.machine());
        // SAFETY: in the list since this was made.
        unsafe { list.remove(&self.of.hook) };
    }
}

/// That no move goes on.
pub(crate) struct Paused<'a, M: Machine> {
    tables: &'a Tables<M>,
    turn: Option<WriteGuard<'a, M>>,
}

impl<M: Machine> Drop for Paused<'_, M> {
    fn drop(&mut self) {
        self.turn.take();
        // Nobody bars them now. They may be parked on this very CPU.
        let (waiting, machine) = (&self.tables.forks.moves.waiting, self.tables.machine());
        loop {
            match waiting.load(Ordering::Relaxed) {
                0 => return,
                some => {
                    check_park();
                    machine.park(waiting, some);
                }
            }
        }
    }
}

impl<M: Machine> Paused<'_, M> {
    /// Calls `visit` with every move until that fails.
    pub(crate) fn try_for_each<E>(
        &self,
        mut visit: impl FnMut(&Move) -> Result<(), E>,
    ) -> Result<(), E> {
        let list = || self.tables.forks.moves.list.lock(self.tables.machine());
        // SAFETY: nothing enters the list or leaves it meanwhile, and what is in it is where it was.
        let mut next = unsafe { list().first() };
        while let Some(hook) = next {
            let record =
                core::ptr::with_exposed_provenance::<Move>(core::ptr::from_ref(hook).addr());
            // SAFETY: it is the first field, and was exposed with the whole.
            visit(unsafe { &*record })?;
            // SAFETY: as above.
            next = unsafe { list().next(hook) };
        }
        Ok(())
    }

    /// The same for what cannot fail.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Move)) {
        let visited: Result<(), core::convert::Infallible> = self.try_for_each(|record| {
            visit(record);
            Ok(())
        });
        let Ok(()) = visited;
    }
}

impl<M: Machine> Tables<M> {
    /// Enters a move into the list. With its range.
    pub(crate) fn list_move<'a>(&'a self, record: &'a Move) -> Listed<'a, M> {
        let _ = core::ptr::from_ref(record).expose_provenance();
        let mut list = self.forks.moves.list.lock(self.machine());
        // SAFETY: it is taken out before it goes.
        unsafe { list.push(&record.hook) };
        drop(list);
        Listed {
            tables: self,
            of: record,
        }
    }

    /// Waits for a move's turn to go on. With no range.
    pub(crate) fn move_turn(&self) -> Option<ReadGuard<'_, M>> {
        if mutant(Mutant::MovedBesideFork) {
            return None;
        }
        let moves = &self.forks.moves;
        let turn = moves.turn.try_read(self.machine());
        turn.or_else(|| {
            moves.waiting.fetch_add(1, Ordering::Relaxed);
            let turn = moves.turn.read(self.machine());
            moves.waiting.fetch_sub(1, Ordering::Relaxed);
            self.machine().wake(&moves.waiting, u32::MAX);
            Some(turn)
        })
    }

    /// Lets no move go on. With every range.
    pub(crate) fn pause_moves(&self) -> Paused<'_, M> {
        Paused {
            tables: self,
            turn: Some(self.forks.moves.turn.write(self.machine())),
        }
    }
}
