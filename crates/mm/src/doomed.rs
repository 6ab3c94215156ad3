//! Mappings of devices that have left the tree, until what they showed is flushed.
//!
//! Nothing but its mappings holds a device: its frames have no count. A mapping that loses its last
//! page leaves the tree before its pages are taken away ([`crate::zapping`]), and with the last one
//! the device is said to be gone. So it is retired by who flushes, after that.
//!
//! Written lines: the mappings' links.

use core::cell::Cell;
use core::ptr::NonNull;

use crate::machine::Machine;
use crate::mapping::Mapping;
use crate::memory::{Memory, Retired};

/// Such mappings, chained by their links: retired when this goes.
pub(crate) struct Doomed<'a, M: Machine> {
    memory: &'a Memory<M>,
    head: Cell<u64>,
}

impl<'a, M: Machine> Doomed<'a, M> {
    pub(crate) fn new(memory: &'a Memory<M>) -> Self {
        let head = Cell::new(0);
        Self { memory, head }
    }

    /// One more, which no slot leads to.
    pub(crate) fn push(&self, mapping: NonNull<Mapping>) {
        // SAFETY: retired only here.
        unsafe { mapping.as_ref() }.link().set(self.head.get());
        self.head.set(mapping.as_ptr().expose_provenance() as u64);
    }

    fn pop(&self) -> Option<NonNull<Mapping>> {
        let head = core::ptr::with_exposed_provenance_mut(self.head.get() as usize);
        let mapping = NonNull::<Mapping>::new(head)?;
        // SAFETY: pushed, and not retired yet.
        self.head.set(unsafe { mapping.as_ref() }.link().get());
        Some(mapping)
    }

    /// Those of another, too.
    pub(crate) fn take(&self, other: &Doomed<'_, M>) {
        while let Some(mapping) = other.pop() {
            self.push(mapping);
        }
    }
}

impl<M: Machine> Drop for Doomed<'_, M> {
    fn drop(&mut self) {
        while let Some(mapping) = self.pop() {
            self.memory.retire(Retired::Mapping(mapping));
        }
    }
}
