//! Probes: breakpoints in files, which every program meets that runs them from private memory. Linux's
//! name for it is uprobes.
//!
//! A [`Probe`] names a byte of a store. As long as it is there, each private mapping of the store that
//! cannot be written, and has the byte, shows a breakpoint in its place: the space gets a copy of the
//! page, as from any write by who may pass over protections ([`crate::AddressSpace::access`]). It is
//! put there when the probe is registered, in all spaces; and when such a mapping comes, by `mmap`,
//! `mremap` or `fork` ([`crate::probe::space`]). The file stays as it is. What a program does to its private
//! copy is its affair: `MADV_DONTNEED` takes the breakpoint away with it, as on Linux. And as there, a
//! mapping that was writable when it came shows none when `mprotect` makes it executable.
//!
//! # Nobody is forgotten
//!
//! Who registers adds the probe to the list, and then walks the store's mappings, in each of which he
//! waits until nobody has the range. Who maps has the range while he changes the tree, and looks
//! afterwards whether there are probes. Whoever has the range first is seen by the other; and if
//! the mapping enters the store's list behind the walk, that list's lock says the same. Who puts a
//! breakpoint in place looks once more, under the entry's claim, whether the probe is still
//! registered and not *ending*; who ends one has said so before he goes through the mappings: he
//! finds the breakpoint, or it is not put there.
//!
//! While it ends a probe stays in the list: a breakpoint that is still there is somebody's, and nobody
//! registers another probe at the byte, whose breakpoints would be taken for those of the first. It
//! leaves the list when no mapping shows it. To take one away may need a copy of its page; where there
//! is no memory for that the probe stays, as ending. If nobody has it any more it is *left*: the next who
//! registers or ends a probe of the store tries again, and it goes at the latest with the store,
//! which no mapping leads to then.
//!
//! A child that is being made is visited when it is whole: a fork has its ranges until then.
//!
//! Without any probe all this costs a look at a count that nobody writes, when mappings change. A
//! fault knows nothing of it.
//!
//! Written lines: the list and its count, by who registers and ends.

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

/// A breakpoint in a store, until this is ended or dropped.
///
/// To drop it takes it away again in all spaces, which may wait for those who change mappings and
/// bring pages; so does to register it. With no lock held. Where there is no memory to do so
/// breakpoints stay, and stay this probe's ([`crate::AddressSpace::probe_at`]), until the next probe of
/// the store is registered or ended, or the store goes. Who wants to know calls [`Probe::end`].
pub struct Probe<M: Machine> {
    store: MemoryObject<M>,
    body: NonNull<Body>,
    is_ended: bool,
}

// SAFETY: what it leads to is never written while it is there, but under the list's lock.
unsafe impl<M: Machine> Send for Probe<M> {}
// SAFETY: as above.
unsafe impl<M: Machine> Sync for Probe<M> {}

impl<M: Machine> Probe<M> {
    /// Lets programs find `breakpoint` at a byte of a store. `tag` is the port's name for it.
    ///
    /// # Errors
    /// `EINVAL` behind the store's end, `EEXIST` where there is a probe already, or still one whose
    /// breakpoints are being taken away or could not be; `ENOMEM`, and what reading the page in failed
    /// with: there is no probe then.
    ///
    /// What programs find when the probe has ended is the byte that the store has now, whatever is
    /// written to it later.
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

    /// Ends it, as to drop it does.
    ///
    /// # Errors
    /// `ENOMEM`: some spaces show it still, no other will. It can be ended again.
    pub fn end(mut self) -> Result<(), (Self, Errno)> {
        match self.store.end_probe(self.body) {
            Ok(()) => {
                self.is_ended = true;
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }

    /// Puts the breakpoint into all spaces.
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
    /// Takes a probe's breakpoints away, and then the probe. If one cannot be it stays, as ending.
    fn end_probe(&self, body: NonNull<Body>) -> Result<(), Errno> {
        let memory = self.memory();
        // SAFETY: it stays until the end of this, which the caller alone has to do with.
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
        // SAFETY: the caller has it.
        unsafe { body.as_ref() }.state.set(state);
    }

    /// Ends what others have left of their probes.
    fn end_left_probes(&self) {
        while let Some(body) = self.adopt_left() {
            if self.end_probe(body).is_err() {
                self.set_probe(body, LEFT);
                return;
            }
        }
    }

    /// A probe of the store that was left, which is now the caller's.
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
    /// A byte of a page's frame, which the caller keeps what it is. Programs may write it meanwhile.
    pub(crate) fn byte_in(&self, frame: Frame, byte: u64) -> u8 {
        // SAFETY: inside the frame.
        unsafe { self.place_in(frame, byte).read_volatile() }
    }

    /// Sets it.
    pub(crate) fn set_byte_in(&self, frame: Frame, byte: u64, to: u8) {
        // SAFETY: inside the frame.
        unsafe { self.place_in(frame, byte).write_volatile(to) };
    }

    fn place_in(&self, frame: Frame, byte: u64) -> *mut u8 {
        let start = self.machine().pointer(frame).as_ptr();
        start.wrapping_add((byte % PAGE_SIZE) as usize)
    }
}
