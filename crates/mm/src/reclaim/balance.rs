//! Reclaim as memory becomes short: in the background, and by what needs memory itself.
//!
//! * The source of frames says how many are missing ([`FrameSource::missing`]). A thread of the port calls
//!   [`Memory::reclaim_in_background`] when the source wakes it, and frees so many (Linux: `kswapd`).
//! * A fault that finds no frame frees a batch itself, with nothing held, and tries again (*direct reclaim*). It fails
//!   only when several rounds of the sweep have freed nothing.
//! * Without a device, or with a full one, nothing is swept: the pages of a space that its program does not need are
//!   found faster ([`crate::reclaim::lazyfree`]).
//!
//! *Writes*: what the sweep and page-out write; this CPU's counters.

use faultless_frames::FrameSource;
use faultless_sync::cond_resched;
use faultless_trace::Counter;

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::reclaim::page_out::{Batch, write};
use crate::reclaim::sweep::sweep;
use crate::tune::SWEEP_ROUNDS;

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

/// How long a sweep goes on without result.
struct Patience {
    ends: u64,
}

impl<M: Machine> Memory<M> {
    /// Frees frames until the source misses none, or none can be freed. Lets other threads run in between. Returns how
    /// many it has freed. The caller holds nothing.
    pub fn reclaim_in_background(&'static self) -> u64 {
        let (mut freed, mut patience) = (0, Patience { ends: 0 });
        while self.machine().frames().missing() > 0 {
            let Some(more) = self.reclaim_batch(By::Background, &mut patience) else {
                break;
            };
            freed += more;
            cond_resched(self.machine());
        }
        freed
    }

    /// Frees some frames, for an allocation that has found none. Returns whether it has. The caller holds nothing.
    #[cold]
    pub fn reclaim_some(&'static self) -> bool {
        let mut patience = Patience { ends: 0 };
        while !self.machine().fatal_signal_pending() {
            match self.reclaim_batch(By::Direct, &mut patience) {
                Some(0) => cond_resched(self.machine()),
                Some(_) => return true,
                None => break,
            }
        }
        false
    }

    /// Frees the frames of a batch of pages. Returns how many; `None` when it is in vain.
    fn reclaim_batch(&'static self, by: By, patience: &mut Patience) -> Option<u64> {
        let (slots, used) = self.swap_usage();
        if used >= slots {
            return None;
        }
        let mut batch = Batch::new(0);
        let mut spaces = self.keep_spaces();
        let count = spaces.count();
        let swept = sweep(&mut spaces, &mut batch);
        drop(spaces);
        let freed = write(self, &batch).freed;
        let counters = self.this_cpu().counters();
        let (scanned, stolen) = by.counters();
        counters.add(scanned, swept.seen);
        counters.add(stolen, freed);
        counters.add(Counter::Deactivate, swept.aged);
        if freed > 0 {
            patience.ends = 0;
            return Some(freed);
        }
        patience.ends += swept.ends;
        (patience.ends <= SWEEP_ROUNDS * count).then_some(0)
    }
}
