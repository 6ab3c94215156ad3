//! A page of a store that goes to another frame ([`crate::rmap::migrate`]).
//!
//! Its slot says so meanwhile, so that nobody maps or pins it, and a fault or read that needs it
//! parks until it is done, as if the page were read in. A truncation waits, too. Then,
//! behind a full fence, the places where it may be mapped are those of all mappings in the
//! store's list, whether their space still maps the store there or not: what the
//! entries hold decides.
//!
//! Written lines: the slot, twice; the count that those park on; the list's lock.

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
    /// Takes the page in `from` out of sight, if that is a page of a store.
    ///
    /// # Errors
    /// It is not, or is about to go. What held the store, if any did, as from [`Moving::end`].
    pub(crate) fn begin(
        memory: &'static Memory<M>,
        from: Frame,
    ) -> Result<Self, Option<MemoryObject<M>>> {
        let (id, index) = memory.machine().frames().descriptor(from).owner();
        let store = MemoryObject::with_id(memory, id).ok_or(None)?;
        let hidden = match store.cache().pages.find(index) {
            None => false,
            Some(slot) if mutant(Mutant::MovedInPlainSight) => slot.load() == PageSlot::Page(from),
            Some(slot) => {
                let (shown, hidden) = (PageSlot::Page(from), PageSlot::Moving(from));
                slot.replace(shown, hidden).is_ok()
            }
        };
        if !hidden {
            return Err(Some(store));
        }
        // Partner: the barrier of who counts a mapping or a pin and then looks at the slot.
        fence(Ordering::SeqCst);
        let moving = Self { store, index, from };
        if !moving.store.cache().has(index) && !mutant(Mutant::SizeNotValidated) {
            // Who has added it beside a truncation is to take it back, and finds it
            // as it was.
            return Err(Some(moving.end(from)));
        }
        Ok(moving)
    }

    /// Shows the page again, which is in `to` now. What held the store is returned, to be
    /// let go of when nothing is locked.
    pub(crate) fn end(self, to: Frame) -> MemoryObject<M> {
        let cache = self.store.cache();
        let slot = cache.pages.find(self.index);
        let before = match mutant(Mutant::MovedInPlainSight) {
            true => PageSlot::Page(self.from),
            false => PageSlot::Moving(self.from),
        };
        // Nobody else changes a slot that says so.
        let shown = slot.map(|slot: &Slot| slot.replace(before, PageSlot::Page(to)));
        debug_assert!(matches!(shown, Some(Ok(()))) || mutant(Mutant::MovedInPlainSight));
        // Release: whoever is woken sees the slot.
        cache.writers.filled.fetch_add(1, Ordering::Release);
        let machine = self.store.memory.machine();
        machine.wake(&cache.writers.filled, u32::MAX);
        self.store
    }
}

impl<M: Machine> MemoryObject<M> {
    /// The store with this number, if there is one that does not go just now.
    fn with_id(memory: &'static Memory<M>, id: u64) -> Option<Self> {
        let list = memory.objects.lock(memory.machine());
        // SAFETY: under the lock, and stores stay in the list until they go.
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
    /// Holds it, unless the last that held it has let go.
    fn try_hold(&self) -> bool {
        let holders = &self.writers.holders;
        let more = |holders: u64| (holders != 0).then_some(holders + 1);
        holders
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }
}
