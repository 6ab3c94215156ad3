//! Devices: frames that belong to no allocator and have no descriptor, mapped into programs (Linux: PFN
//! mappings).
//!
//! A device is a memory object without an index of pages: page `index` is in frame `first + index`. Its
//! mappings are in the object's list like all others, and are reached through it in the same way. But no page
//! of it is counted, pinned, copied, moved, or freed, because only its driver knows what it is. Its entries say
//! so ([`faultless_paging::Format::is_device`]).
//!
//! To *revoke* a device is to truncate it to nothing. A fault checks the size after its claim (step 7), and the
//! walk of the list zaps what was published before (rule R6). Other truncations then wait until their pages are
//! no longer counted, but a device has no counts. What the walk no longer finds is a pending unmap, as for
//! private copies, and the revocation waits for its flush ([`crate::lock::departing`]).

use core::ops::Range;

use faultless_frames::NoMemory;
use faultless_paging::{Caching, EntryFormat, Frame, PAGE_SIZE};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::object::{MemoryObject, ObjectInner, Pager};

/// The frames of a device.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    first: Frame,
    count: u32,
    caching: Caching,
}

/// A device's frames, to be mapped by [`crate::AddressSpace::mmap_device`]. Handles and mappings hold the
/// device. The port is notified when the last of them is freed.
pub struct Device<M: Machine> {
    store: MemoryObject<M>,
}

impl<M: Machine> Device<M> {
    /// Makes a device of these frames. No [`crate::FrameSource`] allocates any of them, and they do not begin
    /// with frame 0. `told` is notified when the device is freed, with `tag`, and asked for nothing.
    ///
    /// # Errors
    /// [`NoMemory`], also for frames that do not fit into an entry, and for 2^32 or more.
    pub fn new(
        memory: &'static Memory<M>,
        frames: Range<u64>,
        caching: Caching,
        told: Option<&'static dyn Pager>,
        tag: u64,
    ) -> Result<Self, NoMemory> {
        let count = frames.end.checked_sub(frames.start).ok_or(NoMemory)?;
        let count = u32::try_from(count).map_err(|_| NoMemory)?;
        let largest = M::Format::FORMAT.address / PAGE_SIZE;
        if frames.start == 0 || frames.end > largest {
            return Err(NoMemory);
        }
        let span = Span {
            first: Frame(frames.start),
            count,
            caching,
        };
        let store =
            MemoryObject::of_kind(memory, u64::from(count) * PAGE_SIZE, Some(span), told, tag)?;
        Ok(Self { store })
    }

    /// Unmaps it from all programs. When this returns, no CPU reaches it, and every access to a mapping of it
    /// is SIGBUS until it is [restored](Device::restore). May wait for writers that change mappings, and for
    /// nothing else. The caller holds no lock of the core.
    pub fn revoke(&self) {
        // A device has no page to read in, so nothing fails.
        let _ = self.store.truncate(0);
    }

    /// Lets programs reach it again, by faults.
    pub fn restore(&self) {
        self.store.extend(self.size());
    }

    /// Returns its size in bytes, revoked or not.
    pub fn size(&self) -> u64 {
        let span = self.store.cache().span;
        span.map_or(0, |span| u64::from(span.count) * PAGE_SIZE)
    }

    pub(crate) fn store(&self) -> &MemoryObject<M> {
        &self.store
    }
}

impl<M: Machine> Clone for Device<M> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
        }
    }
}

impl ObjectInner {
    /// Whether it is a device.
    #[inline]
    pub(crate) fn is_device(&self) -> bool {
        self.span.is_some()
    }

    /// Whether a device has at least so many pages, revoked or not.
    pub(crate) fn spans(&self, pages: u64) -> bool {
        self.span.is_some_and(|span| pages <= span.count.into())
    }

    /// Returns how a device is cached.
    pub(crate) fn caching(&self) -> Caching {
        self.span.map_or(Caching::Cached, |span| span.caching)
    }

    /// Returns the frame of a device's page, revoked or not.
    #[inline]
    pub(crate) fn device_frame(&self, index: u64) -> Option<Frame> {
        let first = self.span?.first;
        Some(Frame(first.0.wrapping_add(index)))
    }
}
