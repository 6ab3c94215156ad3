//! Intrusive lists: each element contains a *hook*.
//!
//! Hooks are read and written under the lock that guards the list.

use faultless_sync::SpinLock;
use faultless_sync::atomic::{AtomicU32, Local};

/// The links to an element's neighbours.
#[repr(C)]
pub(crate) struct Hook {
    next: Local,
    previous: Local,
}

impl Hook {
    pub(crate) const fn new() -> Self {
        Self {
            next: Local::new(0),
            previous: Local::new(0),
        }
    }

    fn address(&self) -> u64 {
        core::ptr::from_ref(self).expose_provenance() as u64
    }
}

/// A doubly linked list of hooks, by address; 0 for none.
pub(crate) struct List {
    first: u64,
    last: u64,
}

/// Returns the hook at an address of the list.
///
/// # Safety
/// As for the methods of [`List`].
unsafe fn at<'a>(address: u64) -> Option<&'a Hook> {
    let hook = core::ptr::with_exposed_provenance::<Hook>(address as usize);
    // SAFETY: a hook in the list stays in place until it is removed.
    unsafe { hook.as_ref() }
}

impl List {
    pub(crate) const fn new() -> Self {
        Self { first: 0, last: 0 }
    }

    /// Returns the first hook.
    ///
    /// # Safety
    /// A hook that was put in stays there, and as it is, until it is removed. This holds for all methods
    /// below.
    pub(crate) unsafe fn first<'a>(&self) -> Option<&'a Hook> {
        // SAFETY: passed on to the caller.
        unsafe { at(self.first) }
    }

    /// Returns the hook behind one that is in the list.
    ///
    /// # Safety
    /// As for [`List::first`].
    pub(crate) unsafe fn next<'a>(&self, hook: &Hook) -> Option<&'a Hook> {
        // SAFETY: passed on to the caller.
        unsafe { at(hook.next.get()) }
    }

    /// Appends a hook.
    ///
    /// # Safety
    /// As for [`List::first`].
    pub(crate) unsafe fn push(&mut self, hook: &Hook) {
        // SAFETY: passed on to the caller.
        unsafe { self.insert(hook, at(self.last)) };
    }

    /// Inserts a hook behind `previous`, or first.
    ///
    /// # Safety
    /// As for [`List::first`].
    pub(crate) unsafe fn insert(&mut self, hook: &Hook, previous: Option<&Hook>) {
        let next = previous.map_or(self.first, |previous| previous.next.get());
        hook.previous.set(previous.map_or(0, Hook::address));
        hook.next.set(next);
        match previous {
            Some(previous) => previous.next.set(hook.address()),
            None => self.first = hook.address(),
        }
        // SAFETY: passed on to the caller.
        match unsafe { at(next) } {
            Some(next) => next.previous.set(hook.address()),
            None => self.last = hook.address(),
        }
    }

    /// Removes a hook that is in the list.
    ///
    /// # Safety
    /// As for [`List::first`].
    pub(crate) unsafe fn remove(&mut self, hook: &Hook) {
        let (previous, next) = (hook.previous.get(), hook.next.get());
        // SAFETY: passed on to the caller.
        match unsafe { at(previous) } {
            Some(previous) => previous.next.set(next),
            None => self.first = next,
        }
        // SAFETY: passed on to the caller.
        match unsafe { at(next) } {
            Some(next) => next.previous.set(previous),
            None => self.last = previous,
        }
    }
}

/// A list with a count that can be read without its lock.
pub(crate) struct CountedList {
    /// Written under the lock.
    pub(crate) count: AtomicU32,
    pub(crate) list: SpinLock<List>,
}

impl CountedList {
    pub(crate) fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
            list: SpinLock::new(List::new()),
        }
    }
}
