//! Which cache lines are written, and by whom.
#![cfg(record)]

mod copies;
mod lines;
