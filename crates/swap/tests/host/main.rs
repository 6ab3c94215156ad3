//! Tests of this crate on the host, in one program.
#![cfg(not(any(loom, shuttle)))]

mod compressed;
mod failure;
mod machine;
mod pages;
mod ram;
mod slots;
mod stress;
