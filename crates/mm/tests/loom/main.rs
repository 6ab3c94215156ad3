//! Loom models of the memory core: every interleaving of a few operations, within bounds that each
//! file names. One program, so that the core is built once, and both processors have work to the end.
#![cfg(loom)]

#[path = "../model/mod.rs"]
mod model;

/// The real file, for parts that are not public.
#[path = "../../src/tune.rs"]
#[allow(dead_code, clippy::duplicate_mod)]
mod tune;

// By the rooms of `crates/mm/src`.
mod tree {
    mod readers;
    mod vma_lock;
    mod writers;
}
mod table {
    mod free;
    mod holders;
    mod moves;
    mod rss;
}
mod object {
    mod device;
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
    mod lazyfree;
}
mod fault {
    mod engine;
    mod guard;
    mod pin;
    mod sharing;
}
mod probe {
    mod probes;
}
mod ops {
    mod access;
    mod fork;
    mod remap;
}
