//! What has left the tree, until it is flushed: waiting for it, and keeping it alive till then.
//!
//! What somebody unmaps, or replaces, is not found any more from the moment at which its slots say so,
//! and is flushed later ([`crate::lock::pending`]). Who takes a *counted* page away from everybody waits until
//! nothing maps it. Two kinds of pages are not counted by their store: a device's, which have no
//! count, and private copies. So a writer that detaches such a mapping says that it *departs*, from before its
//! slots change until what it showed is flushed. A truncation, and who revokes a device, has gone through the
//! mappings of the store, and then waits for those who had begun.
//!
//! They are counted in *lanes*, one of which is an object's: an unmap of one object seldom writes where those of
//! another do. A lane is a [`faultless_sync::Gate`], so that a truncation waits for what had begun before its walk, and
//! for nothing that begins later.
//!
//! Nothing but its mappings holds a device: its frames have no count, and with the last of its mappings it is
//! said to be gone. Several may have taken a mapping away, each a part of it, and the last who detaches need
//! not be the last who flushes. So those that have left the tree are retired once nobody is at work any more who
//! was at work, on any device, when they left. Whoever comes later is not waited for here either.
//!
//! *Writes*: one of the two counts of a lane; where devices are, what all of them share.
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
    /// The store, if what a mapping shows is, or may be, counted by nobody there.
    fn uncounted(&self) -> Option<&ObjectInner> {
        let is_uncounted = self.flags.device || !self.flags.shared;
        let backed = self.backed.as_ref().filter(|_| is_uncounted)?;
        Some(backed.object())
    }
}

/// In [`UnmapGuard::counted`]: among it is something of a device, that began in the first generation, or in the second.
const DEVICE: u64 = 1 << 32;
const DEVICES: u64 = 3 * DEVICE;

/// What one writer has let leave the tree, and not flushed yet. It ends with this.
pub(crate) struct UnmapGuard<'a, M: Machine> {
    memory: &'a Memory<M>,
    /// A bit for each count that has this writer. Mostly none: what is done with others is out of line, as a
    /// writer who was long elsewhere misses the cache for every line of code.
    counted: Cell<u64>,
}

impl<'a, M: Machine> UnmapGuard<'a, M> {
    #[inline]
    pub(crate) fn new(memory: &'a Memory<M>) -> Self {
        let counted = Cell::new(0);
        Self { memory, counted }
    }

    /// Says that what a mapping of a store shows departs. Its slots lead to it still.
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
        // A truncation that sees a slot that is changed afterwards, by its release, sees this.
        let number = 2 * number + self.memory.departing.lanes[number].enter();
        self.counted.set(self.counted.get() | 1 << number);
    }

    /// Keeps a device's mapping, which no slot leads to any more.
    pub(crate) fn keep(&self, mapping: NonNull<Mapping>) {
        // It may not have begun: where something else shows the same pages.
        self.begin_devices();
        // SAFETY: unlinked, and retired only from there.
        let link = unsafe { mapping.as_ref() }.link();
        let address = mapping.as_ptr().expose_provenance() as u64;
        self.devices().push(address, link);
    }

    /// Takes over what another has begun.
    #[inline]
    pub(crate) fn take(&self, other: &UnmapGuard<'_, M>) {
        let (own, others) = (self.counted.get(), other.counted.get());
        if others != 0 {
            // What is counted twice the other ends.
            other.counted.set(own & others);
            self.counted.set(own | others);
        }
    }

    /// Lets all of it be another's.
    #[inline]
    pub(crate) fn hand_over(&self) -> Self {
        let next = Self::new(self.memory);
        next.take(self);
        next
    }

    /// Ends what this writer has begun.
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
            // The flush comes before what is done once this is not waited for.
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
            // SAFETY: pushed, and taken out by us alone.
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
    /// Waits for all of a store's lane who had begun when the caller saw what they had changed.
    pub(crate) fn await_departing(&self, cache: &ObjectInner) {
        self.departing.lanes[Departing::lane_of(cache)].wait(self.machine());
    }
}
