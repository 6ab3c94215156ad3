//! Which cache lines are written, and by which CPUs.
#![cfg(record)]

mod copies;
mod guests;
mod lines;
mod swap;
