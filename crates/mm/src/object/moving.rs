//! A memory object's page that moves to another frame ([`crate::rmap::migrate`]).
//!
//! Its slot is marked meanwhile, so that no operation maps or pins it. A fault or read that needs it parks
//! until the move is done, as if the page were read in. A truncation waits, too. Then, after a full fence, the
//! page can be mapped only where the mappings in the object's list place it. Their spaces may no longer map the
//! object there: the contents of the entries decide.
//!
//! *Writes*: the slot, twice; the count on which those operations park; the list's lock.

use faultless_frames::FrameSource;
use faultless_paging::Frame;
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{Mutant, mutant};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::object::radix::{PageSlot, Slot};
use crate::object::{MemoryObject, ObjectInner};

/// A page that is being moved. Must be ended.
pub(crate) struct Moving<M: Machine> {
    pub(crate) store: MemoryObject<M>,
    pub(crate) index: u64,
    from: Frame,
}

impl<M: Machine> Moving<M> {
    /// Hides the page in `from`, if that is a page of an object.
    ///
    /// # Errors
    /// It is not, or is about to be freed. Contains what held the object, if anything did, as [`Moving::end`]
    /// returns it.
    pub(crate) fn begin(
        memory: &'static Memory<M>,
        from: Frame,
    ) -> Result<Self, Option<MemoryObject<M>>> {
        let (id, index) = memory.machine().frames().descriptor(from).owner();
        let store = MemoryObject::with_id(memory, id).ok_or(None)?;
        Self::begin_in(store, index, from).map_err(Some)
    }

    /// Hides the page `index` of an object, if it is in `from`.
    ///
    /// # Errors
    /// It is not, or is about to be freed. Contains the object.
    pub(crate) fn begin_in(
        store: MemoryObject<M>,
        index: u64,
        from: Frame,
    ) -> Result<Self, MemoryObject<M>> {
        let hidden = match store.cache().pages.find(index) {
            None => false,
            Some(slot) if mutant(Mutant::MovedInPlainSight) => slot.load() == PageSlot::Page(from),
            Some(slot) => {
                let (shown, hidden) = (PageSlot::Page(from), PageSlot::Moving(from));
                slot.replace(shown, hidden).is_ok()
            }
        };
        if !hidden {
            return Err(store);
        }
        // Partner: the barrier of an operation that counts a mapping or a pin, and then looks at the slot.
        fence(Ordering::SeqCst);
        let moving = Self { store, index, from };
        if !moving.store.cache().has(index) && !mutant(Mutant::SizeNotValidated) {
            // The CPU that has added it beside a truncation has to remove it, and finds it unchanged.
            return Err(moving.end(PageSlot::Page(from)));
        }
        Ok(moving)
    }

    /// Says in the slot where the page is now. Returns what held the object, to be dropped when nothing is locked.
    pub(crate) fn end(self, to: PageSlot) -> MemoryObject<M> {
        let cache = self.store.cache();
        let slot = cache.pages.find(self.index);
        let before = match mutant(Mutant::MovedInPlainSight) {
            true => PageSlot::Page(self.from),
            false => PageSlot::Moving(self.from),
        };
        // Nothing else changes a slot with this mark.
        let shown = slot.map(|slot: &Slot| slot.replace(before, to));
        debug_assert!(matches!(shown, Some(Ok(()))) || mutant(Mutant::MovedInPlainSight));
        // Release: a woken thread sees the slot.
        cache.writers.filled.fetch_add(1, Ordering::Release);
        let machine = self.store.memory.machine();
        machine.wake(&cache.writers.filled, u32::MAX);
        self.store
    }
}

impl<M: Machine> MemoryObject<M> {
    /// Returns the object with this number, if there is one that is not being freed.
    fn with_id(memory: &'static Memory<M>, id: u64) -> Option<Self> {
        let list = memory.objects.lock(memory.machine());
        // SAFETY: under the lock, and objects stay in the list until they are freed.
        let mut next = unsafe { list.first() };
        while let Some(hook) = next {
            // SAFETY: as above.
            let cache = unsafe { ObjectInner::of(hook) };
            if cache.id == id {
                return cache.try_hold().then(|| Self {
                    memory,
                    cache: cache.into(),
                });
            }
            // SAFETY: as above.
            next = unsafe { list.next(hook) };
        }
        None
    }
}

impl ObjectInner {
    /// Holds the object, unless its last holder has released it. Returns whether it is held.
    pub(crate) fn try_hold(&self) -> bool {
        let holders = &self.writers.holders;
        let more = |holders: u64| (holders != 0).then_some(holders + 1);
        holders
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }
}
