//! The commands: check everything, run, report.

pub mod bench;
mod demonstration;
mod progress;
pub mod run;
