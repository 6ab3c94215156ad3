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

use core::marker::PhantomData;
use core::mem::offset_of;

use faultless_sync::SpinGuard;

use crate::base::list::List;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::space::{AddressSpace, SpaceLink};

/// Lets pages be looked for here.
pub(crate) fn enter_list<M: Machine>(space: &AddressSpace<M>) {
    let mut list = space.memory().spaces.lock(space.machine());
    let _ = space.expose();
    space.place.is_listed.set(1);
    // SAFETY: it stays until `leave_list`.
    unsafe { list.push(&space.place.hook) };
}

/// No page is looked for here any more. The space ends.
pub(crate) fn leave_list<M: Machine>(space: &AddressSpace<M>) {
    let mut list = space.memory().spaces.lock(space.machine());
    if space.place.is_listed.get() != 0 {
        space.place.is_listed.set(0);
        // SAFETY: it is in the list.
        unsafe { list.remove(&space.place.hook) };
    }
}

/// The list, locked: all spaces stay.
pub(crate) struct AllSpaces<'a, M: Machine> {
    list: SpinGuard<'a, List>,
    _machine: PhantomData<M>,
}

impl<M: Machine> Memory<M> {
    /// Keeps all address spaces that there are.
    pub(crate) fn keep_spaces(&'static self) -> AllSpaces<'static, M> {
        AllSpaces {
            list: self.spaces.lock(self.machine()),
            _machine: PhantomData,
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
            let offset = offset_of!(AddressSpace<M>, place) + offset_of!(SpaceLink, hook);
            let space = (core::ptr::from_ref(hook).addr() - offset) as u64;
            // SAFETY: the hook lies in a space, which was exposed when it was listed.
            if let Some(space) = unsafe { AddressSpace::at(space) } {
                visit(space)?;
            }
            // SAFETY: as above.
            next = unsafe { self.list.next(hook) };
        }
        Ok(())
    }
}
