//! What an address space has in memory, in numbers that are kept: `/proc/PID/statm`, `getrusage`.
//!
//! Takes time by the number of CPUs. What a range has in memory is looked for ([`crate::Usage`]).
//!
//! *Writes:* this CPU's line of the space's counts ([`crate::table::rss`]).

use crate::base::machine::Machine;
use crate::space::AddressSpace;
use crate::table::rss::RssKind;

/// What is in memory of an address space, without the shared zero page and without devices: pages. Exact while nothing
/// is at work on the space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rss {
    /// Pages of anonymous memory, private copies of files' pages included (Linux: `RssAnon`).
    pub anonymous: u64,
    /// Pages of files (Linux: `RssFile`).
    pub file: u64,
    /// Pages of shared memory that has no file (Linux: `RssShmem`).
    pub shared_memory: u64,
    /// Page tables, without the root (Linux: `VmPTE`).
    pub tables: u64,
    /// The most pages that were in memory at once (Linux: `VmHWM`); up to 64 for each CPU may be missed.
    pub peak: u64,
}

impl Rss {
    /// All pages in memory (Linux: `VmRSS`).
    pub fn resident(&self) -> u64 {
        self.anonymous + self.file + self.shared_memory
    }
}

impl<M: Machine> AddressSpace<M> {
    /// What is in memory now, and the most that was.
    pub fn rss(&self) -> Rss {
        let counters = &self.tables().rss;
        counters.note_peak(self.machine().cpu());
        let sum = counters.sum();
        Rss {
            anonymous: sum.get(RssKind::Anonymous),
            file: sum.get(RssKind::File),
            shared_memory: sum.get(RssKind::SharedMemory),
            tables: sum.get(RssKind::Table),
            peak: counters.peak().max(sum.resident()),
        }
    }

    /// Pages in memory, without the shared zero page and without devices.
    pub fn resident(&self) -> u64 {
        self.tables().rss.sum().resident()
    }

    /// From here on the most pages that were in memory are those that are there now.
    pub fn forget_peak_rss(&self) {
        self.tables().rss.forget_peak();
        self.tables().rss.note_peak(self.machine().cpu());
    }
}
