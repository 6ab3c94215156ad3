//! A userfaultfd: the handler, in user mode, of faults on the mappings that are registered with it.
//!
//! A fault that the handler has to resolve leaves a message ([`queue`]), lets go of everything, and parks. The
//! handler reads the message, puts a page into the entry, and wakes the fault, which tries again. No lock of the
//! space is held meanwhile, and nothing else waits for the fault.
//!
//! * A registered mapping holds its userfaultfd ([`Handler`]). A fault that found the mapping in a read section may
//!   therefore hold it, too, and keeps it until the fault ends.
//! * A port makes one with [`Userfault::new`], registers mappings of one address space with it
//!   ([`crate::AddressSpace::register`]), and ends it with [`crate::AddressSpace::close_userfault`].
//! * Nothing of it is in the way of a fault on any other mapping.
//!
//! *Writes*: the count of holders when mappings are made and freed, and by faults that wait; the queue, under its
//! lock.

pub mod numbers;
pub(crate) mod queue;

use numbers as userfault;

use core::ptr::NonNull;

use faultless_frames::NoMemory;
use faultless_sync::SpinLock;
use faultless_sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::base::list::Hook;
use crate::base::machine::Machine;
use crate::base::memory::{Kind, Memory};
use queue::Queue;

/// What the holders of a userfaultfd share.
#[repr(C, align(64))]
pub(crate) struct UserfaultInner {
    /// Handles, mappings, and faults that wait or are about to.
    holders: AtomicU64,
    features: AtomicU64,
    /// The port's name for it.
    pub(crate) tag: AtomicU64,
    /// The number of entries in the queue. Written under its lock.
    pub(crate) waiting: AtomicU32,
    /// The number of messages to be read. Written under the lock.
    pub(crate) unread: AtomicU32,
    /// Changes of mappings that wait for an event to be read.
    pub(crate) changing: AtomicU32,
    pub(crate) queue: SpinLock<Queue>,
    /// Its hook in the list of all userfaultfds.
    hook: Hook,
}

impl UserfaultInner {
    pub(crate) fn has(&self, feature: u64) -> bool {
        self.features.load(Ordering::Relaxed) & feature != 0
    }

    /// Adds features.
    fn set(&self, features: u64) {
        self.features.fetch_or(features, Ordering::Relaxed);
    }

    fn hold(&self) {
        self.holders.fetch_add(1, Ordering::Relaxed);
    }
}

/// A handle that holds a userfaultfd.
pub struct Userfault<M: Machine> {
    pub(crate) memory: &'static Memory<M>,
    inner: NonNull<UserfaultInner>,
}

// SAFETY: shared through atomics and a lock.
unsafe impl<M: Machine> Send for Userfault<M> {}
// SAFETY: as above.
unsafe impl<M: Machine> Sync for Userfault<M> {}

impl<M: Machine> Userfault<M> {
    /// Makes one. `tag` is the port's name for it ([`Machine::has_message`]).
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(memory: &'static Memory<M>, tag: u64) -> Result<Self, NoMemory> {
        let inner = memory.allocate(Kind::Userfault)?.cast::<UserfaultInner>();
        let content = UserfaultInner {
            holders: AtomicU64::new(1),
            features: AtomicU64::new(0),
            tag: AtomicU64::new(tag),
            waiting: AtomicU32::new(0),
            unread: AtomicU32::new(0),
            changing: AtomicU32::new(0),
            queue: SpinLock::new(Queue::new()),
            hook: Hook::new(),
        };
        let mut all = memory.userfaults.lock(memory.machine());
        let _ = inner.as_ptr().expose_provenance();
        // SAFETY: fresh memory of its size and alignment; in the list until it is freed.
        unsafe {
            inner.write(content);
            all.push(&inner.as_ref().hook);
        }
        drop(all);
        Ok(Self { memory, inner })
    }

    /// Sets the port's name for it: for one that a fork has made, which has the name 0 until then, and of which
    /// nothing is reported ([`crate::AddressSpace::fork_beside_handlers`]).
    pub fn set_tag(&self, tag: u64) {
        self.inner().tag.store(tag, Ordering::Release);
    }

    /// Makes one for the child of a fork, with the same features.
    pub(crate) fn for_child(&self) -> Result<Self, NoMemory> {
        let child = Self::new(self.memory, 0)?;
        child.set_features(self.features() & !userfault::CLOSED);
        Ok(child)
    }

    /// Returns another handle to it.
    pub fn again(&self) -> Self {
        self.inner().hold();
        Self { ..*self }
    }

    /// Adds features, before anything is registered ([`userfault`]).
    pub fn set_features(&self, features: u64) {
        self.inner().set(features);
    }

    /// Returns the features that were added.
    pub fn features(&self) -> u64 {
        self.inner().features.load(Ordering::Relaxed)
    }

    /// Whether it has one of these features.
    pub fn has(&self, feature: u64) -> bool {
        self.inner().has(feature)
    }

    /// Returns a handle to the one that a mapping, found in this section, holds.
    pub(crate) fn of(memory: &'static Memory<M>, handler: Handler) -> Option<Self> {
        let inner = handler.pointer()?;
        // SAFETY: the mapping holds it until no reader can use the mapping.
        unsafe { inner.as_ref() }.hold();
        Some(Self { memory, inner })
    }

    pub(crate) fn inner(&self) -> &UserfaultInner {
        // SAFETY: held.
        unsafe { self.inner.as_ref() }
    }

    /// Returns the registration of a mapping with it, for these modes.
    pub(crate) fn handler(&self, modes: u64) -> Handler {
        let address = self.inner.as_ptr().expose_provenance() as u64;
        Handler(address | modes & userfault::MODES)
    }

    pub(crate) fn machine(&self) -> &'static M {
        self.memory.machine()
    }
}

impl<M: Machine> Drop for Userfault<M> {
    fn drop(&mut self) {
        self.memory.put_userfault(self.inner);
    }
}

/// A mapping's registration with a userfaultfd: which one, and for what.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Handler(u64);

impl core::fmt::Debug for Handler {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Handler({:#x})", self.0 & userfault::MODES)
    }
}

impl Handler {
    /// No registration.
    pub const NONE: Handler = Handler(0);

    /// Whether there is none.
    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether it is registered for one of these modes ([`userfault`]).
    #[inline]
    pub fn has(self, modes: u64) -> bool {
        self.0 & modes & userfault::MODES != 0
    }

    /// Whether faults of one of these modes wait for its handler, which has not gone. The mapping of which this is
    /// an attribute holds the userfaultfd.
    #[inline]
    pub(crate) fn waits(self, modes: u64) -> bool {
        self.has(modes) && !self.with_feature(userfault::CLOSED)
    }

    /// Whether it is registered for all of these modes.
    pub(crate) fn has_all(self, modes: u64) -> bool {
        self.0 & modes == modes
    }

    /// Returns the modes for which it is registered.
    pub fn modes(self) -> u64 {
        self.0 & userfault::MODES
    }

    /// Whether stores to its pages can be reported.
    #[inline]
    pub(crate) fn reports_writes(self) -> bool {
        self.has(userfault::WRITE_PROTECT)
    }

    /// Whether it is with this userfaultfd.
    pub fn is_with<M: Machine>(self, other: &Userfault<M>) -> bool {
        self.pointer() == Some(other.inner)
    }

    /// Whether both are with the same userfaultfd, or with none.
    pub(crate) fn is_beside(self, other: Handler) -> bool {
        self.pointer() == other.pointer()
    }

    fn pointer(self) -> Option<NonNull<UserfaultInner>> {
        let address = (self.0 & !userfault::MODES) as usize;
        NonNull::new(core::ptr::with_exposed_provenance_mut(address))
    }

    /// Whether its userfaultfd has one of these features. The mapping of which this is an attribute holds it.
    pub(crate) fn with_feature(self, features: u64) -> bool {
        // SAFETY: held by the mapping.
        self.pointer()
            .is_some_and(|inner| unsafe { inner.as_ref() }.has(features))
    }

    /// Holds the userfaultfd for a mapping that is made.
    #[inline]
    pub(crate) fn hold(self) {
        if let Some(inner) = self.pointer() {
            // SAFETY: the caller holds it, by a handle or by another mapping.
            unsafe { inner.as_ref() }.hold();
        }
    }

    /// Lets go of it, for a mapping that is freed.
    #[inline]
    pub(crate) fn release<M: Machine>(self, memory: &Memory<M>) {
        if let Some(inner) = self.pointer() {
            memory.put_userfault(inner);
        }
    }
}

impl<M: Machine> Memory<M> {
    /// Calls `visit` with each userfaultfd, until that fails.
    pub(crate) fn for_each_userfault<E>(
        &self,
        visit: &mut dyn FnMut(NonNull<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let all = self.userfaults.lock(self.machine());
        // SAFETY: under the lock, and each stays in the list until it is freed.
        let mut next = unsafe { all.first() };
        while let Some(hook) = next {
            let offset = core::mem::offset_of!(UserfaultInner, hook);
            let address = core::ptr::from_ref(hook).addr() - offset;
            if let Some(inner) = NonNull::new(core::ptr::with_exposed_provenance_mut(address)) {
                visit(inner)?;
            }
            // SAFETY: as above.
            next = unsafe { all.next(hook) };
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn put_userfault(&self, inner: NonNull<UserfaultInner>) {
        // SAFETY: held until here.
        let holders = unsafe { &inner.as_ref().holders };
        // Release and acquire: what every holder did precedes the end.
        if holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            let mut all = self.userfaults.lock(self.machine());
            // SAFETY: in the list since it was made.
            unsafe { all.remove(&inner.as_ref().hook) };
            drop(all);
            // SAFETY: allocated as this kind, and no holder is left.
            unsafe { self.free(Kind::Userfault, inner.cast()) };
        }
    }
}
