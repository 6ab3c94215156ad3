//! Contention statistics that decide when to create a shard.
//!
//! A writer that chooses an address counts whether another writer had the edit lock, or held a range
//! ([`GapIndex::is_crowded`]). At named addresses ([`Contention`]), the places of two contending writers are
//! compared. If an aligned gibibyte, or else 16 MiB, keeps having one of them and not the other, a shard
//! there separates them ([`crate::lock::shard::around`]).
//!
//! *Writes*: the line of the lock that was waited for; the lines of [`Contention`], by writers that contend.

use core::num::NonZeroU64;

use faultless_paging::Pages;
use faultless_sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::lock::Edit;
use crate::tree::{GapIndex, span};
use crate::tune::{SHARD_LEVEL, SMALL_SHARD_LEVEL};

/// Added by an operation that contends. One in 32 is much: writers seldom wait for each other, but the cache
/// lines that they share bounce every time, which takes longer than the work under the lock.
const MORE: u32 = 32;
/// Subtracted by an operation that does not.
const LESS: u32 = 1;
/// The sum at which more shards are due.
const ENOUGH: u32 = 256;

impl<M: crate::base::machine::Machine> Edit<'_, M> {
    /// See [`GapIndex::is_crowded`].
    pub(crate) fn is_crowded(&mut self, was_busy: bool) -> bool {
        self.holes().is_crowded(was_busy)
    }
}

impl GapIndex {
    /// Whether writers that choose addresses here have contended so often that more shards are due.
    /// `was_busy`: this one did.
    fn is_crowded(&mut self, was_busy: bool) -> bool {
        let now = match was_busy {
            true => self.crowding + MORE,
            false => self.crowding.saturating_sub(LESS),
        };
        let is_crowded = now >= ENOUGH;
        self.crowding = if is_crowded { 0 } else { now };
        is_crowded
    }
}

/// Operations that contend in one candidate, enough for a shard there.
const HITS: u32 = 64;
/// Operations that contend elsewhere meanwhile, enough for another candidate.
const MISSES: u32 = 256;

/// Pages that may become a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) base: u64,
    /// The level of its node.
    pub(crate) level: usize,
}

impl Candidate {
    /// Returns the candidate at `level` around `page`.
    pub(crate) fn around(page: u64, level: usize) -> Self {
        let base = page & !(span(level + 1) - 1);
        Self { base, level }
    }

    pub(crate) fn pages(self) -> Pages {
        Pages::new(self.base, self.base + span(self.level + 1))
    }

    /// Whether it has `pages`, and one more on either side.
    fn has(self, pages: Pages) -> bool {
        let own = self.pages();
        own.start < pages.start && pages.end < own.end
    }

    /// Returns the largest candidate that has `pages` and not `other`, and may be a shard.
    fn between(pages: Pages, other: u64, may_be: impl Fn(Self) -> bool) -> Option<Self> {
        let levels = (SMALL_SHARD_LEVEL..=SHARD_LEVEL).rev();
        let mut candidates = levels.map(|level| (Self::around(pages.start, level), level));
        let found = candidates
            .find(|&(at, level)| at.has(pages) && Self::around(other, level) != at && may_be(at));
        found.map(|(at, _)| at)
    }

    /// Packs it into one word: the low bits of a base are 0.
    fn pack(self) -> u64 {
        self.base | (self.level as u64 + 1)
    }

    fn unpack(word: u64) -> Option<Self> {
        let level = NonZeroU64::new(word % span(1))?.get() - 1;
        let base = word & !(span(1) - 1);
        Some(Self {
            base,
            level: level as usize,
        })
    }
}

/// Contention outside shards, at named addresses. A heuristic: updates lost in a race do not matter.
#[derive(Default)]
pub(crate) struct Contention {
    /// The page and the CPU of the last operation that contended.
    last: AtomicU64,
    /// The candidate for the next shard; 0: none.
    candidate: AtomicU64,
    hits: AtomicU32,
    misses: AtomicU32,
    /// How often a requested shard was not created, since the last that was.
    refused: AtomicU32,
}

/// Bits of a CPU's number.
const CPU: u32 = 16;

impl Contention {
    /// Records that an operation on this CPU contends at `pages`. Returns whether that happens there often,
    /// and a shard may be there.
    pub(crate) fn note(
        &self,
        pages: Pages,
        cpu: usize,
        may_be: impl Fn(Candidate) -> bool,
    ) -> bool {
        let cpu = cpu as u64 % (1 << CPU);
        let last = self.last.load(Ordering::Relaxed);
        self.last.store(pages.start << CPU | cpu, Ordering::Relaxed);
        if last % (1 << CPU) == cpu {
            // The other writer is unknown.
            return false;
        }
        let Some(new) = Candidate::between(pages, last >> CPU, may_be) else {
            return false;
        };
        match self.candidate() {
            Some(old) if old == new || old.level < new.level && old.has(pages) => {
                add(&self.hits) >= self.enough()
            }
            // Other writers are in the larger one, too.
            Some(old) if old.level > new.level && old.has(pages) => self.begin(new),
            Some(_) if add(&self.misses) < MISSES => false,
            _ => self.begin(new),
        }
    }

    fn begin(&self, candidate: Candidate) -> bool {
        self.candidate.store(candidate.pack(), Ordering::Relaxed);
        self.hits.store(1, Ordering::Relaxed);
        self.misses.store(0, Ordering::Relaxed);
        false
    }

    fn candidate(&self) -> Option<Candidate> {
        Candidate::unpack(self.candidate.load(Ordering::Relaxed))
    }

    /// Returns the candidate with frequent contention, and begins anew.
    pub(crate) fn take(&self) -> Option<Candidate> {
        let is_often = self.hits.load(Ordering::Relaxed) >= self.enough();
        let candidate = self.candidate().filter(|_| is_often);
        if candidate.is_some() {
            self.candidate.store(0, Ordering::Relaxed);
        }
        candidate
    }

    /// Records whether the shard was created. If not, it takes longer until one is requested again.
    pub(crate) fn note_made(&self, is_made: bool) {
        match is_made {
            true => self.refused.store(0, Ordering::Relaxed),
            false => {
                add(&self.refused);
            }
        }
    }

    fn enough(&self) -> u32 {
        HITS << self.refused.load(Ordering::Relaxed).min(4)
    }
}

fn add(count: &AtomicU32) -> u32 {
    let more = count.load(Ordering::Relaxed) + 1;
    count.store(more, Ordering::Relaxed);
    more
}
