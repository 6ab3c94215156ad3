//! The owner's handle of an address space: a pointer to the frame in which the space lies.
//!
//! The space stays in place while its owner moves the handle, because mappings of objects, and the list of
//! all spaces, lead to it.

use core::ops::Deref;
use core::ptr::NonNull;

use faultless_frames::{Flags, FrameSource, NoMemory};
use faultless_paging::PAGE_SIZE;
use faultless_sync::Padded;
use faultless_sync::atomic::{AtomicU64, Local};

use crate::base::layout::Layout;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::base::policy::Policy;
use crate::lock::mappings::Mappings;
use crate::space::{AddressSpace, SpaceLink};
use crate::table::rss::RssCounters;
use crate::tree::{PAGES, Tree};

/// An address space that the caller owns. Only [`OwnedSpace::destroy`] frees it: if this is dropped, its
/// frames are lost.
pub struct OwnedSpace<M: Machine> {
    space: NonNull<AddressSpace<M>>,
}

// SAFETY: a space is shared through atomics and locks.
unsafe impl<M: Machine> Send for OwnedSpace<M> {}
// SAFETY: as above.
unsafe impl<M: Machine> Sync for OwnedSpace<M> {}

impl<M: Machine> Deref for OwnedSpace<M> {
    type Target = AddressSpace<M>;

    #[inline]
    fn deref(&self) -> &AddressSpace<M> {
        // SAFETY: written in `unlisted`, and valid until `take_apart`.
        unsafe { self.space.as_ref() }
    }
}

impl<M: Machine> AsRef<AddressSpace<M>> for OwnedSpace<M> {
    fn as_ref(&self) -> &AddressSpace<M> {
        self
    }
}

impl<M: Machine> AsRef<AddressSpace<M>> for AddressSpace<M> {
    fn as_ref(&self) -> &AddressSpace<M> {
        self
    }
}

impl<M: Machine> OwnedSpace<M> {
    /// Makes an empty space that is in no list yet.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing is allocated then.
    pub(crate) fn unlisted(
        memory: &'static Memory<M>,
        policy: Policy,
        layout: Layout,
    ) -> Result<Self, NoMemory> {
        const { assert!(size_of::<AddressSpace<M>>() <= PAGE_SIZE as usize) };
        let layout = Layout {
            end: layout.end.min(PAGES * PAGE_SIZE),
            ..layout
        };
        let machine = memory.machine();
        let free = |frame| machine.frames().free(machine.cpu(), frame);
        let frame = memory.allocate_frame_to_fill()?;
        let root = memory.allocate_table().inspect_err(|_| free(frame))?;
        let used = size_of::<AddressSpace<M>>();
        let rss = RssCounters::new(memory, frame, used).inspect_err(|_| {
            free(root);
            free(frame);
        })?;
        let ceiling = layout.mmap_base.min(layout.end) / PAGE_SIZE;
        let tree = Tree::new(memory, ceiling).inspect_err(|_| {
            rss.free(memory);
            free(root);
            free(frame);
        })?;
        machine.init_root(root);
        machine.frames().descriptor(frame).set_flags(Flags::SPACE);
        let space = machine.pointer(frame).cast::<AddressSpace<M>>();
        let maps = Mappings::new(memory, (tree, root, rss), policy, layout);
        let place = Padded(SpaceLink::new(maps.tables.id));
        let content = AddressSpace {
            maps,
            frame,
            soft_dirty_epoch: AtomicU64::new(0),
            no_huge: Local::new(0),
            is_scanned: AtomicU64::new(0),
            lock_future: Local::new(0),
            place,
        };
        // SAFETY: a frame that only this function uses, large enough and aligned.
        unsafe { space.write(content) };
        Ok(Self { space })
    }

    /// Frees everything of the space but its tables, which are gone.
    pub(crate) fn take_apart(self) {
        let (memory, frame) = (self.memory(), self.frame);
        self.maps.destroy();
        self.tables().rss.free(memory);
        // The space lies in this frame: it is not accessed from here on.
        let machine = memory.machine();
        let source = machine.frames();
        source.descriptor(frame).set_flags(Flags::NONE);
        source.free(machine.cpu(), frame);
    }
}
