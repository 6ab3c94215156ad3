//! The memory use of an address space, from counters: `/proc/PID/statm`, `getrusage`.
//!
//! It takes time by the number of CPUs. The memory use of a range is found by a walk ([`crate::Usage`]).
//!
//! *Writes*: this CPU's line of the space's counts ([`crate::table::rss`]).

use crate::base::machine::Machine;
use crate::space::AddressSpace;
use crate::table::rss::RssKind;

/// The memory use of an address space in pages, without the shared zero page and devices. Exact while no
/// operation is at work on the space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rss {
    /// Pages of anonymous memory, including private copies of files' pages (Linux: `RssAnon`).
    pub anonymous: u64,
    /// Pages of files (Linux: `RssFile`).
    pub file: u64,
    /// Pages of shared memory without a file (Linux: `RssShmem`).
    pub shared_memory: u64,
    /// Entries of pages that were swapped out (Linux: `VmSwap`).
    pub swapped: u64,
    /// Page tables, without the root (Linux: `VmPTE`).
    pub tables: u64,
    /// The largest number of pages that were in memory at one time (Linux: `VmHWM`). It may miss up to 64 for
    /// each CPU.
    pub peak: u64,
}

impl Rss {
    /// Returns the number of all pages in memory (Linux: `VmRSS`).
    pub fn resident(&self) -> u64 {
        self.anonymous + self.file + self.shared_memory
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Returns the present memory use, and the peak.
    pub fn rss(&self) -> Rss {
        let counters = &self.tables().rss;
        counters.note_peak(self.machine().cpu());
        let sum = counters.sum();
        Rss {
            anonymous: sum.get(RssKind::Anonymous),
            file: sum.get(RssKind::File),
            shared_memory: sum.get(RssKind::SharedMemory),
            swapped: sum.get(RssKind::Swap),
            tables: sum.get(RssKind::Table),
            peak: counters.peak().max(sum.resident()),
        }
    }

    /// Returns the number of pages in memory, without the shared zero page and devices.
    pub fn resident(&self) -> u64 {
        self.tables().rss.sum().resident()
    }

    /// Resets the peak to the pages that are in memory now.
    pub fn forget_peak_rss(&self) {
        self.tables().rss.forget_peak();
        self.tables().rss.note_peak(self.machine().cpu());
    }
}
