//! Loom models of entries and tables, in one program.
#![cfg(loom)]

#[path = "../model/mod.rs"]
mod model;

mod claim;
mod free;
mod hardware;
mod relink;
