//! Probes: breakpoints in files, for every program that runs them from private memory (Linux: uprobes).
//!
//! A [`Probe`] names a byte of a memory object. While it exists, each private mapping of the object that has
//! the byte and cannot be written shows a breakpoint in its place. The space gets a copy of the page, as from
//! any write that may pass over protections ([`crate::AddressSpace::access`]). The breakpoint is installed in
//! all spaces when the probe is registered. It is also installed when `mmap`, `mremap` or `fork` makes such a
//! mapping ([`crate::probe::space`]). The file does not change.
//!
//! A program may change its private copy: `MADV_DONTNEED` removes the breakpoint with it, as on Linux. Also as
//! on Linux, a mapping that was writable when it was made shows none when `mprotect` makes it executable.
//!
//! # No mapping is missed
//!
//! * Registration adds the probe to the list, and then visits the object's mappings. In each it waits until no
//!   operation holds the range. A writer that maps holds the range while it changes the tree, and checks for
//!   probes afterwards. Whichever holds the range first is seen by the other. If the mapping enters the
//!   object's list behind the walk, the lock of that list orders the two in the same way.
//! * A breakpoint is installed after one more check, under the entry's claim, that the probe is registered and
//!   not *ending*. The end of a probe says so before it visits the mappings. Either it finds the breakpoint, or
//!   the breakpoint is not installed.
//! * A probe stays in the list while it is ending, because its breakpoints may still be there. No other probe
//!   can be registered at the byte: the breakpoints of the first would be taken for its own. The probe leaves
//!   the list when no mapping shows it.
//! * To remove a breakpoint may need a copy of its page, or that its copy comes back from a swap device. Without memory
//!   for that, or if the device fails, the probe stays, as ending.
//!   If it has no owner any more, it is *left*: the next registration or end of a probe of the object tries
//!   again. At the latest it is freed with the object, to which no mapping leads then.
//! * A child that is being made is visited when it is complete: a fork holds its ranges until then.
//!
//! Without any probe, a change of mappings reads one count that nothing writes. A fault does nothing for
//! probes.
//!
//! *Writes*: the list and its count, when a probe is registered or ends.
//!
//! *Models*: loom `probe/probes.rs`, shuttle `probe/probes.rs`.

use core::cell::Cell;
use core::ptr::NonNull;

use faultless_paging::{Frame, PAGE_SIZE};
use faultless_sync::atomic::{Local, Ordering};
use faultless_sync::{Mutant, mutant};

use crate::base::errno::Errno;
use crate::base::list::Hook;
use crate::base::machine::Machine;
use crate::base::memory::{Kind, Memory};
use crate::object::MemoryObject;
use crate::object::probe::{Body, ENDING, LEFT, ProbeFilter, ProbeInfo, REGISTERED, bodies, find};
use crate::probe::space::{await_change, install_probe, remove_probe};

/// A breakpoint in a memory object, until it is ended or dropped.
///
/// To drop it removes it from all spaces. That and registration may wait for writers that change mappings, and
/// bring pages. The caller holds no lock. Without memory for the removal, or if a swap device fails, breakpoints stay, and stay this
/// probe's ([`crate::AddressSpace::probe_at`]). The next registration or end of a probe of the object tries
/// again; with the object they are freed at the latest. [`Probe::end`] reports that.
pub struct Probe<M: Machine> {
    store: MemoryObject<M>,
    body: NonNull<Body>,
    is_ended: bool,
}

// SAFETY: what it leads to is written only under the list's lock while it is there.
unsafe impl<M: Machine> Send for Probe<M> {}
// SAFETY: as above.
unsafe impl<M: Machine> Sync for Probe<M> {}

impl<M: Machine> Probe<M> {
    /// Lets programs find `breakpoint` at a byte of an object. `tag` is the port's name for the probe.
    ///
    /// # Errors
    /// `EINVAL` behind the object's end; `EEXIST` where there is a probe already, or one with breakpoints that
    /// are being removed or could not be; `ENOMEM`, and any error of reading the page in. There is no probe
    /// then.
    ///
    /// When the probe has ended, programs find the byte that the object has now, whatever is written to it
    /// later.
    pub fn register(
        store: &MemoryObject<M>,
        byte: u64,
        breakpoint: u8,
        tag: u64,
    ) -> Result<Self, Errno> {
        let memory = store.memory();
        if byte >= store.size() {
            return Err(Errno::EINVAL);
        }
        store.end_left_probes();
        let page = store.page(byte / PAGE_SIZE)?;
        let original = page.map_or(0, |page| memory.byte_in(page.frame(), byte));
        let body = memory.allocate(Kind::Probe)?.cast::<Body>();
        let content = Body {
            hook: Hook::new(),
            cache: store.pointer(),
            known: ProbeInfo {
                byte,
                breakpoint,
                original,
                tag,
            },
            state: Local::new(REGISTERED),
        };
        let probes = &memory.probes;
        let mut list = probes.list.lock(memory.machine());
        let bytes = byte..byte.saturating_add(1);
        if find(&list, store.cache(), bytes, ProbeFilter::Listed).is_some() {
            drop(list);
            memory.free_probe(body);
            return Err(Errno::EEXIST);
        }
        let _ = body.as_ptr().expose_provenance();
        // SAFETY: fresh memory of its size and alignment; in the list until the probe is dropped.
        unsafe {
            body.write(content);
            list.push(&body.as_ref().hook);
        }
        probes.count.fetch_add(1, Ordering::Relaxed);
        drop(list);
        let probe = Self {
            store: store.clone(),
            body,
            is_ended: false,
        };
        probe.install()?;
        Ok(probe)
    }

    /// Ends the probe, as dropping it does.
    ///
    /// # Errors
    /// `ENOMEM`, or `EIO` if a swap device fails: some spaces still show it, and no other will. It can be ended again.
    pub fn end(mut self) -> Result<(), (Self, Errno)> {
        match self.store.end_probe(self.body) {
            Ok(()) => {
                self.is_ended = true;
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }

    /// Installs the breakpoint in all spaces.
    fn install(&self) -> Result<(), Errno> {
        // SAFETY: it stays until the end.
        let known = unsafe { self.body.as_ref() }.known;
        let result = Cell::new(Ok(()));
        self.store.for_each_mapping(|space, first| {
            let page = (known.byte / PAGE_SIZE).wrapping_sub(first);
            await_change(space, page);
            if let Err(error) = install_probe(space, page, (self.store.cache(), first), &known) {
                result.set(Err(error));
            }
        });
        result.get()
    }
}

impl<M: Machine> Drop for Probe<M> {
    fn drop(&mut self) {
        if !self.is_ended && self.store.end_probe(self.body).is_err() {
            self.store.set_probe(self.body, LEFT);
            return;
        }
        self.store.end_left_probes();
    }
}

impl<M: Machine> MemoryObject<M> {
    /// Removes a probe's breakpoints, and then the probe. If one cannot be removed, the probe stays, as ending.
    fn end_probe(&self, body: NonNull<Body>) -> Result<(), Errno> {
        let memory = self.memory();
        // SAFETY: it stays until the end of this, and only the caller uses it.
        let known = unsafe { body.as_ref() }.known;
        self.set_probe(body, ENDING);
        let is_early = mutant(Mutant::ProbeUnlistedFirst);
        if is_early {
            memory.unlist_probe(body);
        }
        let result = Cell::new(Ok(()));
        self.for_each_mapping(|space, first| {
            let page = (known.byte / PAGE_SIZE).wrapping_sub(first);
            if let Err(error) = remove_probe(space, page, (self.cache(), first), &known) {
                result.set(Err(error));
            }
        });
        result.get()?;
        if !is_early {
            memory.unlist_probe(body);
        }
        memory.free_probe(body);
        Ok(())
    }

    fn set_probe(&self, body: NonNull<Body>, state: u64) {
        let memory = self.memory();
        let _list = memory.probes.list.lock(memory.machine());
        // SAFETY: the caller owns it.
        unsafe { body.as_ref() }.state.set(state);
    }

    /// Ends the probes of the object that were left.
    fn end_left_probes(&self) {
        while let Some(body) = self.adopt_left() {
            if self.end_probe(body).is_err() {
                self.set_probe(body, LEFT);
                return;
            }
        }
    }

    /// Returns a probe of the object that was left, which is now the caller's.
    fn adopt_left(&self) -> Option<NonNull<Body>> {
        let memory = self.memory();
        if !memory.has_probes() {
            return None;
        }
        let list = memory.probes.list.lock(memory.machine());
        let left =
            bodies(&list).find(|body| body.is_of(self.cache()) && body.state.get() == LEFT)?;
        left.state.set(ENDING);
        Some(left.pointer())
    }
}

impl<M: Machine> Memory<M> {
    /// Reads a byte of a page's frame, which the caller keeps from being reused. Programs may write it
    /// meanwhile.
    pub(crate) fn byte_in(&self, frame: Frame, byte: u64) -> u8 {
        // SAFETY: inside the frame.
        unsafe { self.place_in(frame, byte).read_volatile() }
    }

    /// Writes such a byte.
    pub(crate) fn set_byte_in(&self, frame: Frame, byte: u64, to: u8) {
        // SAFETY: inside the frame.
        unsafe { self.place_in(frame, byte).write_volatile(to) };
    }

    fn place_in(&self, frame: Frame, byte: u64) -> *mut u8 {
        let start = self.machine().pointer(frame).as_ptr();
        start.wrapping_add((byte % PAGE_SIZE) as usize)
    }
}
