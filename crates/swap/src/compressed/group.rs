//! A group of frames that objects of one size class share.
//!
//! The group's bytes begin with this header, in its first frame. The objects follow one after the other, as if
//! the frames were contiguous: an object may begin in one frame and end in the next.
//!
//! * `frames` never changes while an object of the group is in use.
//! * Everything else in the header is used under the class's lock.
//!
//! *Writes*: the header, under the class's lock.

use core::ptr::NonNull;

use faultless_paging::{Frame, PAGE_SIZE, PhysicalMemory};
use faultless_sync::atomic::Local;

/// The most frames of a group.
pub(super) const FRAMES: usize = 4;
/// The most objects of a group: the bits of a word.
pub(super) const OBJECTS: usize = 64;
/// Bytes of the header.
pub(super) const HEADER: usize = size_of::<Group>();

const PAGE: usize = PAGE_SIZE as usize;

/// The place of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The frame with the group's header.
    pub(super) group: Frame,
    /// The object's number in the group.
    pub(super) number: u32,
}

/// The header of a group.
#[repr(C, align(64))]
pub(super) struct Group {
    /// Free objects, a bit each.
    pub(super) free: Local,
    /// Neighbours in a list: first frames, plus 1.
    pub(super) next: Local,
    pub(super) previous: Local,
    /// The frames, of which the first is this header's.
    pub(super) frames: [Local; FRAMES],
}

impl Group {
    /// Returns the header of a group.
    ///
    /// # Safety
    /// `group` is the first frame of a group of a device on `machine`, and stays so as long as the result is
    /// used.
    pub(super) unsafe fn at<M: PhysicalMemory>(machine: &M, group: Frame) -> &Group {
        // SAFETY: by the caller's promise. All fields are atomics.
        unsafe { machine.pointer(group).cast::<Group>().as_ref() }
    }

    /// Makes `group` the first frame of a group.
    ///
    /// # Safety
    /// The frame is the caller's alone.
    pub(super) unsafe fn make<M: PhysicalMemory>(machine: &M, group: Frame, free: u64) {
        let header = Group {
            free: Local::new(free),
            next: Local::new(0),
            previous: Local::new(0),
            frames: [const { Local::new(0) }; FRAMES],
        };
        header.frames[0].set(group.0);
        // SAFETY: by the caller's promise.
        unsafe { machine.pointer(group).cast::<Group>().write(header) };
    }

    /// Returns where the bytes `offset..offset + length` of a group lie: the part in one frame, and the rest in
    /// the next one, which may be empty. `length` is at most a page's.
    pub(super) fn parts<M: PhysicalMemory>(
        &self,
        machine: &M,
        offset: usize,
        length: usize,
    ) -> [(NonNull<u8>, usize); 2] {
        let frame = |at: usize| Frame(self.frames[at.min(FRAMES - 1)].get());
        let (at, start) = (offset / PAGE, offset % PAGE);
        let here = length.min(PAGE - start);
        // SAFETY: inside the frame.
        let first = unsafe { machine.pointer(frame(at)).add(start) };
        match length - here {
            0 => [(first, here), (NonNull::dangling(), 0)],
            rest => [(first, here), (machine.pointer(frame(at + 1)), rest)],
        }
    }
}
