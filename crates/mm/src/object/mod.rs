//! Stores: pages that belong to a file or to shared memory, and not to one address
//! space. Linux's name for it is the page cache of an inode.
//!
//! A port makes a [`MemoryObject`] for each file and each piece of shared memory, reads and
//! writes its pages, and maps it ([`crate::AddressSpace::mmap_object`]). What it does not
//! have is filled through [`Pager`]; memory that begins as zeroes needs none.
//!
//! # Invariants
//!
//! * A page that is in its slot is held by the store: its descriptor has the mark and
//!   says which page of which store it is.
//! * No entry shows a page that has left its slot, once the truncation that took it
//!   out has returned (rule R6).
//! * Pages at or behind the size exist only while somebody adds them: whoever adds one
//!   looks at the size afterwards, a truncation at the slots.
//! * A store outlives every mapping that leads to it: a mapping holds it until no
//!   reader can look at that mapping.
//!
//! * `radix`: page number to frame, without a lock.
//! * `page`: finding, adding, pinning pages.
//! * `moving`: pages that go to another frame.
//! * `fill`: reading a page in, waiting for who does.
//! * `reverse`: the mappings of a store; taking pages away from all of them.
//! * `truncate`: a smaller size, and holes.
//! * `device`: a store that is no memory: its pages are a device's frames, in their order.
//! * `verify`: the books of all stores. `list`: what lies elsewhere, linked.
//!
//! Written lines: a fault writes the frame's descriptor, and a page's slot if it adds
//! the page. The count of holders and the list of mappings are written when mappings
//! come and go, the size by whoever writes the file.

pub(crate) mod device;
mod fill;
pub(crate) mod mappings;
mod moving;
pub(crate) mod page;
pub(crate) mod probe;
pub(crate) mod radix;

use core::ptr::NonNull;

use faultless_frames::{Descriptor, Flags, FrameSource, NoMemory};
use faultless_paging::{Frame, PAGE_SIZE};
use faultless_sync::SpinLock;
use faultless_sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::base::errno::Errno;
use crate::base::list::{Hook, List};
use crate::base::machine::Machine;
use crate::base::memory::{Kind, Memory};
use crate::tree::mapping::{AnyObject, ObjectRef};
pub use device::Device;
use device::Span;
pub(crate) use fill::WaitKind;
pub(crate) use moving::Moving;
pub use page::Pinned;
pub(crate) use page::{Lookup, PageRef};
pub(crate) use radix::Node;
use radix::{Nodes, PageSlot, Radix};

/// What stands behind a store: where its pages come from when they are needed, and who is
/// told when they come and go. All methods get the `tag` that the store was made with.
///
/// Pages that a truncation or a hole has taken away are asked for again when the store has
/// grown, or at once. The store does not remember that they are zeroes: the port tells its
/// device before it calls [`MemoryObject::truncate`] or [`MemoryObject::punch`], as a file system does.
pub trait Pager: Sync {
    /// Whether it has the page `index`. What it does not have begins as zeroes.
    fn has(&self, _tag: u64, _index: u64) -> bool {
        true
    }

    /// Fills a page of the store that was made with `tag`. May wait: the caller holds
    /// nothing but the frame.
    ///
    /// # Errors
    /// Whatever keeps it from doing so: a fault becomes SIGBUS, a read fails with it.
    fn fill(&self, tag: u64, index: u64, frame: Frame) -> Result<(), Errno>;

    /// Whether filling a page is I/O, so that a fault which waits for it is a major one. What is
    /// only copied in memory is not.
    fn is_io(&self) -> bool {
        true
    }

    /// Whether it is shared memory and no file, so that its pages are counted as that ([`crate::Rss`]).
    fn is_shared_memory(&self, _tag: u64) -> bool {
        false
    }

    /// Asked before the store gets the page `index`.
    ///
    /// # Errors
    /// There is no room for it: a fault becomes SIGBUS, a write fails with it.
    fn charge(&self, _tag: u64, _index: u64) -> Result<(), Errno> {
        Ok(())
    }

    /// The page `index`, which was charged, has left the store, or did not come. Called where
    /// [`Pager::gone`] is, and likewise.
    fn uncharge(&self, _tag: u64, _index: u64) {}

    /// The store is gone, and with it the last that led to `tag`. Called wherever memory
    /// is given back, locks of address spaces being held: it must not call the core, nor wait for
    /// who does, and needs no memory.
    fn gone(&self, _tag: u64) {}
}

/// What is shared by all who hold a store. Faults read the first line.
#[repr(C, align(64))]
pub struct ObjectInner {
    pub(crate) pages: Radix,
    /// Bytes.
    pub(crate) size: AtomicU64,
    pub(crate) backing: Option<&'static dyn Pager>,
    pub(crate) tag: u64,
    /// Never used twice; the owner that its pages' descriptors name.
    pub(crate) id: u64,
    /// Of a device: its frames. It has no other pages.
    pub(crate) span: Option<Span>,
    pub(crate) writers: Writers,
    /// Its place among all stores.
    pub(crate) hook: Hook,
}

const _: () =
    assert!(cfg!(any(loom, shuttle)) || core::mem::offset_of!(ObjectInner, writers) == 64);

/// What is written when mappings and handles come and go, and when pages are read in.
#[repr(C, align(64))]
pub(crate) struct Writers {
    /// Handles and mappings.
    pub(crate) holders: AtomicU64,
    pub(crate) mappings: SpinLock<List>,
    /// How many of them let programs write to the store, or can be made to. Written under
    /// the list's lock.
    pub(crate) writable: AtomicU32,
    /// Goes up when a page was filled, or could not be: what waits parks on it.
    pub(crate) filled: AtomicU32,
}

/// A store, held. Clones lead to the same one; it goes with the last of them and the
/// last mapping, and its pages with it.
pub struct MemoryObject<M: Machine> {
    pub(crate) memory: &'static Memory<M>,
    pub(crate) cache: NonNull<ObjectInner>,
}

// SAFETY: shared through atomics and a lock.
unsafe impl<M: Machine> Send for MemoryObject<M> {}
// SAFETY: as above.
unsafe impl<M: Machine> Sync for MemoryObject<M> {}

impl<M: Machine> MemoryObject<M> {
    /// A store of `size` bytes without any page. `tag` is the port's name for it.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(
        memory: &'static Memory<M>,
        size: u64,
        backing: Option<&'static dyn Pager>,
        tag: u64,
    ) -> Result<Self, NoMemory> {
        Self::of_kind(memory, size, None, backing, tag)
    }

    /// The same; with a `span`, of a device.
    fn of_kind(
        memory: &'static Memory<M>,
        size: u64,
        span: Option<Span>,
        backing: Option<&'static dyn Pager>,
        tag: u64,
    ) -> Result<Self, NoMemory> {
        let cache = memory.allocate(Kind::Object)?.cast::<ObjectInner>();
        let content = ObjectInner {
            pages: Radix::new(),
            size: AtomicU64::new(size),
            backing,
            tag,
            id: memory.new_id(),
            span,
            writers: Writers {
                holders: AtomicU64::new(1),
                mappings: SpinLock::new(List::new()),
                writable: AtomicU32::new(0),
                filled: AtomicU32::new(0),
            },
            hook: Hook::new(),
        };
        let mut all = memory.objects.lock(memory.machine());
        let _ = cache.as_ptr().expose_provenance();
        // SAFETY: fresh memory of its size and alignment; in the list until it goes.
        unsafe {
            cache.write(content);
            all.push(&cache.as_ref().hook);
        }
        drop(all);
        Ok(Self { memory, cache })
    }

    /// A handle to a store that a mapping holds.
    pub(crate) fn of(memory: &'static Memory<M>, object: NonNull<AnyObject>) -> Self {
        let cache = object.cast::<ObjectInner>();
        // SAFETY: the caller's mapping holds it.
        unsafe { cache.as_ref() }.hold();
        Self { memory, cache }
    }

    #[inline]
    pub(crate) fn cache(&self) -> &ObjectInner {
        // SAFETY: held.
        unsafe { self.cache.as_ref() }
    }

    pub(crate) fn pointer(&self) -> NonNull<ObjectInner> {
        self.cache
    }

    /// The memory core that it belongs to.
    pub fn memory(&self) -> &'static Memory<M> {
        self.memory
    }

    /// The port's name for it.
    pub fn tag(&self) -> u64 {
        self.cache().tag
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.cache().size()
    }

    /// Makes it at least so large. What is new reads as zeroes, but for what programs have
    /// written behind the end in the last page, as in Linux's shared memory.
    pub fn extend(&self, size: u64) {
        self.cache().size.fetch_max(size, Ordering::SeqCst);
    }

    /// Its number, never used twice.
    pub fn id(&self) -> u64 {
        self.cache().id
    }

    /// The first page from `index` on that it has now.
    pub fn next(&self, index: u64) -> Option<u64> {
        self.cache().pages.next(index)
    }

    /// Whether a mapping lets a program write to it, or can be made to.
    pub fn is_mapped_writable(&self) -> bool {
        let writers = &self.cache().writers;
        let _list = writers.mappings.lock(self.memory.machine());
        writers.writable.load(Ordering::Relaxed) != 0
    }

    /// How many pages it has. Takes time with their number.
    pub fn pages(&self) -> u64 {
        let mut count = 0;
        let all = 0..u64::MAX;
        let mut visit = |_, slot: &radix::Slot| count += u64::from(slot.load() != PageSlot::Empty);
        self.cache().pages.for_each(all, &mut visit);
        count
    }
}

impl<M: Machine> Clone for MemoryObject<M> {
    fn clone(&self) -> Self {
        Self::of(self.memory, self.cache.cast())
    }
}

impl<M: Machine> Drop for MemoryObject<M> {
    fn drop(&mut self) {
        self.memory.put_object(self.cache);
    }
}

impl ObjectRef {
    /// The object's page `index` at `page`, and all others where they follow from that.
    pub(crate) fn new<M: Machine>(
        object: &MemoryObject<M>,
        page: u64,
        index: u64,
        file: u64,
    ) -> Self {
        Self::at(object.pointer().cast(), index.wrapping_sub(page), file)
    }

    /// The object. Held by the mapping that this is an attribute of.
    #[inline]
    pub(crate) fn object(&self) -> &ObjectInner {
        // SAFETY: references to objects are made above alone, and a mapping holds its object until no
        // reader can look at the mapping.
        unsafe { self.pointer().cast::<ObjectInner>().as_ref() }
    }
}

impl ObjectInner {
    /// How mappings name it.
    pub(crate) fn any(&self) -> NonNull<AnyObject> {
        NonNull::from(self).cast()
    }

    /// The store that a hook belongs to.
    ///
    /// # Safety
    /// The hook is in the list of all stores, whose lock is held.
    pub(crate) unsafe fn of(hook: &Hook) -> &ObjectInner {
        let start = core::ptr::from_ref(hook).addr() - core::mem::offset_of!(ObjectInner, hook);
        // SAFETY: the hook is a store's, which was exposed when it was made.
        unsafe { &*core::ptr::with_exposed_provenance::<ObjectInner>(start) }
    }

    pub(crate) fn hold(&self) {
        self.writers.holders.fetch_add(1, Ordering::Relaxed);
    }

    /// Its size in bytes.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Whether a page lies before the end, in part or whole.
    #[inline]
    pub(crate) fn has(&self, index: u64) -> bool {
        index < self.size().div_ceil(PAGE_SIZE)
    }

    /// The port's name for it.
    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }

    /// Makes a frame the page `index`, before its slot leads to it.
    pub(crate) fn set_file(&self, descriptor: &Descriptor, index: u64) {
        // What has no pager is memory.
        let is_memory = |pager: &dyn Pager| pager.is_shared_memory(self.tag);
        let kind = match self.backing.is_none_or(is_memory) {
            true => Flags::FILE.and(Flags::SHARED_MEMORY),
            false => Flags::FILE,
        };
        descriptor.set_file(self.id, index, kind);
    }

    /// Asks whether there is room for a page.
    pub(crate) fn charge(&self, index: u64) -> Result<(), Errno> {
        match self.backing {
            Some(backing) => backing.charge(self.tag, index),
            None => Ok(()),
        }
    }

    /// A page that was charged is not there, or not any more.
    pub(crate) fn uncharge(&self, index: u64) {
        if let Some(backing) = self.backing {
            backing.uncharge(self.tag, index);
        }
    }
}

impl<M: Machine> Memory<M> {
    /// Lets go of a store: a handle or a mapping that held it is gone.
    pub(crate) fn put_object(&self, cache: NonNull<ObjectInner>) {
        // SAFETY: held until here.
        let body = unsafe { cache.as_ref() };
        // Release and acquire: what every holder did comes before the end.
        if body.writers.holders.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        self.forget_probes(cache.as_ptr());
        let source = self.machine().frames();
        // SAFETY: in the list since it was made.
        unsafe { self.objects.lock(self.machine()).remove(&body.hook) };
        body.pages.for_each(0..u64::MAX, &mut |index, slot| {
            if let PageSlot::Page(frame) = slot.load() {
                body.uncharge(index);
                if source.descriptor(frame).let_go() {
                    source.free(self.machine().cpu(), frame);
                }
            }
        });
        body.pages.destroy(self);
        let (backing, tag) = (body.backing, body.tag);
        // SAFETY: allocated as an object, and no holder is left.
        unsafe { self.free(Kind::Object, cache.cast()) };
        if let Some(backing) = backing {
            backing.gone(tag);
        }
    }
}

impl<M: Machine> Nodes for Memory<M> {
    fn allocate(&self) -> Result<NonNull<u8>, NoMemory> {
        Memory::allocate(self, Kind::RadixNode)
    }

    fn free(&self, node: NonNull<Node>) {
        // SAFETY: nodes are allocated as this kind; the caller has the last pointer.
        unsafe { Memory::free(self, Kind::RadixNode, node.cast()) };
    }
}
