//! The registered probes, by the byte of the object at which each one is.
//!
//! [`crate::probe`] applies them to address spaces. Without any probe, a writer that changes mappings reads one
//! count that nothing writes.
//!
//! *Writes*: the list and its count, when a probe is registered or ended.

use core::ops::Range;
use core::ptr::NonNull;

use faultless_frames::{FrameAudit, Misuse, Slab, Use};
use faultless_paging::{PAGE_SIZE, Pages};
use faultless_sync::atomic::{Local, Ordering};

use crate::base::list::{Hook, List};
use crate::base::machine::Machine;
use crate::base::memory::{Kind, Memory};
use crate::object::ObjectInner;

/// A probe in the list. `known` never changes.
#[repr(C)]
pub(crate) struct Body {
    pub(crate) hook: Hook,
    pub(crate) cache: NonNull<ObjectInner>,
    pub(crate) known: ProbeInfo,
    /// One of the states below, under the list's lock.
    pub(crate) state: Local,
}

/// Breakpoints are installed.
pub(crate) const REGISTERED: u64 = 0;
/// Breakpoints are being removed, or could not be, and the probe has an owner.
pub(crate) const ENDING: u64 = 1;
/// Breakpoints could not be removed, and the probe has no owner.
pub(crate) const LEFT: u64 = 2;

/// Which probes a search finds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeFilter {
    /// All that may have breakpoints.
    Listed,
    /// Those that get further breakpoints.
    Registered,
}

/// The description of a probe.
#[derive(Clone, Copy)]
pub(crate) struct ProbeInfo {
    /// The byte of the object.
    pub(crate) byte: u64,
    /// What programs find there.
    pub(crate) breakpoint: u8,
    /// What the object had there.
    pub(crate) original: u8,
    /// The port's name for the probe.
    pub(crate) tag: u64,
}

impl Body {
    pub(crate) fn is_of(&self, cache: *const ObjectInner) -> bool {
        core::ptr::eq(self.cache.as_ptr(), cache)
    }

    fn is(&self, which: ProbeFilter) -> bool {
        which == ProbeFilter::Listed || self.state.get() == REGISTERED
    }

    /// Returns a pointer with the provenance that was exposed.
    pub(crate) fn pointer(&self) -> NonNull<Self> {
        let at = core::ptr::from_ref(self).addr();
        let body = core::ptr::with_exposed_provenance_mut(at);
        // SAFETY: the address of a reference.
        unsafe { NonNull::new_unchecked(body) }
    }
}

/// Returns the probes in the list.
pub(crate) fn bodies(list: &List) -> impl Iterator<Item = &Body> {
    // SAFETY: the caller holds the list's lock, and what is in it stays until it is removed.
    let first = unsafe { list.first() };
    // SAFETY: as above.
    let hooks = core::iter::successors(first, |hook| unsafe { list.next(hook) });
    hooks.map(|hook| {
        let at = core::ptr::from_ref::<Hook>(hook).addr();
        // SAFETY: the hook is the first field of a probe's body, which was exposed.
        unsafe { &*core::ptr::with_exposed_provenance::<Body>(at) }
    })
}

/// Returns the first probe of an object in a range of its bytes.
pub(crate) fn find(
    list: &List,
    cache: *const ObjectInner,
    bytes: Range<u64>,
    which: ProbeFilter,
) -> Option<ProbeInfo> {
    bodies(list)
        .filter(|body| body.is_of(cache) && bytes.contains(&body.known.byte) && body.is(which))
        .map(|body| body.known)
        .min_by_key(|known| known.byte)
}

impl<M: Machine> Memory<M> {
    /// Whether there are probes. Relaxed: see [`crate::probe::list`].
    #[inline]
    pub(crate) fn has_probes(&self) -> bool {
        self.probes.count.load(Ordering::Relaxed) != 0
    }

    /// Frees the body of a probe that is in no list.
    pub(crate) fn free_probe(&self, body: NonNull<Body>) {
        // SAFETY: allocated as a probe, and the caller has the last pointer.
        unsafe { self.free(Kind::Probe, body.cast()) };
    }

    /// Returns the first probe of an object in a range of its bytes. The object is not accessed and may be
    /// freed already; one that has a probe is not.
    pub(crate) fn find_probe(
        &self,
        cache: *const ObjectInner,
        bytes: Range<u64>,
        which: ProbeFilter,
    ) -> Option<ProbeInfo> {
        let list = self.probes.list.lock(self.machine());
        find(&list, cache, bytes, which)
    }

    /// Returns the first probe in pages that show an object from the page `index` on.
    pub(crate) fn probe_in(
        &self,
        cache: *const ObjectInner,
        index: u64,
        pages: Pages,
        which: ProbeFilter,
    ) -> Option<ProbeInfo> {
        let start = index.saturating_mul(PAGE_SIZE);
        let end = start.saturating_add(pages.len().saturating_mul(PAGE_SIZE));
        self.find_probe(cache, start..end, which)
    }

    pub(crate) fn unlist_probe(&self, body: NonNull<Body>) {
        let mut list = self.probes.list.lock(self.machine());
        // SAFETY: in the list since it was made, and the caller's to end.
        unsafe { list.remove(&body.as_ref().hook) };
        self.probes.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Frees the probes that are left, when their object is freed. They have no owner, and nothing shows them.
    pub(crate) fn forget_probes(&self, cache: *const ObjectInner) {
        // A probe that was left was counted by a holder of the object.
        while self.has_probes() {
            let list = self.probes.list.lock(self.machine());
            let left = bodies(&list)
                .find(|body| body.is_of(cache))
                .map(Body::pointer);
            drop(list);
            let Some(body) = left else { return };
            self.unlist_probe(body);
            self.free_probe(body);
        }
    }

    /// Enters the slab objects of all probes into the frame audit.
    pub(crate) fn enter_probes(&self, audit: &FrameAudit) -> Result<(), Misuse> {
        let list = self.probes.list.lock(self.machine());
        // SAFETY: under the lock.
        let mut next = unsafe { list.first() };
        while let Some(hook) = next {
            // SAFETY: a probe's body is an object of a slab, and begins with its hook.
            let frame = unsafe { Slab::frame_of(NonNull::from(hook).cast()) };
            audit.enter(frame, Use::SLAB)?;
            // SAFETY: as above.
            next = unsafe { list.next(hook) };
        }
        Ok(())
    }
}
