//! The allocation of compressed pages, in size classes.
//!
//! Objects of a class ([`super::shape`]) are taken from groups of frames ([`super::group`]). A group without
//! objects in use returns its frames.
//!
//! * A group is in its class's list of groups with free objects, or in that of full ones.
//! * An object goes back without the class's lock, unless its group has to change its list, or ends.
//! * Groups with few objects in use are not merged.
//!
//! *Writes*: an allocation writes the class's line and headers of groups, under the class's lock. The end of an object
//! writes its group's header, and twice for each group that fills and ends what an allocation writes.

use faultless_frames::NoMemory;
use faultless_paging::Frame;
use faultless_sync::atomic::amortised;
use faultless_sync::{Padded, SpinLock};

use super::group::{Group, HEADER, Place};
use super::scratch::{Count, Scratch};
use super::shape::{COUNT, SHAPES, Shape, class_of};
use crate::frames::{allocate, free};
use crate::machine::SwapMachine;

/// The groups of one class: first frames of two lists, plus 1.
#[derive(Default)]
struct Lists {
    partial: u64,
    full: u64,
}

/// Inserts a group at the head of a list.
///
/// # Safety
/// `group` and all of the list are groups, and their class is locked.
unsafe fn insert<M: SwapMachine>(machine: &M, head: &mut u64, group: Frame) {
    // SAFETY: by the caller's promise.
    let header = unsafe { Group::at(machine, group) };
    header.previous.set(0);
    header.next.set(*head);
    if let Some(next) = head.checked_sub(1) {
        // SAFETY: as above.
        unsafe { Group::at(machine, Frame(next)) }
            .previous
            .set(group.0 + 1);
    }
    *head = group.0 + 1;
}

/// Removes a group from its list.
///
/// # Safety
/// As [`insert`], and the group is in the list.
unsafe fn remove<M: SwapMachine>(machine: &M, head: &mut u64, group: Frame) {
    // SAFETY: by the caller's promise.
    let header = unsafe { Group::at(machine, group) };
    let (next, previous) = (header.next.get(), header.previous.get());
    match previous.checked_sub(1) {
        None => *head = next,
        // SAFETY: as above.
        Some(previous) => unsafe { Group::at(machine, Frame(previous)) }
            .next
            .set(next),
    }
    if let Some(next) = next.checked_sub(1) {
        // SAFETY: as above.
        unsafe { Group::at(machine, Frame(next)) }
            .previous
            .set(previous);
    }
}

/// The allocator.
pub(super) struct Classes([Padded<SpinLock<Lists>>; COUNT]);

impl Classes {
    pub(super) fn new() -> Self {
        Self(core::array::from_fn(|_| {
            Padded(SpinLock::new(Lists::default()))
        }))
    }

    /// Allocates an object.
    ///
    /// # Errors
    /// [`NoMemory`] when the source has no frames for a new group.
    pub(super) fn allocate<M: SwapMachine>(
        &self,
        machine: &M,
        own: &Scratch,
        length: usize,
    ) -> Result<Place, NoMemory> {
        let class = class_of(length);
        let mut lists = self.0[class].lock(machine);
        let group = match lists.partial.checked_sub(1) {
            Some(group) => Frame(group),
            None => {
                let group = new_group(machine, own, &SHAPES[class])?;
                // SAFETY: a group of this class, which is locked.
                unsafe { insert(machine, &mut lists.partial, group) };
                group
            }
        };
        // SAFETY: a listed group of this class, which is locked.
        let header = unsafe { Group::at(machine, group) };
        // It has a free one, because of its list.
        let (number, is_last) = header.take();
        if is_last {
            // SAFETY: as above, and it is in the first list.
            unsafe {
                remove(machine, &mut lists.partial, group);
                insert(machine, &mut lists.full, group);
            }
        }
        Ok(Place { group, number })
    }

    /// Frees an object.
    ///
    /// # Safety
    /// It was allocated here with this length, and nothing uses it any more.
    pub(super) unsafe fn free<M: SwapMachine>(
        &self,
        machine: &M,
        own: &Scratch,
        place: Place,
        length: usize,
    ) {
        let class = class_of(length);
        // SAFETY: an object's group, which stays until the object is given back.
        let header = unsafe { Group::at(machine, place.group) };
        if !header.give_back(place.number, SHAPES[class].all_free()) {
            // SAFETY: the caller's promise.
            amortised(|| unsafe { self.free_locked(machine, own, place, class) });
        }
    }

    /// Frees an object of a group that had no free one, or has no other in use.
    ///
    /// # Safety
    /// As [`Classes::free`].
    #[cold]
    unsafe fn free_locked<M: SwapMachine>(
        &self,
        machine: &M,
        own: &Scratch,
        place: Place,
        class: usize,
    ) {
        let group = place.group;
        let mut lists = self.0[class].lock(machine);
        // SAFETY: an object's group, and its class is locked.
        let header = unsafe { Group::at(machine, group) };
        let before = header.give_back_locked(place.number);
        let after = before | 1 << place.number;
        // SAFETY: as above; the group is in the list that its free objects say, and if all are free, nothing uses it.
        unsafe {
            if before == 0 {
                remove(machine, &mut lists.full, group);
                insert(machine, &mut lists.partial, group);
            }
            if after == SHAPES[class].all_free() {
                remove(machine, &mut lists.partial, group);
                free_group(machine, own, group, SHAPES[class].frames);
            }
        }
    }

    /// Returns an object's bytes, in two parts.
    ///
    /// # Safety
    /// The object is in use, has this length, and nothing writes it as long as the result is used.
    pub(super) unsafe fn bytes<'a, M: SwapMachine>(
        &'a self,
        machine: &'a M,
        place: Place,
        length: usize,
    ) -> (&'a [u8], &'a [u8]) {
        let offset = HEADER + place.number as usize * SHAPES[class_of(length)].size;
        // SAFETY: by the caller's promise; the object's bytes lie in its group's frames.
        unsafe {
            let header = Group::at(machine, place.group);
            let [first, second] = header.parts(machine, offset, length);
            (
                core::slice::from_raw_parts(first.0.as_ptr(), first.1),
                core::slice::from_raw_parts(second.0.as_ptr(), second.1),
            )
        }
    }

    /// Returns an object's bytes, in two parts, to write them.
    ///
    /// # Safety
    /// The object is in use, has this length, and only the caller uses it.
    #[allow(clippy::mut_from_ref, reason = "the object is the caller's alone")]
    pub(super) unsafe fn bytes_mut<'a, M: SwapMachine>(
        &'a self,
        machine: &'a M,
        place: Place,
        length: usize,
    ) -> (&'a mut [u8], &'a mut [u8]) {
        let offset = HEADER + place.number as usize * SHAPES[class_of(length)].size;
        // SAFETY: by the caller's promise; the object's bytes lie in its group's frames.
        unsafe {
            let header = Group::at(machine, place.group);
            let [first, second] = header.parts(machine, offset, length);
            (
                core::slice::from_raw_parts_mut(first.0.as_ptr(), first.1),
                core::slice::from_raw_parts_mut(second.0.as_ptr(), second.1),
            )
        }
    }

    /// Calls `visit` with every frame. Nothing else uses the device meanwhile.
    pub(super) fn for_each_frame<M: SwapMachine>(&self, machine: &M, visit: &mut dyn FnMut(Frame)) {
        for (class, shape) in self.0.iter().zip(&SHAPES) {
            let lists = class.lock(machine);
            for head in [lists.partial, lists.full] {
                let mut at = head;
                while let Some(group) = at.checked_sub(1) {
                    // SAFETY: a listed group of this class, which is locked.
                    let header = unsafe { Group::at(machine, Frame(group)) };
                    let frames = header.frames[..shape.frames].iter();
                    frames.for_each(|frame| visit(Frame(frame.get())));
                    at = header.next.get();
                }
            }
        }
    }
}

/// Allocates a group, all of it free.
fn new_group<M: SwapMachine>(machine: &M, own: &Scratch, shape: &Shape) -> Result<Frame, NoMemory> {
    let group = allocate(machine)?;
    // SAFETY: the frame is this caller's alone.
    let header = unsafe {
        Group::make(machine, group, shape.all_free());
        Group::at(machine, group)
    };
    for at in 1..shape.frames {
        match allocate(machine) {
            Ok(frame) => header.frames[at].set(frame.0),
            Err(none) => {
                let others = header.frames[1..at].iter();
                others.for_each(|frame| free(machine, Frame(frame.get())));
                free(machine, group);
                return Err(none);
            }
        }
    }
    own.add(Count::Frames, shape.frames);
    Ok(group)
}

/// Frees the frames of a group.
///
/// # Safety
/// The group is in no list, and no object of it is in use.
unsafe fn free_group<M: SwapMachine>(machine: &M, own: &Scratch, group: Frame, frames: usize) {
    // SAFETY: by the caller's promise.
    let header = unsafe { Group::at(machine, group) };
    let others = header.frames[1..frames].iter();
    others.for_each(|frame| free(machine, Frame(frame.get())));
    free(machine, group);
    own.subtract(Count::Frames, frames);
}
