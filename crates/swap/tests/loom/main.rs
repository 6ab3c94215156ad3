//! Loom models of slots and of compressed pages, in one program. Clusters have two slots.
#![cfg(loom)]

mod compressed;
#[path = "../../../sync/tests/model/explore.rs"]
mod explore;
mod machine;
mod slots;
