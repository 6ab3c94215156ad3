//! Page tables that nobody locks.
//!
//! * [`format`](mod@format): what the bits of an entry mean, as data.
//! * [`pte`]: what an entry is, told apart: page, table, huge page, hidden, guard, swap, marker, claim.
//! * [`entry`]: one entry and the protocol on it: claim, then publish or withdraw.
//! * [`walk`](mod@walk): finding an entry without a lock.
//! * [`free`]: giving back empty tables while neighbours live in them (rule R5).
//! * [`relink`]: moving a whole table from one place to another.
//! * [`tlb`]: what a machine does so that old translations are gone, and the
//!   gather that asks for it once per operation.
//! * [`holders`]: whose TLBs may hold an entry, so that the others are not asked.
//! * [`requests`]: what a CPU was asked to flush and has not yet.
//!
//! Who writes which line: an entry is written by whoever has claimed it, by the
//! hardware (accessed and dirty bits), and by a writer that has made its range
//! unreachable for new claims. Nothing else in a table is ever written: there
//! is no count of present entries and no lock in a table's descriptor.
#![cfg_attr(not(any(loom, shuttle, record)), no_std)]

mod aarch64;
pub mod address;
pub mod entry;
pub mod format;
pub mod free;
pub mod holders;
pub mod memory;
mod protection;
pub mod pte;
pub mod relink;
pub mod requests;
pub mod table;
pub mod tlb;
pub mod walk;
mod x86_64;

pub use aarch64::AArch64;
pub use address::{Frame, PAGE_SIZE, Page, Pages};
pub use entry::{Claim, Entry, PresentClaim, Value};
pub use format::{Caching, EntryFormat, Flag, Format, SwapBits};
pub use holders::Holders;
pub use memory::PhysicalMemory;
pub use protection::{Access, Protection};
pub use pte::{Pte, SwapEntry};
pub use requests::Requests;
pub use table::{ENTRIES, LEVELS, Table};
pub use tlb::{Flush, Gather, HeldElsewhere, SpaceId, Tlb};
pub use walk::{Link, Lowest, Walk, bare, lowest, next_table, walk, walk_marking, walk_to};
pub use x86_64::{MarkedX86_64, X86_64};
