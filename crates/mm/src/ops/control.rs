//! What a port asks of an address space beside Linux's calls: shards, lazily freed pages, probes.

use crate::base::machine::Machine;
use crate::probe::space::probe_at;
use crate::reclaim::lazyfree::take_lazyfree;
use crate::space::AddressSpace;

impl<M: Machine> AddressSpace<M> {
    /// Gives each CPU a shard: a part of the space with locks of its own, in which its mappings are placed.
    /// Happens by itself where writers contend. Whether there are shards now; not under a policy whose
    /// writers take turns, or under a limit of address space or data.
    pub fn shard(&self) -> bool {
        self.maps.spread_writers()
    }

    /// Makes a shard around `address`, as happens by itself where writers there contend with writers
    /// elsewhere: 16 MiB, beginning at a multiple of that. Whether there is such a shard now; not under a
    /// policy whose writers take turns, under a limit of address space or data, below 4 GiB, where the heap
    /// is, where there is a shard already or pages are being zapped, without memory, with almost too many
    /// mappings, or once there are enough.
    pub fn shard_around(&self, address: u64) -> bool {
        self.maps.spread_around(address)
    }

    /// How many shards there are.
    pub fn shard_count(&self) -> usize {
        self.maps.arena_count()
    }

    /// Frees some of the pages that `MADV_FREE` has marked and that were not written since; whether there
    /// were any. A fault that finds no frame does this in its own space; a port can do it in any, before it
    /// gives up.
    pub fn take_lazyfree(&self) -> bool {
        take_lazyfree(self)
    }

    /// The probe at an address, by its tag, for a trap at a breakpoint there. `None`: the breakpoint is the
    /// program's own, if it is still there; or the probe has gone since.
    pub fn probe_at(&self, address: u64) -> Option<u64> {
        probe_at(self, address)
    }

    /// Whether it may show breakpoints of probes.
    pub fn may_show_probes(&self) -> bool {
        self.maps.may_show_probes()
    }
}
