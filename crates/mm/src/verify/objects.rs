//! The frame audit of a machine's memory objects: their pages, nodes and descriptors.
//!
//! An object's page is entered once by the object and once by each entry that maps it. That is its
//! descriptor's count while the page is not pinned.

use core::ptr::NonNull;

use faultless_frames::{FrameAudit, Misuse, Slab, Use};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::object::ObjectInner;
use crate::object::radix::PageSlot;

impl<M: Machine> Memory<M> {
    /// Enters all userfaultfds, likewise.
    pub(crate) fn enter_userfaults(&self, audit: &FrameAudit) -> Result<(), Misuse> {
        self.for_each_userfault(&mut |object| {
            // SAFETY: they come from a slab.
            audit.enter(unsafe { Slab::frame_of(object) }, Use::SLAB)
        })
    }

    /// Enters all objects, while nothing else is in the core.
    pub(crate) fn enter_stores(&self, audit: &FrameAudit) -> Result<(), Misuse> {
        let list = self.objects.lock(self.machine());
        // SAFETY: under the lock, and no other CPU is in the core.
        let mut next = unsafe { list.first() };
        while let Some(hook) = next {
            // SAFETY: as above.
            enter(unsafe { ObjectInner::of(hook) }, audit)?;
            // SAFETY: as above.
            next = unsafe { list.next(hook) };
        }
        Ok(())
    }
}

fn enter(cache: &ObjectInner, audit: &FrameAudit) -> Result<(), Misuse> {
    let object = |object: NonNull<u8>| {
        // SAFETY: objects and their nodes come from slabs.
        audit.enter(unsafe { Slab::frame_of(object) }, Use::SLAB)
    };
    object(NonNull::from(cache).cast())?;
    let mut result = Ok(());
    cache.pages.for_each_node(&mut |node| {
        if result.is_ok() {
            result = object(NonNull::from(node).cast());
        }
    });
    result?;
    cache.pages.for_each(0..u64::MAX, &mut |_, slot| {
        if let (
            Ok(()),
            PageSlot::Page(frame) | PageSlot::Filling(frame) | PageSlot::Returning(frame),
        ) = (&result, slot.load())
        {
            result = audit.enter(frame, Use::FILE);
        }
    });
    result
}
