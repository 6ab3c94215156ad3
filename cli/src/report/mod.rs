//! The files that the command writes. `docs/json.md` is their specification.

mod bench_file;
mod compare_file;
mod destination;
mod figures_page;
mod fuzz_file;
mod host;
mod picture;
mod run_file;
pub mod stat_table;

pub use bench_file::{BenchFile, BenchResult};
pub use compare_file::CompareFile;
pub use destination::Destination;
pub use figures_page::{BENCH, COMPARE, Row};
pub use fuzz_file::{FuzzFile, FuzzFinding, FuzzSide};
pub use picture::draw;
pub use run_file::{Run, RunFile};

/// The version of all files: a number that grows when a reader of the old version could misread a file.
pub const SCHEMA: u32 = 1;
