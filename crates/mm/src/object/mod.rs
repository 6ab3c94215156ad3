//! Memory objects: pages that belong to a file or to shared memory, and not to one address space (Linux: the
//! page cache of an inode).
//!
//! A port makes a [`MemoryObject`] for each file and each piece of shared memory, reads and writes its pages,
//! and maps it ([`crate::AddressSpace::mmap_object`]). A [`Pager`] fills missing pages. Memory that begins as
//! zeroes needs none.
//!
//! # Invariants
//!
//! * The object holds every page that is in its slot: the page's descriptor has the mark, and says which page
//!   of which object it is.
//! * No entry shows a page that has left its slot, once the truncation that removed it has returned (rule R6).
//! * A page at or behind the size exists only while it is being added: the size is checked after an addition,
//!   and the slots by a truncation.
//! * An object outlives every mapping that leads to it: a mapping holds it until no reader can use that
//!   mapping.
//!
//! # Modules
//!
//! * `radix`: from page number to frame, without a lock.
//! * `page`: finds, adds and pins pages.
//! * `moving`: pages that move to another frame.
//! * `huge`: huge pages.
//! * `fill`: reads pages in, and waits for pages that are being read.
//! * `swapped`: brings pages back that were swapped out.
//! * `mappings`: the list of an object's mappings.
//! * `device`: an object that is not memory: its pages are a device's frames, in their order.
//! * `pool`: objects whose pages are of the pool of huge pages.
//! * `probe`: the list of registered probes.
//!
//! *Writes*: a fault writes the frame's descriptor, and a page's slot if it adds the page. The count of holders
//! and the list of mappings are written when mappings are made and freed, the size by writers of the file.

pub(crate) mod device;
mod fill;
pub(crate) mod huge;
pub(crate) mod mappings;
mod moving;
pub(crate) mod page;
pub(crate) mod pool;
pub(crate) mod probe;
pub(crate) mod radix;
mod swapped;

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
pub use huge::ObjectHuge;
use huge::ObjectHugeState;
pub(crate) use moving::Moving;
pub use page::Pinned;
pub(crate) use page::{Lookup, PageRef};
pub(crate) use radix::Node;
use radix::{Nodes, PageSlot, Radix};

/// The port's side of a memory object: it fills missing pages, and is notified when pages are added or removed
/// and when the object is freed. All methods get the `tag` with which the object was made.
///
/// Pages that a truncation or a hole has removed may be requested again immediately, or when the object has
/// grown. The object does not remember that they are zeroes. The port therefore tells its device before it
/// calls [`MemoryObject::truncate`] or [`MemoryObject::punch`], as a file system does.
pub trait Pager: Sync {
    /// Whether it has the page `index`. A page that it does not have begins as zeroes.
    fn has(&self, _tag: u64, _index: u64) -> bool {
        true
    }

    /// Fills a page of the object that was made with `tag`. May wait: the caller holds nothing but the frame.
    ///
    /// # Errors
    /// Any reason why it cannot: a fault becomes SIGBUS, a read fails with it.
    fn fill(&self, tag: u64, index: u64, frame: Frame) -> Result<(), Errno>;

    /// Whether filling a page is I/O, so that a fault that waits for it is a major one. A copy in memory is
    /// not.
    fn is_io(&self) -> bool {
        true
    }

    /// Whether it is shared memory without a file, so that its pages are counted as that ([`crate::Rss`]).
    fn is_shared_memory(&self, _tag: u64) -> bool {
        false
    }

    /// Charges the page `index`, before the object gets it.
    ///
    /// # Errors
    /// There is no room for it: a fault becomes SIGBUS, a write fails with it.
    fn charge(&self, _tag: u64, _index: u64) -> Result<(), Errno> {
        Ok(())
    }

    /// Uncharges the page `index`, which has left the object, or was not added. Called where [`Pager::gone`]
    /// is, with the same restrictions.
    fn uncharge(&self, _tag: u64, _index: u64) {}

    /// Reports that the object is freed: nothing leads to `tag` any more. Called wherever memory is freed, with
    /// locks of address spaces held. It must not call the core, must not wait for a thread that does, and must
    /// not need memory.
    fn gone(&self, _tag: u64) {}
}

/// What all holders of an object share. Faults read the first line.
#[repr(C, align(64))]
pub struct ObjectInner {
    pub(crate) pages: Radix,
    /// In bytes.
    pub(crate) size: AtomicU64,
    pub(crate) backing: Option<&'static dyn Pager>,
    pub(crate) tag: u64,
    /// A number that is never used twice. The descriptors of its pages have it as their owner.
    pub(crate) id: u64,
    /// The frames of a device, which has no other pages.
    pub(crate) span: Option<Span>,
    pub(crate) writers: Writers,
    /// Its hook in the list of all objects.
    pub(crate) hook: Hook,
}

const _: () =
    assert!(cfg!(any(loom, shuttle)) || core::mem::offset_of!(ObjectInner, writers) == 64);

/// What is written when mappings and handles are made and freed, and when pages are read in.
#[repr(C, align(64))]
pub(crate) struct Writers {
    /// The number of handles and mappings.
    pub(crate) holders: AtomicU64,
    pub(crate) mappings: SpinLock<List>,
    /// How many of the mappings let programs write to the object, or can be made to. Written under the list's
    /// lock.
    pub(crate) writable: AtomicU32,
    /// Goes up when a page was filled, or could not be. Operations that wait for that park on it.
    pub(crate) filled: AtomicU32,
    /// The page to which the sweep has come ([`crate::reclaim::object`]). A hint.
    pub(crate) hand: AtomicU64,
    /// Read by faults only where a huge page may be.
    pub(crate) huge: ObjectHugeState,
}

/// A handle that holds a memory object. Clones lead to the same object, which is freed with its last handle or
/// mapping, and its pages with it.
pub struct MemoryObject<M: Machine> {
    pub(crate) memory: &'static Memory<M>,
    pub(crate) cache: NonNull<ObjectInner>,
}

// SAFETY: shared through atomics and a lock.
unsafe impl<M: Machine> Send for MemoryObject<M> {}
// SAFETY: as above.
unsafe impl<M: Machine> Sync for MemoryObject<M> {}

impl<M: Machine> MemoryObject<M> {
    /// Makes an object of `size` bytes without any page. `tag` is the port's name for it.
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

    /// The same; with a `span`, for a device.
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
                hand: AtomicU64::new(0),
                huge: ObjectHugeState::new(match backing {
                    None if span.is_none() => ObjectHuge::AsSet,
                    _ => ObjectHuge::Never,
                }),
            },
            hook: Hook::new(),
        };
        let mut all = memory.objects.lock(memory.machine());
        let _ = cache.as_ptr().expose_provenance();
        // SAFETY: fresh memory of its size and alignment; in the list until it is freed.
        unsafe {
            cache.write(content);
            all.push(&cache.as_ref().hook);
        }
        drop(all);
        Ok(Self { memory, cache })
    }

    /// Returns a handle to an object that a mapping holds.
    pub(crate) fn of(memory: &'static Memory<M>, object: NonNull<AnyObject>) -> Self {
        let cache = object.cast::<ObjectInner>();
        // SAFETY: the caller's mapping holds it.
        unsafe { cache.as_ref() }.hold();
        Self { memory, cache }
    }

    /// Whether this is a handle to the object at this place.
    pub(crate) fn is_at(&self, object: NonNull<AnyObject>) -> bool {
        self.cache.cast() == object
    }

    #[inline]
    pub(crate) fn cache(&self) -> &ObjectInner {
        // SAFETY: held.
        unsafe { self.cache.as_ref() }
    }

    pub(crate) fn pointer(&self) -> NonNull<ObjectInner> {
        self.cache
    }

    /// Returns the memory core to which it belongs.
    pub fn memory(&self) -> &'static Memory<M> {
        self.memory
    }

    /// Returns the port's name for it.
    pub fn tag(&self) -> u64 {
        self.cache().tag
    }

    /// Returns its size in bytes.
    pub fn size(&self) -> u64 {
        self.cache().size()
    }

    /// Makes it at least `size` bytes long. The new part reads as zeroes, except for what programs have written
    /// behind the end in the last page, as in Linux's shared memory.
    pub fn extend(&self, size: u64) {
        self.cache().size.fetch_max(size, Ordering::SeqCst);
    }

    /// Returns its number, which is never used twice.
    pub fn id(&self) -> u64 {
        self.cache().id
    }

    /// Returns the first page from `index` on that it has now.
    pub fn next(&self, index: u64) -> Option<u64> {
        self.cache().pages.next(index)
    }

    /// Whether a mapping lets a program write to it, or can be made to.
    pub fn is_mapped_writable(&self) -> bool {
        let writers = &self.cache().writers;
        let _list = writers.mappings.lock(self.memory.machine());
        writers.writable.load(Ordering::Relaxed) != 0
    }

    /// Returns how many pages it has. Takes time by their number.
    pub fn pages(&self) -> u64 {
        let mut count = 0;
        let all = 0..u64::MAX;
        let has_page = |slot| !matches!(slot, PageSlot::Empty | PageSlot::Reserved);
        let mut visit = |_, slot: &radix::Slot| count += u64::from(has_page(slot.load()));
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
    /// Returns a reference with the object's page `index` at `page`, and all other pages accordingly.
    pub(crate) fn new<M: Machine>(
        object: &MemoryObject<M>,
        page: u64,
        index: u64,
        file: u64,
    ) -> Self {
        Self::at(object.pointer().cast(), index.wrapping_sub(page), file)
    }

    /// Returns the object. The mapping of which this is an attribute holds it.
    #[inline]
    pub(crate) fn object(&self) -> &ObjectInner {
        // SAFETY: only the function above makes references to objects, and a mapping holds its object until no
        // reader can use the mapping.
        unsafe { self.pointer().cast::<ObjectInner>().as_ref() }
    }
}

impl ObjectInner {
    /// Returns the pointer by which mappings name it.
    pub(crate) fn any(&self) -> NonNull<AnyObject> {
        NonNull::from(self).cast()
    }

    /// Returns the object to which a hook belongs.
    ///
    /// # Safety
    /// The hook is in the list of all objects, and the list's lock is held.
    pub(crate) unsafe fn of(hook: &Hook) -> &ObjectInner {
        let start = core::ptr::from_ref(hook).addr() - core::mem::offset_of!(ObjectInner, hook);
        // SAFETY: the hook is an object's, which was exposed when it was made.
        unsafe { &*core::ptr::with_exposed_provenance::<ObjectInner>(start) }
    }

    pub(crate) fn hold(&self) {
        self.writers.holders.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns its size in bytes.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Whether a page lies before the end, entirely or in part.
    #[inline]
    pub(crate) fn has(&self, index: u64) -> bool {
        index < self.size().div_ceil(PAGE_SIZE)
    }

    /// Returns the port's name for it.
    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }

    /// Makes a frame the page `index`, before its slot leads to it.
    pub(crate) fn set_file(&self, descriptor: &Descriptor, index: u64) {
        // An object without a pager is memory.
        let is_memory = |pager: &dyn Pager| pager.is_shared_memory(self.tag);
        let kind = match self.backing.is_none_or(is_memory) {
            true => Flags::FILE.and(Flags::SHARED_MEMORY),
            false => Flags::FILE,
        };
        descriptor.set_file(self.id, index, kind);
    }

    /// Asks the pager whether there is room for a page, and charges it.
    pub(crate) fn charge(&self, index: u64) -> Result<(), Errno> {
        match self.backing {
            Some(backing) => backing.charge(self.tag, index),
            None => Ok(()),
        }
    }

    /// Uncharges a page that is not there, or not any more.
    pub(crate) fn uncharge(&self, index: u64) {
        if let Some(backing) = self.backing {
            backing.uncharge(self.tag, index);
        }
    }
}

impl<M: Machine> Memory<M> {
    /// Releases an object, after a handle or a mapping that held it is gone.
    pub(crate) fn put_object(&self, cache: NonNull<ObjectInner>) {
        // SAFETY: held until here.
        let body = unsafe { cache.as_ref() };
        // Release and acquire: what every holder did precedes the end.
        if body.writers.holders.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        self.forget_probes(cache.as_ptr());
        let source = self.machine().frames();
        // SAFETY: in the list since it was made.
        unsafe { self.objects.lock(self.machine()).remove(&body.hook) };
        body.pages
            .for_each(0..u64::MAX, &mut |index, slot| match slot.load() {
                PageSlot::Page(frame) => {
                    body.uncharge(index);
                    self.ends_whole(body, frame);
                    if source.descriptor(frame).let_go() {
                        source.free(self.machine().cpu(), frame);
                    }
                }
                PageSlot::Swapped(place) => {
                    body.uncharge(index);
                    self.drop_slot_use(&place.entry());
                }
                PageSlot::Reserved => self.end_reservations(1),
                _ => {}
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
