//! Which address spaces the scan in the background goes through (`crate::ops::khugepaged`): those with a mapping that may
//! have huge pages. A space is registered by the first advice that asks for them, or the first fault that may map one, and
//! stays so to its end.
//!
//! *Writes*: a word of the space and the machine's count, once.

use faultless_sync::atomic::Ordering;

use crate::base::huge::HugeMode;
use crate::base::machine::Machine;
use crate::space::AddressSpace;

impl<M: Machine> AddressSpace<M> {
    #[inline]
    pub(crate) fn is_registered_for_scan(&self) -> bool {
        self.is_scanned.load(Ordering::Relaxed) != 0
    }

    /// Registers the space, unless no mapping gets huge pages. The first one wakes the thread that scans.
    pub(crate) fn register_for_scan(&self) {
        let memory = self.memory();
        if self.is_registered_for_scan() || memory.huge.mode() == HugeMode::Never {
            return;
        }
        if self.is_scanned.swap(1, Ordering::Relaxed) == 0
            && memory.huge.scan.spaces.fetch_add(1, Ordering::Relaxed) == 0
        {
            memory.call_huge_scan();
        }
    }
}
