//! Physical frames: their descriptors, their allocation, and an audit of their uses.
//!
//! Every allocation names its CPU, and can fail:
//!
//! ```
//! use faultless_frames::{FrameSource, NoMemory};
//! use faultless_paging::Frame;
//! use faultless_sync::Cpu;
//!
//! /// Two zeroed frames, or none.
//! fn pair<S: FrameSource>(source: &S, cpu: Cpu) -> Result<[Frame; 2], NoMemory> {
//!     let first = source.allocate_zeroed(cpu)?;
//!     match source.allocate_zeroed(cpu) {
//!         Ok(second) => Ok([first, second]),
//!         Err(error) => {
//!             source.free(cpu, first);
//!             Err(error)
//!         }
//!     }
//! }
//! ```
//!
//! Where to look:
//!
//! * [`Descriptor`]: the 64-byte descriptor of a frame.
//! * [`FrameSource`]: the interface through which the memory core allocates; a port may supply its own
//!   source.
//! * [`Frames`]: the default source: a buddy allocator behind per-CPU caches, a
//!   pool of frames zeroed in idle time, and the shared zero page.
//! * [`HugePool`]: huge pages that are kept for mappings that ask for them.
//! * [`Slab`]: a slab allocator for small objects of one size, such as tree nodes and mappings.
//! * [`FrameAudit`]: an audit of all frames, which finds leaks.
//!
//! *Writes*: an allocation from a CPU's cache writes only that cache. The free lists and the descriptors of
//! free frames are written under one lock, once per batch.
#![cfg_attr(not(any(loom, shuttle, record)), no_std)]

mod audit;
mod buddy;
mod cache;
mod descriptor;
mod frames;
mod pool;
mod slab;
mod source;
mod watermarks;
pub mod whole;

pub use audit::{Accounts, FrameAudit, Misuse, Use};
pub use cache::FrameCache;
pub use descriptor::{Descriptor, Flags, MOST_PINS, NotPinned, Sharing};
pub use frames::{Census, Frames};
pub use pool::{HugePool, PoolSizes};
pub use slab::{Magazine, Slab};
pub use source::{FrameSource, NoMemory, Reserve};
pub use watermarks::Watermarks;
