//! Finding, adding and pinning a store's pages.
//!
//! A page is added by one compare-and-swap into its slot, after its descriptor says
//! what it is. Whoever adds one looks at the size behind that, with a full fence
//! between; a truncation writes the size, fences, and then looks at the slots: one of
//! the two sees the other, and the page goes. Who maps it meanwhile looks at the size
//! after the claim.
//!
//! A *pin* keeps a page's frame while somebody reads or writes it: reading a file must
//! not hold anything that a truncation waits for.

use faultless_frames::{Descriptor, FrameSource, NoMemory, NotPinned};
use faultless_paging::Frame;
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{Backoff, Mutant, mutant};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::object::radix::{PageSlot, Slot};
use crate::object::{MemoryObject, ObjectInner};

/// What a look for a page has found.
pub(crate) enum Lookup<'s> {
    /// It is there.
    Page(PageRef<'s>),
    /// It is not there: a hole, or not read yet.
    Missing,
    /// Somebody is reading it in.
    Filling,
    /// Somebody is moving it to another frame.
    Moving,
    /// The store ends before it.
    Beyond,
}

/// A page of a store and the slot in which it was found.
#[derive(Clone, Copy)]
pub(crate) struct PageRef<'s> {
    pub(crate) frame: Frame,
    slot: &'s Slot,
    index: u64,
}

impl PageRef<'_> {
    /// Whether the frame still is that page, after a full fence: step 7 of a fault. A page
    /// that was added beside a truncation is in its slot for a moment, and behind the size.
    #[inline]
    pub(crate) fn is_valid(&self, cache: &ObjectInner) -> bool {
        self.slot.holds(self.frame) && (cache.has(self.index) || mutant(Mutant::SizeNotValidated))
    }
}

impl ObjectInner {
    /// Looks for a page.
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
            PageSlot::Empty => Lookup::Missing,
        }
    }

    /// Takes a page out again that was shown beside a truncation, behind the size; whether it
    /// was. Not if the store was extended meanwhile: who writes behind the end and then extends
    /// may have found the page, and keeps it ([`MemoryObject::extend_with`]).
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
                // It is about to be shown again.
                Err(PageSlot::Moving(_)) => backoff.turn(machine),
                // The truncation, or another one, has taken it out.
                Err(_) => return false,
            }
        }
        // Partner: the fence between a writer's new size and its look at the slot.
        fence(Ordering::SeqCst);
        let stays = self.has(index) && !mutant(Mutant::SizeNotValidated);
        let next = if stays { shown } else { PageSlot::Empty };
        // A truncation takes the mark out, and leaves the frame to who has put it there.
        let is_shown = slot.replace(hidden, next).is_ok() && stays;
        // Release: whoever is woken sees the slot.
        self.writers.filled.fetch_add(1, Ordering::Release);
        machine.wake(&self.writers.filled, u32::MAX);
        !is_shown
    }

    /// Whether the page, if it is missing, is zeroes.
    #[inline]
    pub(crate) fn is_zeroes(&self, index: u64) -> bool {
        self.backing
            .is_none_or(|backing| !backing.has(self.tag, index))
    }
}

impl<M: Machine> MemoryObject<M> {
    /// The page `index` if the store has it, pinned. One that has to be read in is; a
    /// hole of memory that begins as zeroes stays one.
    ///
    /// # Errors
    /// What filling it failed with; `ENOMEM`.
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
                Lookup::Missing | Lookup::Filling | Lookup::Moving => {
                    self.fill(index)?;
                }
            }
        }
    }

    /// The page `index`, pinned, if it is there now; nothing is read in.
    ///
    /// # Errors
    /// [`NoMemory`]: it is pinned as often as a page may be.
    pub fn present(&self, index: u64) -> Result<Option<Pinned<'_, M>>, NoMemory> {
        let mut backoff = Backoff::new();
        loop {
            match self.cache().find(index) {
                Lookup::Page(page) => {
                    if let Some(pinned) = self.pin(page.slot, page.frame)? {
                        return Ok(Some(pinned));
                    }
                }
                Lookup::Moving => {}
                Lookup::Missing | Lookup::Filling | Lookup::Beyond => return Ok(None),
            }
            backoff.turn(self.memory.machine());
        }
    }

    /// The page `index`, pinned, made if need be. Where the store ends before it, the
    /// caller extends it afterwards ([`MemoryObject::extend_with`]), or truncates it to the size that it
    /// has; it lets no other truncation run meanwhile.
    ///
    /// # Errors
    /// As [`MemoryObject::page`].
    pub fn page_to_write(&self, index: u64) -> Result<Pinned<'_, M>, Errno> {
        let mut backoff = Backoff::new();
        loop {
            let slot = self.cache().pages.slot(index, self.memory)?;
            match slot.load() {
                PageSlot::Page(frame) => {
                    if let Some(pinned) = self.pin(slot, frame)? {
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

    /// As [`MemoryObject::extend`], for who has written to `page`, the page `index`, behind the end.
    /// Whether it is still that page: if not, a fault that came too late for the last truncation has
    /// put it there, and taken it back, and what was written is to be written again.
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
                // A page that is pinned is moved nowhere.
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
        let pinned = Pinned { store: self, frame };
        // The frame may have become another page's between the look and the pin; then it
        // has left the slot, which the acquire in `pin` shows.
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

/// A page that stays what it is until this is dropped.
pub struct Pinned<'a, M: Machine> {
    store: &'a MemoryObject<M>,
    frame: Frame,
}

impl<M: Machine> Pinned<'_, M> {
    /// The page's frame.
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
    /// Makes sure that a store has a slot for the page `index`.
    pub(crate) fn make_slot(&self, cache: &ObjectInner, index: u64) -> Result<(), NoMemory> {
        cache.pages.slot(index, self).map(drop)
    }

    /// Adds a zeroed frame of the caller's to a store as the page `index`, for a fault.
    /// Whether the frame is not the caller's any more.
    pub(crate) fn add_page(
        &self,
        cache: &ObjectInner,
        index: u64,
        frame: Frame,
    ) -> Result<bool, Errno> {
        let slot = cache.pages.slot(index, self)?;
        if let Err(error) = cache.charge(index) {
            // Somebody may have added it with the last room that there was.
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
            // Somebody who knew the frame as another page may have pinned it.
            return Ok(!descriptor.let_go());
        }
        // Partner: the fence between a truncation's new size and its look at the slots.
        fence(Ordering::SeqCst);
        if !cache.has(index) && cache.take_back(self.machine(), slot, index, frame) {
            cache.uncharge(index);
            // Truncated meanwhile. A fault that has found the page looks at the size after its
            // claim: it withdraws, or the truncation has waited for it and taken it back.
            return Ok(!descriptor.let_go());
        }
        Ok(true)
    }
}
