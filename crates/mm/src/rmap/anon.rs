//! All address spaces of a machine, in *families*: the reverse map of anonymous pages, for which no fault sets
//! anything up.
//!
//! * The descriptor of an exclusive page names its space and its page number there. A fault writes that before
//!   it publishes the page, on a line that it writes in any case.
//! * The descriptor of a page that fork shares names its family: a space, its children, their children, and so
//!   on. They all have the number of the first. Fork writes that when it counts the second mapping.
//! * A shared page has the same page number in every space of the family that still has it. The exception is a
//!   space that has moved shared pages (`mremap`): it is marked, and all its entries are searched.
//!
//! So one list of spaces says where pages may be. It is written when a space is made, when a fork is done, and
//! when a space ends; by no fault, and by no other operation. While the list is locked, no space ends and none
//! is added.
//!
//! A walk that moves a page holds claims under the list's lock, and waits only for flushes. No thread waits for
//! this lock with a claim held, or with a lock held that an operation which meets such a claim could need.
//! Every wait answers shootdowns.
//!
//! *Writes*: the list's lock and the neighbours' links.

use core::marker::PhantomData;
use core::mem::offset_of;
use core::ops::Deref;

use faultless_sync::SpinGuard;
use faultless_sync::atomic::Ordering;

use crate::base::list::{Hook, List};
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::space::{AddressSpace, SpaceLink};

/// Adds a space to the list, in which pages are searched from now on.
pub(crate) fn enter_list<M: Machine>(space: &AddressSpace<M>) {
    let mut list = space.memory().spaces.lock(space.machine());
    let _ = space.expose();
    space.place.is_listed.set(1);
    // SAFETY: it stays until `leave_list`.
    unsafe { list.push(&space.place.hook) };
}

/// Removes a space from the list, because it ends. No page is searched in it any more.
pub(crate) fn leave_list<M: Machine>(space: &AddressSpace<M>) {
    let mut list = space.memory().spaces.lock(space.machine());
    if space.place.is_listed.get() != 0 {
        space.place.is_listed.set(0);
        // SAFETY: it is in the list.
        unsafe { list.remove(&space.place.hook) };
    }
    if space.is_scanned.swap(0, Ordering::Relaxed) != 0 {
        let spaces = &space.memory().huge.scan.spaces;
        spaces.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for the walks that are in a space that has left the list ([`Visit`]).
pub(crate) fn await_visits<M: Machine>(space: &AddressSpace<M>) {
    let memory = space.memory();
    let walkers = &space.place.walkers;
    walkers.wait_on(&memory.visits_over, memory.machine());
}

/// A space that a walk through all spaces is in. It stays as long as this.
pub(crate) struct Visit<M: Machine>(&'static AddressSpace<M>);

impl<M: Machine> Deref for Visit<M> {
    type Target = AddressSpace<M>;

    fn deref(&self) -> &AddressSpace<M> {
        self.0
    }
}

impl<M: Machine> Drop for Visit<M> {
    fn drop(&mut self) {
        let memory = self.0.memory();
        // From here on the space may be freed, so its owner parks on a word that is not its own.
        let walkers = &self.0.place.walkers;
        walkers.leave_for(&memory.visits_over, memory.machine());
    }
}

impl<M: Machine> Memory<M> {
    /// Goes to the space with the lowest number above this one, with no lock held. A space that a fork adds meanwhile
    /// has a higher number than all others.
    pub(crate) fn visit_after(&'static self, number: u64) -> Option<Visit<M>> {
        self.visit_next(number, |_| true)
    }

    /// The same of those that `is_meant` accepts.
    pub(crate) fn visit_next(
        &'static self,
        number: u64,
        is_meant: impl Fn(&AddressSpace<M>) -> bool,
    ) -> Option<Visit<M>> {
        let spaces = self.keep_spaces();
        let mut next: Option<&AddressSpace<M>> = None;
        let _ = spaces.try_for_each(|space| {
            let is_lower = next.is_none_or(|next| space.number() < next.number());
            if space.number() > number && is_lower && is_meant(space) {
                // SAFETY: the space stays as long as the list is locked, and then waits for the walk that is counted
                // below.
                next = unsafe { AddressSpace::at(space.expose()) };
            }
            Ok::<(), ()>(())
        });
        let next = next?;
        next.place.walkers.enter();
        // SAFETY: as above.
        unsafe { AddressSpace::at(next.expose()) }.map(Visit)
    }
}

/// The locked list: all spaces stay.
pub(crate) struct AllSpaces<'a, M: Machine> {
    list: SpinGuard<'a, List>,
    _machine: PhantomData<M>,
}

impl<M: Machine> Memory<M> {
    /// Locks the list, which keeps all address spaces.
    pub(crate) fn keep_spaces(&'static self) -> AllSpaces<'static, M> {
        AllSpaces {
            list: self.spaces.lock(self.machine()),
            _machine: PhantomData,
        }
    }
}

impl<M: Machine> AllSpaces<'_, M> {
    /// Returns the first space of the list.
    pub(crate) fn first(&self) -> Option<&AddressSpace<M>> {
        // SAFETY: under the lock, and hooks stay in the list until their spaces end.
        let hook = unsafe { self.list.first() }?;
        Some(Self::of(hook))
    }

    /// Puts the first space of the list behind all others.
    pub(crate) fn rotate(&mut self) {
        // SAFETY: as above; the hook is put in again at once.
        unsafe {
            if let Some(hook) = self.list.first() {
                self.list.remove(hook);
                self.list.push(hook);
            }
        }
    }

    /// Returns the number of spaces.
    pub(crate) fn count(&self) -> u64 {
        let mut count = 0;
        let _ = self.try_for_each(|_| {
            count += 1;
            Ok::<(), core::convert::Infallible>(())
        });
        count
    }

    /// Returns the space of a hook in the list.
    fn of(hook: &Hook) -> &AddressSpace<M> {
        let offset = offset_of!(AddressSpace<M>, place) + offset_of!(SpaceLink, hook);
        let space = core::ptr::from_ref(hook).addr() - offset;
        // SAFETY: the hook lies in a space, which was exposed when it was listed, and does not end under the lock.
        unsafe { &*core::ptr::with_exposed_provenance::<AddressSpace<M>>(space) }
    }

    /// Calls `visit` with every address space until that fails.
    pub(crate) fn try_for_each<E>(
        &self,
        mut visit: impl FnMut(&AddressSpace<M>) -> Result<(), E>,
    ) -> Result<(), E> {
        // SAFETY: under the lock, and hooks stay in the list until their spaces end.
        let mut next = unsafe { self.list.first() };
        while let Some(hook) = next {
            visit(Self::of(hook))?;
            // SAFETY: as above.
            next = unsafe { self.list.next(hook) };
        }
        Ok(())
    }
}
