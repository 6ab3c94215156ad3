//! Replaces a kernel and a C library for the workloads.
//!
//! * `process`: one program, its address space, its end.
//! * `thread`: one of its threads, on a CPU: accesses, memory calls, waiting.
//! * `slot`: time slicing of threads on a CPU.
//! * `team`: threads that are started and joined together.
//! * `bell`: sleeping, and barriers between threads.
//! * `console`: forwards output to the caller.
//! * `image`: the mappings of a program before it starts.
//! * `guest`: virtual machines, and their vCPUs.
//! * `heap`: `malloc`.
//! * `usage`: times, as `getrusage` returns them.

mod bell;
pub mod console;
mod guest;
mod heap;
pub mod image;
mod process;
mod slot;
mod team;
mod thread;
mod usage;

pub use bell::Barrier;
pub use guest::{Vcpu, Vm};
pub use heap::{Heap, extend_break};
pub use process::{End, Process};
pub use team::Team;
pub use thread::{Fault, Stop, Thread};
pub use usage::Times;

/// Bytes in a page.
pub const PAGE: u64 = faultless_mm::PAGE_SIZE;
/// The distance between data of different threads: two lines, because some processors fetch
/// lines in pairs.
pub const LINE_PAIR: u64 = 128;
/// More threads than this are a typing mistake.
pub const MAX_THREADS: u64 = 4096;
