//! Loom models of the memory core: every interleaving of a few operations, within bounds that each
//! file names. One program, so that the core is built once, and both processors have work to the end.
#![cfg(loom)]

#[path = "../model/mod.rs"]
mod model;

mod access;
mod change;
mod device;
mod fault;
mod fork;
mod guard;
mod holders;
mod lazy;
mod mapping_lock;
mod migrate;
mod pin;
mod probes;
mod remap;
mod rss;
mod sharing;
mod soft_dirty;
mod store;
mod store_writers;
mod tables;
mod tree;
mod tree_writers;
mod zaps;
