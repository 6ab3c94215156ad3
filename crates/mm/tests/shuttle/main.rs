//! Whole operations against each other, in random interleavings. One program, so that the core is
//! built once, and both processors have work to the end.
#![cfg(shuttle)]

#[path = "../model/mod.rs"]
mod model;

mod advice;
mod any;
mod arenas;
mod at_once;
mod copies;
mod devices;
mod faults;
mod fork;
mod locks;
mod migrate;
mod moves;
mod owned;
mod pairs;
mod pin;
mod probes;
mod remap;
mod soft_dirty;
mod store;
mod tables;
mod writers;
mod zaps;
