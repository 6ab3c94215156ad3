//! The list of an object's mappings, in all address spaces.
//!
//! * A mapping enters it before any slot leads to the mapping, and leaves it when the mapping is unlinked.
//! * The order matters: a mapping to which pages move is put at the end again (`link_again`), so that a walk
//!   that has passed their old place finds them.
//!
//! *Writes*: the object's list and count of writable mappings, under the list's lock.

use core::ptr::NonNull;

use faultless_sync::atomic::Ordering;
use faultless_sync::{Mutant, mutant};

use crate::base::list::Hook;
use crate::base::machine::Machine;
use crate::base::memory::{Kind, Memory, Shape};
use crate::tree::mapping::{Attributes, Mapping, ObjectLinks, ObjectRef};

/// The shape of mappings. A mapping holds its object and its userfaultfd.
pub(crate) const fn mapping_shape<M: Machine>() -> Shape<M> {
    Shape {
        size: size_of::<Mapping>(),
        link: Mapping::LINK,
        release: |memory, mapping| memory.free_mapping(mapping.cast()),
    }
}

impl ObjectLinks {
    /// Returns the links to which a hook of the list belongs.
    ///
    /// # Safety
    /// The hook is in the list of an object's mappings, and the list's lock is held.
    pub(crate) unsafe fn of(hook: &Hook) -> &ObjectLinks {
        // SAFETY: it is the first field, and was exposed with the whole.
        unsafe { &*core::ptr::with_exposed_provenance(core::ptr::from_ref(hook).addr()) }
    }
}

impl<M: Machine> Memory<M> {
    /// Frees a mapping that no reader uses, and puts its object.
    fn free_mapping(&self, mapping: NonNull<Mapping>) {
        // SAFETY: no other pointer to it is left.
        let Attributes {
            backed, handler, ..
        } = *unsafe { mapping.as_ref() }.attributes();
        // SAFETY: mappings are allocated as this kind.
        unsafe { self.free(Kind::Mapping, mapping.cast()) };
        handler.release(self);
        if let Some(backed) = backed {
            self.put_object(backed.pointer().cast());
        }
    }

    /// Adds a mapping, to which nothing leads yet, to the list of its object.
    pub(crate) fn link(&self, mapping: &Mapping, backed: &ObjectRef, space: u64) {
        let links = mapping.links();
        links.space.set(space);
        links.first.set(backed.first);
        let mut list = backed.object().writers.mappings.lock(self.machine());
        // SAFETY: it stays until `unlink`.
        unsafe { list.push(expose(links)) };
        if mapping.attributes().writes_store() {
            let writable = &backed.object().writers.writable;
            writable.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Moves a mapping of the tree, if it has an object, to the end of the object's list. Called before pages
    /// move to where it is, and before it is shown where pages are.
    pub(crate) fn link_again(&self, mapping: &Mapping) {
        let Some(backed) = &mapping.attributes().backed else {
            return;
        };
        if mutant(Mutant::NotLinkedAgain) {
            return;
        }
        let mut list = backed.object().writers.mappings.lock(self.machine());
        // SAFETY: in the list, as every mapping of a tree is.
        unsafe {
            list.remove(&mapping.links().hook);
            list.push(&mapping.links().hook);
        }
    }

    /// Removes a mapping from its object's list, if it is in it.
    pub(crate) fn unlink(&self, mapping: &Mapping) {
        let Some(backed) = &mapping.attributes().backed else {
            return;
        };
        let links = mapping.links();
        let mut list = backed.object().writers.mappings.lock(self.machine());
        if links.space.get() != 0 {
            links.space.set(0);
            // SAFETY: it is in the list.
            unsafe { list.remove(&links.hook) };
            if mapping.attributes().writes_store() {
                let writable = &backed.object().writers.writable;
                writable.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// Returns the hook, from which the whole can be found again.
pub(crate) fn expose(links: &ObjectLinks) -> &Hook {
    let _ = core::ptr::from_ref(links).expose_provenance();
    &links.hook
}
