//! Reclaim as memory becomes short: in the background, and by what needs memory itself.
//!
//! * The source of frames says how many are missing ([`FrameSource::missing`]). A thread of the port calls
//!   [`Memory::reclaim_in_background`] when the source wakes it, and frees so many (Linux: `kswapd`).
//! * A fault that finds no frame frees a batch itself, with nothing held, and tries again (*direct reclaim*). It fails
//!   only when several rounds of the sweep have freed less than half of a batch, on all CPUs together.
//! * Pages of files and of address spaces are swept in turn. Without a free slot only files are.
//!
//! *Writes*: what the sweep and page-out write; this CPU's counters.

use faultless_frames::{FrameSource, Reserve};
use faultless_paging::PAGE_SIZE;
use faultless_sync::cond_resched;
use faultless_trace::{Counter, Kind};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::reclaim::object::sweep_objects;
use crate::reclaim::page_out::{Batch, write};
use crate::reclaim::sweep::{Swept, Taken, sweep};
use crate::rmap::claims::Places;
use crate::tune::{RECLAIMED_LEAST, SWEEP_ROUNDS};

/// What reclaims.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Background,
    Direct,
}

impl By {
    /// The counters of pages seen, and of pages freed.
    fn counters(self) -> (Counter, Counter) {
        match self {
            By::Background => (Counter::ScanBackground, Counter::StealBackground),
            By::Direct => (Counter::ScanDirect, Counter::StealDirect),
        }
    }
}

/// How far the sweeps have gone with little result, by ends that they have reached.
#[derive(Default)]
struct Fruitless {
    spaces: u64,
    objects: u64,
    /// Frames freed meanwhile, by all CPUs: too few.
    freed: u64,
    /// The frames that all CPUs had freed at the last step.
    total: u64,
    /// Whether a device has refused a page, although it had a slot.
    is_refused: bool,
}

impl<M: Machine> Memory<M> {
    /// Frees frames until the source misses none, or no more can be freed. Lets other threads run in between. Returns
    /// whether there are enough. The caller holds nothing.
    pub fn reclaim_in_background(&'static self) -> bool {
        let mut fruitless = Fruitless::default();
        while self.machine().frames().missing() > 0 {
            if self.reclaim_batch(By::Background, &mut fruitless).is_none() {
                return false;
            }
            cond_resched(self.machine());
        }
        true
    }

    /// Frees some frames, for an allocation that has found none. Returns whether it has freed enough for the caller to
    /// get on. The caller holds nothing.
    ///
    /// A few frames are not enough: the pages that the program needs next might be all that can still leave, and come
    /// back, for ever.
    #[cold]
    pub fn reclaim_some(&'static self) -> bool {
        if !self.is_reclaiming() {
            // Something else than memory is short.
            return false;
        }
        let (mut freed, mut fruitless) = (0, Fruitless::default());
        while freed < RECLAIMED_LEAST && !self.machine().fatal_signal_pending() {
            let Some(more) = self.reclaim_batch(By::Direct, &mut fruitless) else {
                break;
            };
            freed += more;
            cond_resched(self.machine());
        }
        freed >= RECLAIMED_LEAST
    }

    /// Whether the source misses frames.
    pub(crate) fn is_reclaiming(&self) -> bool {
        self.machine().frames().missing() > 0
    }

    /// Frees the frames of a batch of pages. Returns how many; `None` when it is in vain.
    fn reclaim_batch(&'static self, by: By, fruitless: &mut Fruitless) -> Option<u64> {
        let start = self.trace_start();
        let source = self.machine().frames();
        // Without it, only pages that one entry shows leave.
        let places = source.allocate_reserved(self.machine().cpu(), Reserve::Reclaim);
        let places = places.ok().map(|frame| Places::new(self, frame));
        let mut batch = Batch::new(0);
        let (slots, used) = self.swap_usage();
        let has_slots = used < slots && !fruitless.is_refused;
        let of_objects = match &places {
            Some(places) => sweep_objects(self, places, &mut batch, has_slots),
            None => Swept::ending(self.count_objects()),
        };
        let mut spaces = self.keep_spaces();
        let count = spaces.count();
        // Programs may use every page between two looks of the sweep.
        let taken = match fruitless.spaces < SWEEP_ROUNDS / 2 * count {
            true => Taken::Unused,
            false => Taken::Any,
        };
        let of_spaces = match has_slots {
            true => sweep(&mut spaces, places.as_ref(), &mut batch, taken),
            // Only pages that the program does not need could leave, and they are found faster.
            false => Swept::ending(count),
        };
        drop(spaces);
        drop(places);
        let written = write(self, &batch);
        let freed = written.freed;
        // A device that is full in spite of free slots takes no more in this call.
        fruitless.is_refused |= !written.is_all;
        self.trace_end(Kind::Reclaim, start, 0, freed * PAGE_SIZE, 0);
        let counters = self.this_cpu().counters();
        let (scanned, stolen) = by.counters();
        counters.add(scanned, of_objects.seen + of_spaces.seen);
        counters.add(stolen, freed);
        counters.add(Counter::Deactivate, of_objects.aged + of_spaces.aged);
        // Others move the same hands: what they have freed, this CPU has not met.
        let total = self.total(Counter::StealBackground) + self.total(Counter::StealDirect);
        if fruitless.total != 0 {
            fruitless.freed += total.saturating_sub(fruitless.total);
        }
        fruitless.total = total;
        if freed.max(fruitless.freed) >= RECLAIMED_LEAST {
            *fruitless = Fruitless {
                is_refused: fruitless.is_refused,
                total,
                ..Fruitless::default()
            };
            return Some(freed);
        }
        fruitless.spaces += of_spaces.ends;
        fruitless.objects += of_objects.ends;
        let goes_on = fruitless.spaces < SWEEP_ROUNDS * count
            || fruitless.objects < SWEEP_ROUNDS * self.count_objects();
        goes_on.then_some(freed)
    }
}
