//! Probes: breakpoints in files, which every program meets that runs them from private memory. Linux's
//! name for it is uprobes.
//!
//! A [`Probe`] names a byte of a store. As long as it is there, each private mapping of the store that
//! cannot be written, and has the byte, shows a breakpoint in its place: the space gets a copy of the
//! page, as from any write by who may pass over protections ([`crate::AddressSpace::access`]). It is
//! put there when the probe is registered, in all spaces; and when such a mapping comes, by `mmap`,
//! `mremap` or `fork` ([`crate::probed`]). The file stays as it is. What a program does to its private
//! copy is its affair: `MADV_DONTNEED` takes the breakpoint away with it, as on Linux.
//!
//! # Nobody is forgotten
//!
//! Who registers adds the probe to the list, and then walks the store's mappings, in each of which he
//! waits until nobody has the range. Who maps has the range while he changes the tree, and looks
//! afterwards whether there are probes. Whoever has the range first is seen by the other; and if
//! the mapping enters the store's list behind the walk, that list's lock says the same. Who puts a breakpoint in place looks once more, under the entry's claim, whether the probe
//! is still registered; who ends one has taken it out before he goes through the mappings and claims
//! the entries: he finds the breakpoint, or it is not put there.
//!
//! A child that is being made is visited when it is whole: a fork has its ranges until then.
//!
//! Without any probe all this costs a look at a count that nobody writes, when mappings change. A
//! fault knows nothing of it.
//!
//! Written lines: the list and its count, by who registers and ends.

use core::cell::Cell;
use core::ops::Range;
use core::ptr::NonNull;

use faultless_frames::{Books, Misuse, Slab, Use};
use faultless_paging::{Frame, PAGE_SIZE, Pages};
use faultless_sync::SpinLock;
use faultless_sync::atomic::{AtomicU32, Ordering};

use crate::errno::Errno;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::store::list::{Hook, List};
use crate::store::{Cache, Store};

/// All probes of a machine.
pub(crate) struct Probes {
    count: AtomicU32,
    list: SpinLock<List>,
}

/// A probe in the list. What is known of it never changes.
#[repr(C)]
pub(crate) struct Body {
    hook: Hook,
    cache: NonNull<Cache>,
    known: Known,
}

/// What is known of a probe.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    /// The byte of the store.
    pub(crate) byte: u64,
    /// What programs find there.
    pub(crate) breakpoint: u8,
    /// What the store had there.
    pub(crate) original: u8,
    /// The port's name for it.
    pub(crate) tag: u64,
}

impl Probes {
    pub(crate) fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
            list: SpinLock::new(List::new()),
        }
    }

    /// Whether there are any. Relaxed: see above.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }
}

/// A breakpoint in a store, until this is dropped.
///
/// To drop it takes it away again in all spaces, which may wait for those who change mappings and
/// bring pages; so does to register it. With no lock held.
pub struct Probe<M: Machine> {
    store: Store<M>,
    body: NonNull<Body>,
}

// SAFETY: what it leads to is never written while it is there.
unsafe impl<M: Machine> Send for Probe<M> {}
// SAFETY: as above.
unsafe impl<M: Machine> Sync for Probe<M> {}

impl<M: Machine> Probe<M> {
    /// Lets programs find `breakpoint` at a byte of a store. `tag` is the port's name for it.
    ///
    /// # Errors
    /// `EINVAL` behind the store's end, `EEXIST` where there is a probe already, `ENOMEM`, and what
    /// reading the page in failed with: there is no probe then.
    pub fn register(store: &Store<M>, byte: u64, breakpoint: u8, tag: u64) -> Result<Self, Errno> {
        let memory = store.memory();
        if byte >= store.size() {
            return Err(Errno::EINVAL);
        }
        let page = store.page(byte / PAGE_SIZE)?;
        let original = page.map_or(0, |page| memory.byte_in(page.frame(), byte));
        let body = memory.allocate_probe()?;
        let content = Body {
            hook: Hook::new(),
            cache: store.pointer(),
            known: Known {
                byte,
                breakpoint,
                original,
                tag,
            },
        };
        let probes = memory.probes();
        let mut list = probes.list.lock(memory.machine());
        if find(&list, store.cache(), byte..byte.saturating_add(1)).is_some() {
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
        };
        probe.install()?;
        Ok(probe)
    }

    fn known(&self) -> Known {
        // SAFETY: it stays until the drop.
        unsafe { self.body.as_ref() }.known
    }

    /// Puts the breakpoint into all spaces.
    fn install(&self) -> Result<(), Errno> {
        let (known, result) = (self.known(), Cell::new(Ok(())));
        self.store.for_each_mapping(|space, first| {
            let page = (known.byte / PAGE_SIZE).wrapping_sub(first);
            space.await_change(page);
            if let Err(error) = space.install_probe(page, (self.store.cache(), first), &known) {
                result.set(Err(error));
            }
        });
        result.get()
    }
}

impl<M: Machine> Drop for Probe<M> {
    fn drop(&mut self) {
        let (memory, known) = (self.store.memory(), self.known());
        let probes = memory.probes();
        let mut list = probes.list.lock(memory.machine());
        // SAFETY: in the list since it was made.
        unsafe { list.remove(&self.body.as_ref().hook) };
        probes.count.fetch_sub(1, Ordering::Relaxed);
        drop(list);
        self.store.for_each_mapping(|space, first| {
            let page = (known.byte / PAGE_SIZE).wrapping_sub(first);
            space.await_change(page);
            space.remove_probe(page, (self.store.cache(), first), &known);
        });
        memory.free_probe(self.body);
    }
}

/// The first probe of a store in a range of its bytes.
fn find(list: &List, cache: *const Cache, bytes: Range<u64>) -> Option<Known> {
    let mut found: Option<Known> = None;
    // SAFETY: the caller has the list's lock, and what is in it stays until it is removed.
    let mut next = unsafe { list.first() };
    while let Some(hook) = next {
        let at = core::ptr::from_ref(hook).addr();
        // SAFETY: the hook is the first field of a probe's body, which was exposed.
        let body = unsafe { &*core::ptr::with_exposed_provenance::<Body>(at) };
        let known = body.known;
        let is_first = found.is_none_or(|found| known.byte < found.byte);
        if core::ptr::eq(body.cache.as_ptr(), cache) && bytes.contains(&known.byte) && is_first {
            found = Some(known);
        }
        // SAFETY: as above.
        next = unsafe { list.next(hook) };
    }
    found
}

impl<M: Machine> Memory<M> {
    /// The first probe of a store in a range of its bytes. The store, which is not looked at, may be
    /// gone: what has a probe is not.
    pub(crate) fn find_probe(&self, cache: *const Cache, bytes: Range<u64>) -> Option<Known> {
        find(&self.probes().list.lock(self.machine()), cache, bytes)
    }

    /// The first probe in pages that show a store from the page `index` on.
    pub(crate) fn probe_in(&self, cache: *const Cache, index: u64, pages: Pages) -> Option<Known> {
        let start = index.saturating_mul(PAGE_SIZE);
        let end = start.saturating_add(pages.len().saturating_mul(PAGE_SIZE));
        self.find_probe(cache, start..end)
    }

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

    /// Enters the objects of all probes, for who verifies the machine.
    pub(crate) fn enter_probes(&self, books: &Books) -> Result<(), Misuse> {
        let list = self.probes().list.lock(self.machine());
        // SAFETY: under the lock.
        let mut next = unsafe { list.first() };
        while let Some(hook) = next {
            // SAFETY: a probe's body is an object of a slab, and begins with its hook.
            let frame = unsafe { Slab::frame_of(NonNull::from(hook).cast()) };
            books.enter(frame, Use::SLAB)?;
            // SAFETY: as above.
            next = unsafe { list.next(hook) };
        }
        Ok(())
    }
}
