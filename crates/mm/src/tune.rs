//! Sizes and bounds, in one place: what models make small so that they end.
//!
//! Under loom every interleaving is explored, under shuttle thousands of schedules: there tables, trees and
//! batches have as few places as still show every case.

const fn pick(real: u64, shuttle: u64, loom: u64) -> u64 {
    if cfg!(loom) {
        loom
    } else if cfg!(shuttle) {
        shuttle
    } else {
        real
    }
}

/// Pages that a read maps together, the one it is for included.
pub(crate) const FAULT_AROUND: u64 = pick(16, 2, 2);

/// How often a fault looks for memory before it gives up.
pub(crate) const MEMORY_SEARCHES: u32 = pick(16, 1, 1) as u32;

/// Tries before a fault falls back to keeping writers out.
///
/// Several times what any machine spins ([`faultless_sync::Wait::relax`]): the CPU waited for may
/// not be running, under an emulator or a hypervisor, and gets to run only once this one lets go of
/// the host. Nothing is gained by giving up before: a claim that lasts, because its fault waits for
/// other CPUs to flush, would have to be waited for under the lock as well.
pub(crate) const FAULT_TRIES: u32 = pick(1024, 2, 2) as u32;

/// Tries before a pin, or an access from outside, waits for whoever changes mappings.
pub(crate) const PIN_TRIES: u32 = pick(1024, 2, 2) as u32;

/// How often the pages are looked through without having them.
pub(crate) const DONT_NEED_ROUNDS: u32 = pick(8, 2, 2) as u32;

/// Pages that are few, whatever is mapped there.
pub(crate) const BRIEF_FEW: u64 = pick(SMALL_ZAP, 2, SMALL_ZAP);

/// Pages that are many, if they are used: a table is over none but them.
pub(crate) const BRIEF_MANY: u64 = pick(1 << 12, 2, 1 << 12);

/// The most that are detached at once.
pub(crate) const BRIEF_MOST: u64 = pick(1 << 36, 3, 1 << 36);

/// How often room is chosen that somebody else has just then, before everything is kept from
/// changing.
pub(crate) const RANGE_ROUNDS: u32 = pick(4, 1, 1) as u32;

/// Pages that are so many that whoever has taken them away has little else in his caches.
pub(crate) const ZAP_MANY: u64 = pick(1 << 16, 3, 3);

/// No arena lies below 4 GiB, where some mappings have to be.
pub(crate) const LOWEST_SHARD: u64 = pick((1 << 32) / faultless_paging::PAGE_SIZE, 0, 0);

/// The most arenas of CPUs that a space has.
pub(crate) const SHARDS_OF_CPUS: usize = pick(16, 2, 2) as usize;

/// The most arenas around what writers work at.
pub(crate) const SHARDS_AROUND: usize = pick(8, 1, 1) as usize;

/// Page-number bits that one node decodes.
pub(crate) const TREE_BITS: u32 = pick(6, 3, 2) as u32;

/// Levels of nodes; a slot at level 0 covers one page.
pub(crate) const TREE_LEVELS: usize = pick(6, 2, 2) as usize;

/// Mappings by which a part of a space can have more than when its account was last settled.
pub(crate) const QUOTA: u64 = pick(1024, 8, 8);

/// Of these: for what is made under one edit, before which the limit is compared. No operation makes more
/// than four more; the rest is distance.
pub(crate) const SLACK: u64 = pick(128, 4, 4);

/// Pages that stay free below a mapping that grows down (Linux: `stack_guard_gap`).
pub(crate) const GUARD_GAP: u64 = pick(256, 1, 1);

/// The level of nodes that are arenas of CPUs: of 1 GiB each.
pub(crate) const SHARD_LEVEL: usize = pick(2, 0, 0) as usize;

/// The lowest level of nodes that are arenas: of 16 MiB each.
pub(crate) const SMALL_SHARD_LEVEL: usize = pick(1, 0, 0) as usize;

/// Page-number bits that one node decodes.
pub(crate) const RADIX_BITS: u32 = pick(6, 2, 1) as u32;

/// Pages watched under one flush: claims held together stall stores to them.
pub(crate) const SOFT_DIRTY_BATCH: usize = pick(4096, 64, 64) as usize;

/// Lanes; a bit for each generation of each fits into 32.
pub(crate) const LANES: usize = pick(16, 1, 1) as usize;

/// Moves whose places are known to who comes after them.
pub(crate) const LAST_MOVES: usize = pick(4, 2, 2) as usize;

/// The most pages.
pub(crate) const INLINE_ZAP: u64 = pick(16, 2, 2);

/// Pages that are taken away without a look for the first table of them.
pub(crate) const SMALL_ZAP: u64 = pick(64, 1, 1);

/// Tables that move whole under one flush.
pub(crate) const MOVED_TABLES: u64 = pick(64, 2, 1);

/// Pages taken before the fault tries again.
pub(crate) const LAZYFREE_BATCH: u64 = pick(256, 1, 1);
