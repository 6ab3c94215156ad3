//! Random programs of memory operations, which run on any kernel and on the soft machine, so that
//! their records can be compared.
//!
//! * [`Kind`]: a kind of operation: its name, its arguments and their meaning, how one is generated,
//!   how it is executed. One file of `kinds/` each; the encodings follow from it.
//! * [`Op`], [`Program`]: operations and their actors: threads of processes that fork, strictly
//!   one after the other, or side by side in ranges of their own ([`schedule`]).
//! * `wire`: the binary form of programs; `text`: the readable form.
//! * [`Memory`]: what operations run on. `executor` implements it on a kernel, `soft` on the soft machine.
//! * `conclude`: the final state after a program.
//! * [`draw`], [`shrink`], [`differences`]: programs from random numbers; small programs from large ones;
//!   deliberate differences.

pub mod address;
#[cfg(feature = "soft")]
mod arch;
mod conclude;
#[cfg(feature = "soft")]
pub mod corpus;
#[cfg(feature = "soft")]
pub mod differences;
#[cfg(feature = "soft")]
pub mod draw;
pub mod executor;
#[cfg(feature = "soft")]
pub mod host;
#[cfg(feature = "soft")]
pub mod judge;
mod kind;
mod kinds;
mod line;
mod memory;
mod op;
mod program;
#[cfg(feature = "soft")]
mod record;
pub mod schedule;
#[cfg(feature = "soft")]
pub mod shrink;
#[cfg(feature = "soft")]
pub mod side;
#[cfg(feature = "soft")]
pub mod soft;
#[cfg(feature = "soft")]
mod text;
mod wire;

pub use address::{PAGE, Scene, Window};
#[cfg(feature = "soft")]
pub use arch::Arch;
pub use kind::{Act, Argument, Arguments, Kind, Meaning, Shows};
pub use kinds::KINDS;
pub use line::Line;
pub use memory::{Mapping, Memory, Signal};
pub use op::{Actor, Op};
pub use program::{MOST_OPS, MOST_PROCESSES, MOST_THREADS, Program};
#[cfg(feature = "soft")]
pub use record::Record;
pub use wire::{decode, encode, encode_all};
