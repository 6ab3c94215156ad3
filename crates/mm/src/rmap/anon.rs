//! All address spaces of a machine, and which of them are a *family*: the way from an
//! anonymous page to its entries (the reverse map), with nothing to be set up by a fault.
//!
//! A page that is exclusive says in its descriptor whose it is, and where there: a fault writes
//! that before it publishes the page, on a line that it writes anyway. A page that fork
//! shares says which family it belongs to: the first space, all its children, theirs, and so
//! on have the number of the first. Fork writes that when it counts the second mapping. Such a
//! page is where it was then in every space of the family that still has it, but for spaces
//! that have moved shared pages (`mremap`), which is noted of them: there all entries are
//! looked at.
//!
//! So what says where pages may be is one list of spaces. It is written when a space is
//! made, when a fork is done, and when a space ends; by no fault, and by no other
//! operation. While somebody has the list locked no space ends and none is added.
//!
//! Who walks it to move a page holds claims under its lock, and waits for nothing but
//! flushes. Nobody waits for this lock while holding a claim or another lock that whoever
//! meets such a claim could need, and who waits answers shootdowns.
//!
//! Written lines: the list's lock and the neighbours' places.

use core::mem::offset_of;
use core::ptr::NonNull;

use faultless_sync::atomic::Local;
use faultless_sync::{SpinGuard, SpinLock};

use crate::base::list::{Hook, List};
use crate::base::machine::Machine;
use crate::space::memory::Memory;
use crate::space::{AddressSpace, Body};

/// The list.
pub(crate) struct Spaces(SpinLock<List>);

impl Spaces {
    pub(crate) fn new() -> Self {
        Self(SpinLock::new(List::new()))
    }
}

/// A space's place in it. Written under its lock, the family before the space is in it.
#[repr(C)]
pub(crate) struct SpaceLink {
    hook: Hook,
    is_listed: Local,
    family: Local,
}

impl SpaceLink {
    /// A space that is the first of its family: the family has its number.
    pub(crate) fn new(id: u64) -> Self {
        Self {
            hook: Hook::new(),
            is_listed: Local::new(0),
            family: Local::new(id),
        }
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Its family's number: a space's, so that no space of another family has it.
    pub(crate) fn family(&self) -> u64 {
        self.place.family.get()
    }

    /// Makes a space that is not in the list yet one of another one's family.
    pub(crate) fn join_family(&self, other: &Self) {
        self.place.family.set(other.family());
    }

    /// Lets pages be looked for here.
    pub(crate) fn enter_list(&self) {
        let mut list = self.memory.spaces().0.lock(self.machine());
        let _ = self.body().as_ptr().expose_provenance();
        self.place.is_listed.set(1);
        // SAFETY: it stays until `leave_list`.
        unsafe { list.push(&self.place.hook) };
    }

    /// No page is looked for here any more. The space ends.
    pub(crate) fn leave_list(&self) {
        let mut list = self.memory.spaces().0.lock(self.machine());
        if self.place.is_listed.get() != 0 {
            self.place.is_listed.set(0);
            // SAFETY: it is in the list.
            unsafe { list.remove(&self.place.hook) };
        }
    }
}

/// The list, locked: all spaces stay.
pub(crate) struct AllSpaces<'a, M: Machine> {
    memory: &'static Memory<M>,
    list: SpinGuard<'a, List>,
}

impl<M: Machine> Memory<M> {
    /// Keeps all address spaces that there are.
    pub(crate) fn keep_spaces(&'static self) -> AllSpaces<'static, M> {
        AllSpaces {
            memory: self,
            list: self.spaces().0.lock(self.machine()),
        }
    }
}

impl<M: Machine> AllSpaces<'_, M> {
    /// Calls `visit` with every address space until that fails.
    pub(crate) fn try_for_each<E>(
        &self,
        mut visit: impl FnMut(&AddressSpace<M>) -> Result<(), E>,
    ) -> Result<(), E> {
        // SAFETY: under the lock, and hooks stay in the list until their spaces end.
        let mut next = unsafe { self.list.first() };
        while let Some(hook) = next {
            let offset = offset_of!(Body, place) + offset_of!(SpaceLink, hook);
            let body = core::ptr::from_ref(hook).addr() - offset;
            let body = core::ptr::with_exposed_provenance_mut::<Body>(body);
            if let Some(body) = NonNull::new(body) {
                // SAFETY: the hook lies in a space's body, which was exposed with it.
                visit(&unsafe { AddressSpace::at(self.memory, body) })?;
            }
            // SAFETY: as above.
            next = unsafe { self.list.next(hook) };
        }
        Ok(())
    }
}
