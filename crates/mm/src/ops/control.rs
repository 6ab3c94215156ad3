//! What a port can ask of an address space beyond Linux's calls: shards, lazily freed pages, probes.

use crate::base::machine::Machine;
use crate::probe::space::probe_at;
use crate::reclaim::lazyfree::take_lazyfree;
use crate::space::AddressSpace;

impl<M: Machine> AddressSpace<M> {
    /// Gives each CPU a shard: a part of the space with locks of its own, in which its mappings are placed.
    /// Happens automatically where writers contend. Returns whether there are shards now. There are none under
    /// a policy that serialises writers, or under a limit of address space or data.
    pub fn shard(&self) -> bool {
        self.maps.spread_writers()
    }

    /// Makes a shard around `address`: 16 MiB, aligned to its size. Happens automatically where writers there
    /// contend with writers elsewhere. Returns whether it was made.
    ///
    /// None is made:
    ///
    /// * under a policy that serialises writers, or under a limit of address space or data;
    /// * below 4 GiB, where the heap is, where there is a shard already, or where pages are being zapped;
    /// * without memory, with almost too many mappings, or if there are enough shards.
    pub fn shard_around(&self, address: u64) -> bool {
        self.maps.spread_around(address)
    }

    /// Returns how many shards there are.
    pub fn shard_count(&self) -> usize {
        self.maps.shard_count()
    }

    /// Frees some of the pages that `MADV_FREE` has marked and that were not written since. Returns whether
    /// there were any. A fault that finds no frame does this in its own space; a port can do it in any space
    /// before it fails an allocation.
    pub fn take_lazyfree(&self) -> bool {
        take_lazyfree(self)
    }

    /// Sets whether the space gets no huge pages, whatever its mappings ask for (Linux: `PR_SET_THP_DISABLE`). A child of
    /// `fork` inherits it.
    pub fn set_huge_off(&self, is_off: bool) {
        self.no_huge.set(u64::from(is_off));
    }

    /// Whether it gets none.
    pub fn huge_is_off(&self) -> bool {
        self.no_huge.get() != 0
    }

    /// Returns the tag of the probe at an address, for a trap at a breakpoint there. `None`: the breakpoint is
    /// the program's own, if it is still there, or the probe has ended.
    pub fn probe_at(&self, address: u64) -> Option<u64> {
        probe_at(self, address)
    }

    /// Whether the space may show breakpoints of probes.
    pub fn may_show_probes(&self) -> bool {
        self.maps.may_show_probes()
    }
}
