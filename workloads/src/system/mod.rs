//! What a kernel and a C library are to the C programs.
//!
//! * `process`: one program, its address space, how it ends.
//! * `thread`: a thread of it, on a CPU: accesses, memory calls, waiting.
//! * `slot`: how threads take turns on a CPU.
//! * `team`: threads that are started and joined together.
//! * `bell`: sleeping, and waiting for each other.
//! * `console`: where output goes.
//! * `image`: the mappings of a program before it starts.
//! * `heap`: `malloc`.
//! * `usage`: times, as `getrusage` tells them.

mod bell;
pub mod console;
mod heap;
pub mod image;
mod process;
mod slot;
mod team;
mod thread;
mod usage;

pub use bell::Barrier;
pub use heap::{Heap, extend_break};
pub use process::{End, Process};
pub use team::Team;
pub use thread::{Fault, Stop, Thread};
pub use usage::Times;

/// Bytes in a page.
pub const PAGE: u64 = faultless_mm::PAGE_SIZE;
/// Data of different threads is kept this far apart: two lines, because some processors fetch
/// lines in pairs.
pub const LINE_PAIR: u64 = 128;
/// More threads than this is a typing mistake, not a workload.
pub const MAX_THREADS: u64 = 4096;
