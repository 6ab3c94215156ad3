//! Loom models of the slots, in one program. Clusters have two slots.
#![cfg(loom)]

#[path = "../../../sync/tests/model/explore.rs"]
mod explore;
mod machine;
mod slots;
