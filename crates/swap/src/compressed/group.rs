//! A group of frames that objects of one size class share.
//!
//! The group's bytes begin with this header, in its first frame. The objects follow one after the other, as if
//! the frames were contiguous: an object may begin in one frame and end in the next.
//!
//! * `frames` never changes while an object of the group is in use.
//! * `next` and `previous` are used under the class's lock.
//! * `free` loses bits under that lock alone. It gets bits without it, but neither the first one nor the last: so a group
//!   is in the list of full ones as long as it has no free object, and ends under the lock.
//!
//! *Writes*: the header.
//!
//! *Models*: loom `compressed.rs`.

use core::ptr::NonNull;

use faultless_paging::{Frame, PAGE_SIZE, PhysicalMemory};
use faultless_sync::atomic::{AtomicU64, Local, Ordering};
use faultless_sync::{Mutant, mutant};

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
    free: AtomicU64,
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
            free: AtomicU64::new(free),
            next: Local::new(0),
            previous: Local::new(0),
            frames: [const { Local::new(0) }; FRAMES],
        };
        header.frames[0].set(group.0);
        // SAFETY: by the caller's promise.
        unsafe { machine.pointer(group).cast::<Group>().write(header) };
    }

    /// Takes a free object, of which there is one. Under the class's lock. Returns its number, and whether it was the last.
    pub(super) fn take(&self) -> (u32, bool) {
        // Only this operation takes bits away, so the lowest one stays.
        let free = self.free.load(Ordering::Relaxed);
        let bit = free & free.wrapping_neg();
        // Acquire: what the object's earlier user did happens before.
        let before = self.free.fetch_and(!bit, Ordering::Acquire);
        (bit.trailing_zeros(), before == bit)
    }

    /// Gives an object back, unless the group has no free one, or `all` are free then. Returns whether it did: the
    /// group may end at once.
    pub(super) fn give_back(&self, number: u32, all: u64) -> bool {
        let mut before = self.free.load(Ordering::Relaxed);
        loop {
            let after = before | 1 << number;
            let is_for_lock = before == 0 || after == all;
            if is_for_lock && !mutant(Mutant::LastObjectGivenBack) {
                return false;
            }
            // Release: pairs with `take`, and with `give_back_locked` of the group's last object.
            let given = self.free.compare_exchange_weak(
                before,
                after,
                Ordering::Release,
                Ordering::Relaxed,
            );
            match given {
                Ok(_) => return true,
                Err(now) => before = now,
            }
        }
    }

    /// Gives an object back, under the class's lock. Returns the objects that were free before.
    pub(super) fn give_back_locked(&self, number: u32) -> u64 {
        self.free.fetch_or(1 << number, Ordering::AcqRel)
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
