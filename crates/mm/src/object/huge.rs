//! Huge pages of memory objects: as many frames side by side as a table has entries, in slots side by side.
//!
//! * A fault that finds nothing in an aligned span of shared memory may add all its pages at once, if the object wants that
//!   ([`MemoryObject::set_huge_pages`]). The first slot is marked as being filled meanwhile, so that faults on the span wait for
//!   one addition, and do not make another.
//! * The first frame's descriptor then says that the span is whole: all frames are pages of the object, in their places.
//!   What takes one of them away removes that mark, and nothing sets it again. So a fault sees at once whether the whole may be
//!   mapped; after its claim it looks at the slots themselves, because a page may be taken back beside an extension.
//! * Otherwise the pages are like others. A truncation, a page-out or a move of one leaves the other ones as they are.
//!
//! *Writes*: the slots; the frames' descriptors.
//!
//! *Models*: loom `object/huge.rs`.

use faultless_frames::FrameSource;
use faultless_paging::{ENTRIES, Frame, PAGE_SIZE};
use faultless_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use faultless_sync::{Backoff, Mutant, mutant};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::object::radix::PageSlot;
use crate::object::{MemoryObject, ObjectInner};
use crate::table::huge::frames_of;

/// Turns for which an addition to an object of the pool waits for a hole.
const HOLE_TURNS: u32 = 1 << 12;

/// Whether faults add huge pages to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum ObjectHuge {
    /// Never.
    #[default]
    Never,
    /// As the machine's setting for shared memory says ([`Memory::set_shared_huge_mode`]).
    AsSet,
    /// All its pages are of the pool of huge pages, and added by faults as a whole or not at all (Linux: hugetlb). Set before the
    /// object is used.
    Pooled,
}

/// What an object has to do with huge pages.
pub(crate) struct ObjectHugeState {
    wish: AtomicU32,
    /// Whether it has ever had one. An operation that has found a page of one in its slot sees that.
    has_any: AtomicU32,
    /// The space that has made its reservations for a private mapping; 0 if they are anyone's.
    pub(crate) owner: AtomicU64,
}

impl ObjectHugeState {
    pub(crate) fn new(wish: ObjectHuge) -> Self {
        Self {
            wish: AtomicU32::new(wish as u32),
            has_any: AtomicU32::new(0),
            owner: AtomicU64::new(0),
        }
    }

    /// Whether its reservations are for a private mapping.
    pub(crate) fn is_owned(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn wish(&self) -> ObjectHuge {
        match self.wish.load(Ordering::Relaxed) {
            0 => ObjectHuge::Never,
            1 => ObjectHuge::AsSet,
            _ => ObjectHuge::Pooled,
        }
    }
}

impl<M: Machine> MemoryObject<M> {
    /// Sets whether faults add huge pages from now on. Objects without a pager begin with [`ObjectHuge::AsSet`], others with
    /// [`ObjectHuge::Never`].
    pub fn set_huge_pages(&self, wish: ObjectHuge) {
        let state = &self.cache().writers.huge;
        state.wish.store(wish as u32, Ordering::Relaxed);
    }
}

impl ObjectInner {
    /// Whether it may have huge pages.
    pub(crate) fn may_have_huge(&self) -> bool {
        self.writers.huge.wish() != ObjectHuge::Never
    }

    /// Whether a huge page at the pages from `base` on lies before the end. Linux also adds one across the end if that is set
    /// (`shmem_enabled`).
    pub(crate) fn has_span(&self, base: u64) -> bool {
        base.checked_add(ENTRIES as u64)
            .is_some_and(|end| end <= self.size().div_ceil(PAGE_SIZE))
    }
}

impl<M: Machine> Memory<M> {
    /// Adds zeroed frames of the caller, side by side, as the pages from `base` on. They are no longer the caller's. Returns
    /// whether all were added: else those for which there was no room, or a page already, are freed. The first slot holds
    /// `before`, which is empty or the mark of a claim.
    ///
    /// # Errors
    /// `ENOMEM`; or any reason of the pager against one of the pages. None was added.
    pub(crate) fn add_huge_page(
        &self,
        cache: &ObjectInner,
        base: u64,
        (first, before): (Frame, PageSlot),
    ) -> Result<bool, Errno> {
        let (source, pages) = (self.machine().frames(), base..base + ENTRIES as u64);
        let made = cache.pages.make_slots(pages.clone(), self);
        let charged = match (made, cache.backing) {
            (Err(none), _) => Err((base, Errno::from(none))),
            (_, None) => Ok(()),
            _ => pages
                .clone()
                .try_for_each(|index| cache.charge(index).map_err(|error| (index, error))),
        };
        if let Err((failed, error)) = charged {
            (base..failed).for_each(|index| cache.uncharge(index));
            self.free_huge(first);
            return Err(error);
        }
        for (part, index) in source.descriptors_of_huge(first).iter().zip(pages.clone()) {
            cache.set_file(part, index);
        }
        // Before any page is shown.
        cache.writers.huge.has_any.store(1, Ordering::Relaxed);
        let slot = |index| cache.pages.find(index);
        let (hidden, shown) = (PageSlot::Filling(first), PageSlot::Page(first));
        let begins = slot(base).is_some_and(|slot| slot.replace(before, hidden).is_ok());
        let mut is_whole = begins;
        cache
            .pages
            .for_each_slot(base + 1..pages.end, |index, slot| {
                let frame = Frame(first.0 + (index - base));
                let page = PageSlot::Page(frame);
                let mut is_added = begins && slot.replace(PageSlot::Empty, page).is_ok();
                let mut backoff = Backoff::new();
                for _ in 0..HOLE_TURNS {
                    if is_added || !begins || before == PageSlot::Empty {
                        break;
                    }
                    // A hole in an object of the pool is still being made: it comes from the first slot on.
                    backoff.turn(self.machine());
                    is_added = slot.replace(PageSlot::Empty, page).is_ok();
                }
                if !is_added {
                    is_whole = false;
                    self.drop_unused(cache, index, frame);
                }
            });
        if is_whole {
            self.mark_whole(cache, base, first);
        }
        if begins {
            let is_shown = slot(base).is_some_and(|slot| slot.replace(hidden, shown).is_ok());
            if !is_shown {
                // A truncation has removed the mark.
                is_whole = false;
                self.ends_whole(cache, first);
            }
            // Partner: the fence between a truncation's new size and its look at the slots.
            fence(Ordering::SeqCst);
            if !is_shown {
                self.drop_unused(cache, base, first);
            }
            if !cache.has_span(base) {
                self.take_back_behind_end(cache, base, first);
            }
            // Release: a woken thread sees the slots.
            cache.writers.filled.fetch_add(1, Ordering::Release);
            self.machine().wake(&cache.writers.filled, u32::MAX);
        } else {
            self.drop_unused(cache, base, first);
        }
        Ok(is_whole)
    }

    /// Marks a huge page whole, unless one of its pages has left again.
    fn mark_whole(&self, cache: &ObjectInner, base: u64, first: Frame) {
        let frames = self.machine().frames();
        frames.descriptor(first).begin_object_whole();
        self.count_object_huge(first, 1);
        // What takes a page away empties its slot, and then writes the first descriptor: that write comes first, and the
        // emptied slot is seen here, or it finds the mark.
        let mut holds = true;
        let others = base + 1..base + ENTRIES as u64;
        cache.pages.for_each_slot(others, |index, slot| {
            holds &= slot.load() == PageSlot::Page(Frame(first.0 + (index - base)));
        });
        if !holds && !mutant(Mutant::WholeNotValidated) {
            self.ends_whole(cache, first);
        }
    }

    /// Removes the pages that were shown behind the end, beside a truncation.
    #[cold]
    fn take_back_behind_end(&self, cache: &ObjectInner, base: u64, first: Frame) {
        for (frame, index) in frames_of(first).zip(base..) {
            if let Some(slot) = cache.pages.find(index)
                && !cache.has(index)
                && cache.take_back(self.machine(), slot, index, frame)
            {
                self.ends_whole(cache, frame);
                self.drop_unused(cache, index, frame);
            }
        }
    }

    /// Gives up a frame that the object does not have, or not any more.
    fn drop_unused(&self, cache: &ObjectInner, index: u64, frame: Frame) {
        cache.uncharge(index);
        let source = self.machine().frames();
        // A lookup that knew the frame as another page may have pinned it.
        if source.descriptor(frame).let_go() {
            source.free(self.machine().cpu(), frame);
        }
    }

    /// Ends the whole of which a page's frame is a part, if it is one: the page has left its slot, or is about to be freed
    /// with its uses frozen. Before the frame is freed.
    #[inline]
    pub(crate) fn ends_whole(&self, cache: &ObjectInner, frame: Frame) {
        // The page was found in its slot, which was filled after this was set.
        if cache.writers.huge.has_any.load(Ordering::Relaxed) != 0 {
            self.ends_whole_of(frame);
        }
    }

    #[cold]
    fn ends_whole_of(&self, frame: Frame) {
        let first = Frame(frame.0 & !(ENTRIES as u64 - 1));
        let head = self.machine().frames().find(first);
        let ends = !mutant(Mutant::WholeNotEnded);
        if head.is_some_and(|head| ends && head.end_object_whole()) {
            self.count_object_huge(first, 1u64.wrapping_neg());
        }
    }
}
