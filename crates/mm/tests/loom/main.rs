//! Loom models of the memory core: every interleaving of a few operations, within bounds that each file
//! names.
//!
//! All are one test program, so that the core is built once and all processors stay busy until the end.
#![cfg(loom)]

#[path = "../model/mod.rs"]
mod model;

/// The file of the core itself, because `tune` is not public.
#[path = "../../src/tune.rs"]
#[allow(dead_code, clippy::duplicate_mod)]
mod tune;

// One module for each room of `crates/mm/src`.
mod tree {
    mod readers;
    mod vma_lock;
    mod writers;
}
mod table {
    mod collapse;
    mod free;
    mod holders;
    mod huge;
    mod moves;
    mod rss;
    mod vacated;
}
mod object {
    mod device;
    mod huge;
    mod swapped;
}
mod lock {
    mod change;
    mod zaps;
}
mod space {
    mod soft_dirty;
}
mod rmap {
    mod migrate;
    mod truncate;
    mod truncate_writers;
}
mod reclaim {
    mod advised;
    mod lazyfree;
    mod page_out;
    mod shared;
    mod sweep;
}
mod fault {
    mod engine;
    mod guard;
    mod huge;
    mod pin;
    mod sharing;
    mod swap;
    mod userfault;
}
mod probe {
    mod probes;
}
mod ops {
    mod access;
    mod fork;
    mod fork_huge;
    mod remap;
    mod swap_off;
}
