//! Loom models of the locks and of reclamation, in one program.
#![cfg(loom)]

#[path = "../model/mod.rs"]
mod model;

mod gate;
mod idle;
mod ranges;
mod reclaim;
mod rwlock;
mod spins;
