//! Sizes and bounds of the whole crate, which models make small so that they end.
//!
//! Loom explores every interleaving, and shuttle thousands of schedules. There, tables, trees and batches are
//! as small as can still show every case.

const fn pick(real: u64, shuttle: u64, loom: u64) -> u64 {
    if cfg!(loom) {
        loom
    } else if cfg!(shuttle) {
        shuttle
    } else {
        real
    }
}

/// Pages that one read fault maps, its own page included.
pub(crate) const FAULT_AROUND: u64 = pick(16, 2, 2);

/// The most pages that a fault reads ahead from a swap device.
pub(crate) const READ_AHEAD: usize = pick(8, 2, 1) as usize;

/// How often a fault looks for memory before it fails.
pub(crate) const MEMORY_SEARCHES: u32 = pick(16, 1, 1) as u32;

/// Tries before a fault holds its page against writers.
///
/// Several times the turns that any machine spins before it yields ([`faultless_sync::Wait::relax`]). Under
/// an emulator or a hypervisor the CPU waited for may not be running, and runs only once this one releases
/// the host CPU. Falling back earlier gains nothing: a long claim, held while its fault waits for other CPUs
/// to flush, would have to be waited for under the lock as well.
pub(crate) const FAULT_TRIES: u32 = pick(1024, 2, 2) as u32;

/// Looks for a deposited table of a huge page. Each that finds none was overtaken by another space.
pub(crate) const DEPOSIT_LOOKS: u32 = pick(1 << 16, 64, 2) as u32;

/// Looks at the pool of huge pages before an access is refused for want of one.
pub(crate) const POOL_LOOKS: u32 = pick(512, 2, 2) as u32;

/// Tries before a pin, or an access from outside, waits for the writer that changes the mapping.
pub(crate) const PIN_TRIES: u32 = pick(1024, 2, 2) as u32;

/// Walks of `MADV_DONTNEED` without a range, before it takes one.
pub(crate) const DONT_NEED_ROUNDS: u32 = pick(8, 2, 2) as u32;

/// The most pages that a brief writer detaches or replaces, whatever is mapped there.
pub(crate) const BRIEF_FEW: u64 = pick(SMALL_ZAP, 2, SMALL_ZAP);

/// A brief unmap of more pages looks for a table first. A table in the middle then covers only pages of the
/// range.
pub(crate) const BRIEF_MANY: u64 = pick(1 << 12, 2, 1 << 12);

/// The most pages that a brief writer detaches or replaces, if they are one mapping.
pub(crate) const BRIEF_MOST: u64 = pick(1 << 36, 3, 1 << 36);

/// Tries that find their range taken by another writer, before an operation takes every range.
pub(crate) const RANGE_ROUNDS: u32 = pick(4, 1, 1) as u32;

/// A zap of more pages has probably evicted everything else from this CPU's caches.
pub(crate) const ZAP_MANY: u64 = pick(1 << 16, 3, 3);

/// The lowest page of a shard: some mappings have to lie below 4 GiB.
pub(crate) const LOWEST_SHARD: u64 = pick((1 << 32) / faultless_paging::PAGE_SIZE, 0, 0);

/// The most per-CPU shards of a space.
pub(crate) const SHARDS_OF_CPUS: usize = pick(16, 2, 2) as usize;

/// The most shards that a space has around contended places.
pub(crate) const SHARDS_AROUND: usize = pick(8, 1, 1) as usize;

/// Page-number bits that one node of the mapping tree decodes.
pub(crate) const TREE_BITS: u32 = pick(6, 3, 2) as u32;

/// Levels of the mapping tree; a slot at level 0 covers one page.
pub(crate) const TREE_LEVELS: usize = pick(6, 2, 2) as usize;

/// Mappings by which a shard's account may grow before it is settled.
pub(crate) const QUOTA: u64 = pick(1024, 8, 8);

/// The part of [`QUOTA`] for what one edit makes after the limit was compared. No operation makes more than
/// four mappings more; the rest is margin.
pub(crate) const SLACK: u64 = pick(128, 4, 4);

/// Pages that stay free below a mapping that grows down (Linux: `stack_guard_gap`).
pub(crate) const GUARD_GAP: u64 = pick(256, 1, 1);

/// The level of nodes that are per-CPU shards: of 1 GiB each.
pub(crate) const SHARD_LEVEL: usize = pick(2, 0, 0) as usize;

/// The lowest level of nodes that are shards: of 16 MiB each.
pub(crate) const SMALL_SHARD_LEVEL: usize = pick(1, 0, 0) as usize;

/// Page-index bits that one node of a memory object's tree decodes.
pub(crate) const RADIX_BITS: u32 = pick(6, 2, 1) as u32;

/// Pages cleared under one flush: claims held together stall stores to them.
pub(crate) const SOFT_DIRTY_BATCH: usize = pick(4096, 64, 64) as usize;

/// Lanes of pending unmaps; a bit for each of the two generations of a lane fits into 32 bits.
pub(crate) const LANES: usize = pick(16, 1, 1) as usize;

/// Moves of which later walks know the source and the target.
pub(crate) const LAST_MOVES: usize = pick(4, 2, 2) as usize;

/// The most pages that are zapped under the edit that detaches them.
pub(crate) const INLINE_ZAP: u64 = pick(16, 2, 2);

/// The most pages of one table that are zapped without a search for the first table in use.
pub(crate) const SMALL_ZAP: u64 = pick(64, 1, 1);

/// Tables that move whole under one flush.
pub(crate) const MOVED_TABLES: u64 = pick(64, 2, 1);

/// Lazily freed pages that are reclaimed before the fault tries again.
pub(crate) const LAZYFREE_BATCH: u64 = pick(256, 1, 1);

/// The most pages that are swapped out under one flush.
pub(crate) const PAGE_OUT_BATCH: usize = pick(32, 2, 2) as usize;

/// Pages that a sweep looks at before it takes those that were not used: a part of one table.
pub(crate) const SWEPT_AT_ONCE: u64 = pick(64, 2, 2);

/// The most of these parts in one step of a sweep.
pub(crate) const SWEPT_PARTS: usize = pick(64, 4, 3) as usize;

/// Rounds of a sweep in which nothing was freed, before memory counts as exhausted. The first clears accessed bits, the
/// second finds the pages that were not used since.
pub(crate) const SWEEP_ROUNDS: u64 = pick(4, 3, 3);

/// The most pages of an object that one step of a sweep sees.
pub(crate) const SWEPT_PAGES: u32 = pick(32, 2, 2) as u32;

/// The fewest frames that a fault without memory frees before it goes on.
pub(crate) const RECLAIMED_LEAST: u64 = pick(16, 1, 1);
