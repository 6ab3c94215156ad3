//! Page tables that are walked and changed without a lock.
//!
//! A format is data, and decodes an entry into what it is:
//!
//! ```
//! use faultless_paging::{EntryFormat, Frame, Pte, X86_64};
//!
//! let format = &X86_64::FORMAT;
//! assert_eq!(format.decode(0, 0), Pte::Empty);
//! // Present, writable, user; a page at the lowest level, a link to a table above it.
//! assert_eq!(format.decode(0x5007, 0), Pte::Page(Frame(5)));
//! assert_eq!(format.decode(0x5007, 1), Pte::Table(Frame(5)));
//! ```
//!
//! Where to look:
//!
//! * [`format`](mod@format): the bits of an entry, as data.
//! * [`pte`]: the kinds of entry: page, table, huge page, hidden, guard, swap, marker, claim.
//! * [`entry`]: one entry and its protocol: claim, then publish or withdraw.
//! * [`walk`](mod@walk): finding an entry without a lock.
//! * [`free`]: freeing empty tables beside live neighbours (rule R5).
//! * [`relink`]: moving a whole table to another parent entry.
//! * [`tlb`]: the flush that a machine provides, and the gather that requests it once per operation.
//! * [`holders`]: which TLBs may hold an entry, so that a flush skips the other CPUs.
//! * [`requests`]: what a CPU was asked to flush and has not flushed yet.
//!
//! *Writes*: an entry, by the operation that has claimed it, by hardware (accessed and dirty bits), or by a
//! writer in a range without new claims. Nothing else in a table is ever written: its descriptor has no count
//! of present entries and no lock.
#![cfg_attr(not(any(loom, shuttle, record)), no_std)]

mod aarch64;
pub mod address;
mod bare;
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

pub use aarch64::{AArch64, MarkedAArch64};
pub use address::{Frame, PAGE_SIZE, Page, Pages};
pub use bare::is_bare;
pub use entry::{Claim, Entry, PresentClaim, Value};
pub use format::{Caching, EntryFormat, Flag, Format, SwapBits};
pub use holders::Holders;
pub use memory::PhysicalMemory;
pub use protection::{Access, Protection};
pub use pte::{Pte, SwapEntry};
pub use requests::Requests;
pub use table::{BITS, ENTRIES, LEVELS, Table};
pub use tlb::{Flush, Gather, HeldElsewhere, SpaceId, Tlb};
pub use walk::{Link, Lowest, Walk, lowest, next_table, walk, walk_marking, walk_to};
pub use x86_64::{MarkedX86_64, X86_64};
