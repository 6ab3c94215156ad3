//! Physical frames: who has them, and where the next one comes from.
//!
//! * [`Descriptor`]: 64 bytes about each frame.
//! * [`FrameSource`]: what the memory core asks for; a port may bring its own.
//! * [`Frames`]: the default source: a buddy allocator behind per-CPU caches, a
//!   pool of frames zeroed in idle time, and the shared zero page.
//! * [`Slab`]: small objects of one size over frames, for tree nodes and mappings.
//! * [`FrameAudit`]: a census of all frames, for whoever looks for leaks.
//!
//! Every allocation can fail, and says so with [`NoMemory`].
//!
//! Who writes which line: taking a frame from a CPU's cache writes that cache
//! alone. The free lists and the descriptors of free frames are written under
//! one lock, once per batch.
#![cfg_attr(not(any(loom, shuttle, record)), no_std)]

mod books;
mod buddy;
mod cache;
mod descriptor;
mod frames;
mod slab;
mod source;

pub use books::{Accounts, FrameAudit, Misuse, Use};
pub use cache::FrameCache;
pub use descriptor::{Descriptor, Flags, MOST_PINS, NotPinned, Sharing};
pub use frames::{Census, Frames};
pub use slab::{Magazine, Slab};
pub use source::{FrameSource, NoMemory};
