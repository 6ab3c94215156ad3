//! Loom models of guests: every interleaving of a few operations, within bounds that each file names.
#![cfg(loom)]

#[path = "../../../mm/tests/model/mod.rs"]
mod model;
#[path = "../model/vcpu.rs"]
mod vcpu;

mod host;
mod huge;
mod log;
mod ring;
mod slots;
