//! Who gets into whose way.
//!
//! Where room is chosen it is counted whether the edit lock was had by another, or another had a range
//! ([`GapIndex::is_crowded`]). Where a place was named ([`Contention`]) it is also looked where the two were: if
//! one of a gibibyte, or else of 16 MiB, has one of them and not the other, and goes on to, then an arena around it keeps
//! them apart ([`crate::lock::shard::around`]).
//!
//! Written lines: those of the lock that was waited for; and the crowd's own, by who was in the way.

use core::num::NonZeroU64;

use faultless_paging::Pages;
use faultless_sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::lock::Edit;
use crate::tree::{GapIndex, span};
use crate::tune::{SHARD_LEVEL, SMALL_SHARD_LEVEL};

/// What it counts that somebody was in the way. One in 32 is much: while they seldom wait for each other, the
/// lines that they both write go to and fro every time, and take longer than all that is done under the lock.
const MORE: u32 = 32;
/// What it takes back that nobody was.
const LESS: u32 = 1;
/// How much is enough.
const ENOUGH: u32 = 256;

impl<M: crate::base::machine::Machine> Edit<'_, M> {
    /// See [`GapIndex::is_crowded`].
    pub(crate) fn is_crowded(&mut self, was_busy: bool) -> bool {
        self.holes().is_crowded(was_busy)
    }
}

impl GapIndex {
    /// Whether those who choose room here have got into each other's way so often that it is time for
    /// more arenas; `was_busy`: this one did.
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

/// Of those that come to one candidate, so many are enough.
const HITS: u32 = 64;
/// Of those that come elsewhere meanwhile, so many are enough for another.
const MISSES: u32 = 256;

/// Pages that may become an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) base: u64,
    /// Of its node.
    pub(crate) level: usize,
}

impl Candidate {
    /// Those around `page`.
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

    /// The largest that has `pages`, and `other` not, and may be an arena.
    fn between(pages: Pages, other: u64, may_be: impl Fn(Self) -> bool) -> Option<Self> {
        let levels = (SMALL_SHARD_LEVEL..=SHARD_LEVEL).rev();
        let mut candidates = levels.map(|level| (Self::around(pages.start, level), level));
        let found = candidates
            .find(|&(at, level)| at.has(pages) && Self::around(other, level) != at && may_be(at));
        found.map(|(at, _)| at)
    }

    /// As a word; bases are multiples of more.
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

/// Who was in another's way outside of arenas, at a place that was named. Guesses: what is lost between
/// two at once does not matter.
#[derive(Default)]
pub(crate) struct Contention {
    /// Where the last one was, and on which CPU.
    last: AtomicU64,
    /// Where the next arena may be; 0: nowhere.
    candidate: AtomicU64,
    hits: AtomicU32,
    misses: AtomicU32,
    /// How often there was none where one was asked for.
    refused: AtomicU32,
}

/// Bits of a CPU's number.
const CPU: u32 = 16;

impl Contention {
    /// Somebody on this CPU was in the way when he came to `pages`. Whether that happens there often, and
    /// there may be an arena.
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
            // By whom is not known.
            return false;
        }
        let Some(new) = Candidate::between(pages, last >> CPU, may_be) else {
            return false;
        };
        match self.candidate() {
            Some(old) if old == new || old.level < new.level && old.has(pages) => {
                add(&self.hits) >= self.enough()
            }
            // Others are in the larger one, too.
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

    /// Where it happens often; what is noted begins anew.
    pub(crate) fn take(&self) -> Option<Candidate> {
        let is_often = self.hits.load(Ordering::Relaxed) >= self.enough();
        let candidate = self.candidate().filter(|_| is_often);
        if candidate.is_some() {
            self.candidate.store(0, Ordering::Relaxed);
        }
        candidate
    }

    /// Whether there is one now where it happens often. If not, it takes longer until one is asked for again.
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
