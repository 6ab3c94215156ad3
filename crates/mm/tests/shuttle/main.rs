//! Whole operations against each other, in random interleavings.
//!
//! All are one test program, so that the core is built once and all processors stay busy until the end.
#![cfg(shuttle)]

#[path = "../model/mod.rs"]
mod model;

// One module for each room of `crates/mm/src`.
mod table {
    mod free;
}
mod object {
    mod devices;
}
mod lock {
    mod brief;
    mod locks;
    mod pairs;
    mod shards;
    mod writers;
    mod zaps;
}
mod space {
    mod soft_dirty;
}
mod rmap {
    mod left_tables;
    mod migrate;
    mod truncate;
}
mod fault {
    mod copies;
    mod faults;
    mod pin;
}
mod probe {
    mod probes;
}
mod ops {
    mod advice;
    mod any;
    mod fork;
    mod moves;
    mod owned;
    mod remap;
    mod whole_tables;
}
