//! The commands: check everything, run, report.

pub mod bench;
pub mod compare;
mod demonstration;
pub mod fuzz;
mod program;
mod progress;
pub mod run;
pub mod stat;
pub mod trace;
