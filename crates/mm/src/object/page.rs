//! Finds, adds and pins the pages of a memory object.
//!
//! A page is added by one compare-and-swap into its slot, after its descriptor identifies it. Then, after a
//! full fence, the size is checked. A truncation writes the size, fences, and then looks at the slots. One of
//! the two sees the other, and the page is removed. A fault that maps the page meanwhile checks the size after
//! its claim.
//!
//! A *pin* keeps a page's frame while it is read or written: reading a file must not hold anything for which a
//! truncation waits.

use faultless_frames::{Descriptor, FrameSource, NoMemory, NotPinned};
use faultless_paging::Frame;
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{Backoff, Mutant, mutant};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::object::radix::{PageSlot, Slot};
use crate::object::{MemoryObject, ObjectInner};

/// The result of a lookup.
pub(crate) enum Lookup<'s> {
    /// The page is there.
    Page(PageRef<'s>),
    /// The page is not there: a hole, or not read yet.
    Missing,
    /// The page is being read in.
    Filling,
    /// The page is being moved to another frame.
    Moving,
    /// The page was swapped out, or is coming back.
    Swapped,
    /// The object ends before it.
    Beyond,
}

/// A page of an object, and the slot in which it was found.
#[derive(Clone, Copy)]
pub(crate) struct PageRef<'s> {
    pub(crate) frame: Frame,
    slot: &'s Slot,
    index: u64,
}

impl PageRef<'_> {
    /// Whether the frame is still that page, after a full fence: step 7 of a fault. A page that was added
    /// beside a truncation is in its slot for a moment, although it is behind the size.
    #[inline]
    pub(crate) fn is_valid(&self, cache: &ObjectInner) -> bool {
        self.slot.holds(self.frame) && (cache.has(self.index) || mutant(Mutant::SizeNotValidated))
    }
}

impl ObjectInner {
    /// Looks up a page.
    #[inline]
    pub(crate) fn find(&self, index: u64) -> Lookup<'_> {
        if !self.has(index) {
            return Lookup::Beyond;
        }
        let Some(slot) = self.pages.find(index) else {
            return Lookup::Missing;
        };
        match slot.load() {
            PageSlot::Page(frame) => Lookup::Page(PageRef { frame, slot, index }),
            PageSlot::Filling(_) => Lookup::Filling,
            PageSlot::Moving(_) => Lookup::Moving,
            PageSlot::Swapped(_) | PageSlot::Returning(_) => Lookup::Swapped,
            PageSlot::Empty | PageSlot::Reserved => Lookup::Missing,
        }
    }

    /// Removes a page that was shown behind the size, beside a truncation. Returns whether its frame is the
    /// caller's again. The page stays if the object was extended meanwhile: a writer behind the end, which
    /// extends the object afterwards, may have found it ([`MemoryObject::extend_with`]).
    #[cold]
    pub(crate) fn take_back<M: Machine>(
        &self,
        machine: &M,
        slot: &Slot,
        index: u64,
        frame: Frame,
    ) -> bool {
        let (shown, hidden) = (PageSlot::Page(frame), PageSlot::Filling(frame));
        let mut backoff = Backoff::new();
        loop {
            match slot.replace(shown, hidden) {
                Ok(()) => break,
                // A move is about to show it again.
                Err(PageSlot::Moving(_)) => backoff.turn(machine),
                // The truncation, or another one, has removed it.
                Err(_) => return false,
            }
        }
        // Partner: the fence between a writer's new size and its look at the slot.
        fence(Ordering::SeqCst);
        let stays = self.has(index) && !mutant(Mutant::SizeNotValidated);
        let next = if stays { shown } else { PageSlot::Empty };
        // A truncation removes the mark, and leaves the frame to the CPU that has put it there.
        let is_shown = slot.replace(hidden, next).is_ok() && stays;
        // Release: a woken thread sees the slot.
        self.writers.filled.fetch_add(1, Ordering::Release);
        machine.wake(&self.writers.filled, u32::MAX);
        !is_shown
    }

    /// Whether the page, if it is missing, begins as zeroes.
    #[inline]
    pub(crate) fn is_zeroes(&self, index: u64) -> bool {
        self.backing
            .is_none_or(|backing| !backing.has(self.tag, index))
    }
}

impl<M: Machine> MemoryObject<M> {
    /// Returns the page `index`, pinned, if the object has it. Reads it in if necessary; a hole of an object
    /// that begins as zeroes stays a hole.
    ///
    /// # Errors
    /// Any error of filling it; `ENOMEM`.
    pub fn page(&self, index: u64) -> Result<Option<Pinned<'_, M>>, Errno> {
        let mut backoff = Backoff::new();
        loop {
            match self.cache().find(index) {
                Lookup::Page(page) => {
                    if let Some(pinned) = self.pin(page.slot, page.frame)? {
                        return Ok(Some(pinned));
                    }
                    backoff.turn(self.memory.machine());
                }
                Lookup::Beyond => return Ok(None),
                Lookup::Missing if self.cache().is_zeroes(index) => return Ok(None),
                Lookup::Missing | Lookup::Filling | Lookup::Moving | Lookup::Swapped => {
                    self.fill(index)?;
                }
            }
        }
    }

    /// Returns the page `index`, pinned, if the object has it now. Reads nothing in from the pager, but brings a page
    /// back that was swapped out.
    ///
    /// # Errors
    /// `ENOMEM`: the page has as many pins as possible, or there is no frame for a page that comes back; `EIO`: it
    /// cannot come back.
    pub fn present(&self, index: u64) -> Result<Option<Pinned<'_, M>>, Errno> {
        let mut backoff = Backoff::new();
        loop {
            match self.cache().find(index) {
                Lookup::Page(page) => {
                    if let Some(pinned) = self.pin(page.slot, page.frame)? {
                        return Ok(Some(pinned));
                    }
                }
                Lookup::Moving => {}
                Lookup::Swapped => {
                    self.fill(index)?;
                }
                Lookup::Missing | Lookup::Filling | Lookup::Beyond => return Ok(None),
            }
            backoff.turn(self.memory.machine());
        }
    }

    /// Returns the page `index`, pinned, and makes it if necessary. Where the object ends before it, the caller
    /// extends the object afterwards ([`MemoryObject::extend_with`]), or truncates it to its present size. The
    /// caller lets no other truncation run meanwhile.
    ///
    /// # Errors
    /// As [`MemoryObject::page`].
    pub fn page_to_write(&self, index: u64) -> Result<Pinned<'_, M>, Errno> {
        let mut backoff = Backoff::new();
        let is_pooled = self.cache().is_pooled();
        loop {
            let slot = self.cache().pages.slot(index, self.memory)?;
            match slot.load() {
                PageSlot::Empty | PageSlot::Reserved if is_pooled => self.add_pooled(index)?,
                PageSlot::Page(frame) => {
                    if let Some(pinned) = self.pin(slot, frame)? {
                        self.descriptor(frame).mark_dirty();
                        return Ok(pinned);
                    }
                    backoff.turn(self.memory.machine());
                }
                PageSlot::Empty if self.cache().is_zeroes(index) || !self.cache().has(index) => {
                    let frame = self.memory.allocate_frame()?;
                    if let Err(error) = self.cache().charge(index) {
                        self.free(frame);
                        // As in `add_page`.
                        match slot.load() {
                            PageSlot::Empty => return Err(error),
                            _ => continue,
                        }
                    }
                    let descriptor = self.descriptor(frame);
                    self.cache().set_file(descriptor, index);
                    let added = slot.replace(PageSlot::Empty, PageSlot::Page(frame));
                    if added.is_err() {
                        self.cache().uncharge(index);
                        if descriptor.let_go() {
                            self.free(frame);
                        }
                    }
                }
                _ => {
                    self.fill(index)?;
                }
            }
        }
    }

    /// Does the same as [`MemoryObject::extend`], for a caller that has written to `page`, the page `index`,
    /// behind the end. Returns whether it is still that page. If not, a fault that came too late for the last
    /// truncation has added and removed it, and what was written has to be written again.
    pub fn extend_with(&self, size: u64, index: u64, page: &Pinned<'_, M>) -> bool {
        self.extend(size);
        // Partner: the fence in `take_back`, between the mark and the look at the size.
        fence(Ordering::SeqCst);
        let mut backoff = Backoff::new();
        loop {
            match self.cache().pages.find(index).map(Slot::load) {
                Some(PageSlot::Filling(frame)) if frame == page.frame => {
                    backoff.turn(self.memory.machine());
                }
                // A pinned page does not move to another frame.
                Some(PageSlot::Page(frame) | PageSlot::Moving(frame)) => {
                    return frame == page.frame;
                }
                _ => return false,
            }
        }
    }

    /// Pins a page, unless it has left its slot.
    fn pin(&self, slot: &Slot, frame: Frame) -> Result<Option<Pinned<'_, M>>, NoMemory> {
        match self.descriptor(frame).pin() {
            Ok(()) => {}
            Err(NotPinned::Gone) => return Ok(None),
            Err(NotPinned::TooOften) if !slot.holds(frame) => return Ok(None),
            Err(NotPinned::TooOften) => return Err(NoMemory),
        }
        self.descriptor(frame).mark_used();
        let pinned = Pinned { store: self, frame };
        // The frame may have become another page between the lookup and the pin. Then it has left the slot, as
        // the acquire in `pin` shows.
        Ok(slot.holds(frame).then_some(pinned))
    }

    pub(crate) fn descriptor(&self, frame: Frame) -> &Descriptor {
        self.memory.machine().frames().descriptor(frame)
    }

    pub(crate) fn free(&self, frame: Frame) {
        let machine = self.memory.machine();
        machine.frames().free(machine.cpu(), frame);
    }
}

/// A pinned page: its frame does not become another page until this is dropped.
pub struct Pinned<'a, M: Machine> {
    store: &'a MemoryObject<M>,
    frame: Frame,
}

impl<M: Machine> Pinned<'_, M> {
    /// Returns the page's frame.
    pub fn frame(&self) -> Frame {
        self.frame
    }
}

impl<M: Machine> Drop for Pinned<'_, M> {
    fn drop(&mut self) {
        if self.store.descriptor(self.frame).unpin() {
            self.store.free(self.frame);
        }
    }
}

impl<M: Machine> Memory<M> {
    /// Makes sure that an object has a slot for the page `index`.
    pub(crate) fn make_slot(&self, cache: &ObjectInner, index: u64) -> Result<(), NoMemory> {
        cache.pages.slot(index, self).map(drop)
    }

    /// Adds a zeroed frame of the caller to an object as the page `index`, for a fault. Returns whether the
    /// frame is no longer the caller's.
    pub(crate) fn add_page(
        &self,
        cache: &ObjectInner,
        index: u64,
        frame: Frame,
    ) -> Result<bool, Errno> {
        let slot = cache.pages.slot(index, self)?;
        if let Err(error) = cache.charge(index) {
            // Another CPU may have added the page, with the last room that there was.
            return match slot.load() {
                PageSlot::Empty => Err(error),
                _ => Ok(false),
            };
        }
        let descriptor = self.machine().frames().descriptor(frame);
        cache.set_file(descriptor, index);
        let page = PageSlot::Page(frame);
        if slot.replace(PageSlot::Empty, page).is_err() {
            cache.uncharge(index);
            // A lookup that knew the frame as another page may have pinned it.
            return Ok(!descriptor.let_go());
        }
        // Partner: the fence between a truncation's new size and its look at the slots.
        fence(Ordering::SeqCst);
        if !cache.has(index) && cache.take_back(self.machine(), slot, index, frame) {
            cache.uncharge(index);
            // Truncated meanwhile. A fault that has found the page checks the size after its claim. It
            // withdraws, or the truncation has waited for it and zapped its entry.
            return Ok(!descriptor.let_go());
        }
        Ok(true)
    }
}
