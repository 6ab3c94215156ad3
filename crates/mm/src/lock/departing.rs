//! Pending unmaps: mappings that have left the tree and are not flushed yet, with pages that their object
//! does not count.
//!
//! Once its slots say so, an unmapped or replaced mapping is not found any more; its pages are flushed later
//! ([`crate::lock::pending`]). An operation that takes a *counted* page from all address spaces waits until
//! nothing maps it. Two kinds of pages are not counted by their memory object: a device's pages, which have
//! no count, and private copies. A writer that detaches such a mapping therefore registers a *pending unmap*,
//! from before its slots change until the pages are flushed. A truncation, or the revocation of a device,
//! walks the object's mappings, and then waits for the pending unmaps that have begun.
//!
//! Pending unmaps are counted in *lanes*. Each object has one of the lanes, so unmaps of different objects
//! seldom write the same line. A lane is a [`faultless_sync::Gate`]: a truncation waits for every unmap of
//! which its walk has seen a slot change. A stream of later ones cannot delay it forever.
//!
//! Only its mappings keep a device alive: its frames have no count, and the last mapping reports that the
//! device is gone. Several writers may each detach a part of a mapping, and the last to detach need not be
//! the last to flush. So a device's mapping that has left the tree is retired later. It waits for all unmaps,
//! of any device, that were pending when it left. A stream of later ones cannot delay this forever either.
//!
//! *Writes*: one of the two counts of a lane; for mappings of devices, a line that all of them share.
//!
//! *Models*: loom `object/device.rs`, shuttle `object/devices.rs`.

use core::cell::Cell;
use core::ptr::NonNull;

use faultless_sync::{Mutant, SpinGuard, mutant};

use crate::base::departing::{Departing, Devices};
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::object::ObjectInner;
use crate::tree::mapping::{Attributes, Mapping};

impl Attributes {
    /// Returns the memory object, if it does not count all pages that the mapping shows.
    fn uncounted(&self) -> Option<&ObjectInner> {
        let is_uncounted = self.flags.device || !self.flags.shared;
        let backed = self.backed.as_ref().filter(|_| is_uncounted)?;
        Some(backed.object())
    }
}

/// In [`UnmapGuard::counted`]: a pending unmap of a device, begun in the first generation. The next bit: in
/// the second.
const DEVICE: u64 = 1 << 32;
const DEVICES: u64 = 3 * DEVICE;

/// The pending unmaps of one writer: what it has detached from the tree and not flushed yet. They end with
/// this guard.
pub(crate) struct UnmapGuard<'a, M: Machine> {
    memory: &'a Memory<M>,
    /// A bit for each count that includes this writer. Mostly none. Code for other cases is out of line:
    /// after other work it is not cached, and each of its lines costs the writer a miss.
    counted: Cell<u64>,
}

impl<'a, M: Machine> UnmapGuard<'a, M> {
    #[inline]
    pub(crate) fn new(memory: &'a Memory<M>) -> Self {
        let counted = Cell::new(0);
        Self { memory, counted }
    }

    /// Begins a pending unmap of a mapping, if its object does not count all its pages. Its slots still lead
    /// to it.
    pub(crate) fn begin(&self, attributes: &Attributes) {
        if let Some(cache) = attributes.uncounted() {
            self.begin_from(cache);
        }
        if attributes.flags.device {
            self.begin_devices();
        }
    }

    fn begin_devices(&self) {
        if self.counted.get() & DEVICES == 0 {
            let generation = self.devices().begin();
            self.counted.set(self.counted.get() | DEVICE << generation);
        }
    }

    fn devices(&self) -> SpinGuard<'a, Devices> {
        let memory = self.memory;
        memory.departing.devices.lock(memory.machine())
    }

    fn begin_from(&self, cache: &ObjectInner) {
        let number = Departing::lane_of(cache);
        if self.counted.get() >> (2 * number) & 3 != 0 || mutant(Mutant::DeparturesNotAwaited) {
            return;
        }
        // The slot changes afterwards, by a release store. A truncation that sees the change also sees this
        // entry.
        let number = 2 * number + self.memory.departing.lanes[number].enter();
        self.counted.set(self.counted.get() | 1 << number);
    }

    /// Keeps a device's mapping, to which no slot leads any more, until it can be retired.
    pub(crate) fn keep(&self, mapping: NonNull<Mapping>) {
        // No unmap has begun yet if the new mapping shows the same pages.
        self.begin_devices();
        // SAFETY: unlinked, and retired only from the list of devices' mappings.
        let link = unsafe { mapping.as_ref() }.link();
        let address = mapping.as_ptr().expose_provenance() as u64;
        self.devices().push(address, link);
    }

    /// Takes over the pending unmaps of another guard.
    #[inline]
    pub(crate) fn take(&self, other: &UnmapGuard<'_, M>) {
        let (own, others) = (self.counted.get(), other.counted.get());
        if others != 0 {
            // The other guard ends what both have counted.
            other.counted.set(own & others);
            self.counted.set(own | others);
        }
    }

    /// Returns a new guard with all pending unmaps of this one.
    #[inline]
    pub(crate) fn hand_over(&self) -> Self {
        let next = Self::new(self.memory);
        next.take(self);
        next
    }

    /// Ends the pending unmaps of this writer.
    #[inline]
    pub(crate) fn end(&self) {
        if self.counted.get() != 0 {
            self.end_counted();
        }
    }

    #[inline(never)]
    fn end_counted(&self) {
        let counted = self.counted.take();
        let mut counts = counted & (DEVICE - 1);
        while counts != 0 {
            let number = counts.trailing_zeros() as usize;
            counts &= counts - 1;
            // The flush precedes what a truncation does after its wait.
            let lane = &self.memory.departing.lanes[number / 2];
            lane.leave(number % 2, self.memory.machine());
        }
        for generation in 0..2 {
            if counted & DEVICE << generation != 0 {
                let done = self.devices().end(generation);
                done.into_iter().for_each(|head| self.retire(head));
            }
        }
    }

    fn retire(&self, mut head: u64) {
        let address = |head| core::ptr::with_exposed_provenance_mut::<Mapping>(head as usize);
        while let Some(mapping) = NonNull::new(address(head)) {
            // SAFETY: pushed by `keep`, and removed from the list for this writer alone.
            head = unsafe { mapping.as_ref() }.link().get();
            self.memory.retire_mapping(mapping);
        }
    }
}

impl<M: Machine> Drop for UnmapGuard<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.end();
    }
}

impl<M: Machine> Memory<M> {
    /// Waits for the pending unmaps in an object's lane that began before slot changes that the caller has
    /// seen.
    pub(crate) fn await_departing(&self, cache: &ObjectInner) {
        self.departing.lanes[Departing::lane_of(cache)].wait(self.machine());
    }
}
