//! The sweep over the pages of memory objects: files, and shared memory.
//!
//! As over address spaces ([`crate::reclaim::sweep`]), one hand goes over one object after the other.
//!
//! * A page that is mapped counts as used if an entry's accessed bit is set. The bits are cleared, and the page stays
//!   ([`crate::rmap::claims`]).
//! * A page that is not mapped is marked as idle. Reading or writing the file removes the mark. What is found with the
//!   mark leaves.
//! * A pinned page stays.
//!
//! *Writes*: what taking a page writes ([`crate::reclaim::shared`]); the lists of objects and of spaces.

use faultless_frames::Flags;
use faultless_sync::atomic::Ordering;

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::object::radix::PageSlot;
use crate::object::{MemoryObject, ObjectInner};
use crate::reclaim::page_out::Batch;
use crate::reclaim::shared::{is_refilled, take_of_object};
use crate::reclaim::sweep::Swept;
use crate::rmap::claims::{Places, Purpose};
use crate::tune::{PAGE_OUT_BATCH, SWEPT_PAGES};

/// Moves the hand on until half of the batch is full, or some pages of one object were seen. Without slots, only pages
/// leave that their pager can fill again.
pub(crate) fn sweep_objects<M: Machine>(
    memory: &'static Memory<M>,
    places: &Places<M>,
    batch: &mut Batch,
    has_slots: bool,
) -> Swept {
    let mut swept = Swept::default();
    let Some(store) = memory.first_object() else {
        return Swept::ending(1);
    };
    let hand = &store.cache().writers.hand;
    let mut at = hand.load(Ordering::Relaxed);
    let spaces = memory.keep_spaces();
    for _ in 0..SWEPT_PAGES {
        // The other half is for address spaces.
        if batch.room() <= PAGE_OUT_BATCH / 2 {
            break;
        }
        let Some(index) = store.next(at) else {
            swept.ends = 1;
            break;
        };
        at = index + 1;
        sweep_page(&store, places, (index, has_slots), batch, &mut swept);
        memory.machine().poll();
    }
    drop(spaces);
    let is_done = swept.ends > 0;
    hand.store(if is_done { 0 } else { at }, Ordering::Relaxed);
    if is_done {
        memory.rotate_objects(&store);
    }
    // This may be the object's last holder: nothing is locked.
    drop(store);
    swept
}

/// Takes a page of an object, or notes that it was not used.
fn sweep_page<M: Machine>(
    store: &MemoryObject<M>,
    places: &Places<M>,
    (index, has_slots): (u64, bool),
    batch: &mut Batch,
    swept: &mut Swept,
) {
    let slot = store.cache().pages.find(index);
    let Some(PageSlot::Page(frame)) = slot.map(|slot| slot.load()) else {
        return;
    };
    let descriptor = store.descriptor(frame);
    if !descriptor.flags().has(Flags::FILE) || descriptor.pins() != 0 {
        return;
    }
    if !has_slots && !is_refilled(store, index, frame) {
        return;
    }
    swept.seen += 1;
    let is_mapped = descriptor.map_count() != 0;
    if !is_mapped && !descriptor.mark_idle() {
        swept.aged += 1;
        return;
    }
    if !take_of_object(store, places, (index, frame), Purpose::Reclaim, batch) {
        swept.aged += 1;
    }
}

impl<M: Machine> Memory<M> {
    /// Returns the first object of the list that is not being freed.
    fn first_object(&'static self) -> Option<MemoryObject<M>> {
        let list = self.objects.lock(self.machine());
        // SAFETY: under the lock, and objects stay in the list until they are freed.
        let mut next = unsafe { list.first() };
        while let Some(hook) = next {
            // SAFETY: as above.
            let cache = unsafe { ObjectInner::of(hook) };
            if !cache.is_device() && !cache.is_pooled() && cache.try_hold() {
                return Some(MemoryObject {
                    memory: self,
                    cache: cache.into(),
                });
            }
            // SAFETY: as above.
            next = unsafe { list.next(hook) };
        }
        None
    }

    /// Puts an object behind all others.
    fn rotate_objects(&self, store: &MemoryObject<M>) {
        let mut list = self.objects.lock(self.machine());
        // SAFETY: held, and so in the list; put in again at once.
        unsafe {
            list.remove(&store.cache().hook);
            list.push(&store.cache().hook);
        }
    }

    /// Returns the number of objects.
    pub(crate) fn count_objects(&self) -> u64 {
        let list = self.objects.lock(self.machine());
        let mut count = 0;
        // SAFETY: under the lock, and objects stay in the list until they are freed.
        let mut next = unsafe { list.first() };
        while let Some(hook) = next {
            count += 1;
            // SAFETY: as above.
            next = unsafe { list.next(hook) };
        }
        count
    }
}
