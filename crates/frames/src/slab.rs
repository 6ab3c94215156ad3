//! A slab allocator: objects of one size, carved from frames.
//!
//! Tree nodes, splits and mappings are allocated here, so that their allocation can fail and needs no heap. A
//! frame in use begins with a header: its free objects, the number in use, and its links in the list of
//! frames with free objects. The objects follow. A CPU allocates objects from its own [`Magazine`] and frees
//! them to it; batches move to and from the frames under one lock. A frame without used objects returns to
//! the source.
//!
//! In loom models each object takes a whole frame, because the models are about other protocols.

use core::ptr::NonNull;

use faultless_paging::{Frame, PAGE_SIZE, PhysicalMemory};
use faultless_sync::atomic::{AtomicU64, Local, Ordering, amortised};
use faultless_sync::{Cpu, SpinLock, Wait};

use crate::descriptor::Flags;
use crate::source::{FrameSource, NoMemory, Reserve};

const HEADER: usize = 64;
/// The largest alignment of objects: a pair of cache lines.
const ALIGNMENT: usize = 128;
const CAPACITY: usize = 16;
const BATCH: usize = 8;

/// One CPU's free objects of one slab.
#[derive(Debug)]
#[repr(align(128))]
pub struct Magazine {
    count: Local,
    objects: [Local; CAPACITY],
}

impl Default for Magazine {
    fn default() -> Self {
        Self {
            count: Local::new(0),
            objects: [const { Local::new(0) }; CAPACITY],
        }
    }
}

/// The header of a slab frame. Used under the slab's lock.
#[repr(C)]
struct Header {
    /// The address of the first free object. The first word of a free object is the address of the next one.
    free: u64,
    used: u64,
    /// Neighbours in the list of frames with free objects: frame numbers, plus 1.
    next: u64,
    previous: u64,
    /// The frame this header is in.
    frame: u64,
}

impl Header {
    /// Returns the header of a slab frame.
    ///
    /// # Safety
    /// `frame` is a slab frame, and the caller holds the slab's lock.
    unsafe fn at<'a, M: PhysicalMemory>(machine: &M, frame: u64) -> &'a mut Header {
        // SAFETY: by the caller's promise; headers are used under the lock only.
        unsafe { machine.pointer(Frame(frame)).cast::<Header>().as_mut() }
    }

    /// Puts the frame at the head of the list.
    fn list<M: PhysicalMemory>(&mut self, head: &mut u64, machine: &M) {
        self.previous = 0;
        self.next = *head;
        if *head != 0 {
            // SAFETY: listed frames are slab frames; the lock is held with `head`.
            unsafe { Header::at(machine, *head - 1) }.previous = self.frame + 1;
        }
        *head = self.frame + 1;
    }

    /// Removes the frame from the list.
    fn unlist<M: PhysicalMemory>(&mut self, head: &mut u64, machine: &M) {
        match self.previous {
            0 => *head = self.next,
            // SAFETY: as in `list`.
            p => unsafe { Header::at(machine, p - 1) }.next = self.next,
        }
        if self.next != 0 {
            // SAFETY: as in `list`.
            unsafe { Header::at(machine, self.next - 1) }.previous = self.previous;
        }
    }
}

/// A slab allocator for one object size.
pub struct Slab {
    size: usize,
    /// The first frame with free objects, plus 1.
    partial: SpinLock<u64>,
    frames: AtomicU64,
}

impl Slab {
    /// Returns a slab of objects of `size` bytes. They are aligned to 128 if `size` is a multiple of 128,
    /// else to 64 if it is a multiple of 64.
    pub fn new(size: usize) -> Self {
        Self {
            size,
            partial: SpinLock::new(0),
            frames: AtomicU64::new(0),
        }
    }

    /// Returns the number of frames that the slab holds.
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Allocates an object with undefined content.
    ///
    /// # Errors
    /// [`NoMemory`] when no frame is available.
    #[inline]
    pub fn allocate<S: FrameSource, M: PhysicalMemory + Wait>(
        &self,
        cpu: Cpu,
        magazine: &Magazine,
        source: &S,
        machine: &M,
    ) -> Result<NonNull<u8>, NoMemory> {
        if cfg!(loom) {
            let frame = source.allocate_reserved(cpu, Reserve::Kernel)?;
            source.descriptor(frame).set_flags(Flags::SLAB);
            return Ok(machine.pointer(frame));
        }
        if magazine.count.get() == 0 {
            amortised(|| self.refill(cpu, magazine, source, machine))?;
        }
        let count = magazine.count.get() - 1;
        magazine.count.set(count);
        NonNull::new(core::ptr::with_exposed_provenance_mut(
            magazine.objects[count as usize].get() as usize,
        ))
        .ok_or(NoMemory)
    }

    /// Frees an object.
    ///
    /// # Safety
    /// The object came from this slab, and nothing reaches it any more.
    #[inline]
    pub unsafe fn free<S: FrameSource, M: PhysicalMemory + Wait>(
        &self,
        cpu: Cpu,
        magazine: &Magazine,
        object: NonNull<u8>,
        source: &S,
        machine: &M,
    ) {
        if cfg!(loom) {
            // A model's frames are few and live as long as the model.
            return;
        }
        if magazine.count.get() == CAPACITY as u64 {
            amortised(|| self.spill(cpu, magazine, BATCH, source, machine));
        }
        let count = magazine.count.get();
        magazine.objects[count as usize].set(object.as_ptr().expose_provenance() as u64);
        magazine.count.set(count + 1);
    }

    /// Returns a CPU's objects to their frames. Nothing else uses the magazine meanwhile.
    pub fn drain<S: FrameSource, M: PhysicalMemory + Wait>(
        &self,
        cpu: Cpu,
        magazine: &Magazine,
        source: &S,
        machine: &M,
    ) {
        self.spill(cpu, magazine, CAPACITY, source, machine);
    }

    /// Returns the frame of an object.
    ///
    /// # Safety
    /// `object` belongs to a slab and is in use.
    pub unsafe fn frame_of(object: NonNull<u8>) -> Frame {
        let start = object
            .as_ptr()
            .map_addr(|at| at & !(PAGE_SIZE as usize - 1));
        // SAFETY: an object's frame begins with its header; frames are page-aligned where
        // the CPU sees them. The header's frame never changes.
        Frame(unsafe { (&raw const (*start.cast::<Header>()).frame).read() })
    }

    /// Returns the number of a frame's objects that are in use, or in a CPU's magazine.
    ///
    /// # Safety
    /// `frame` is a slab frame, and nothing else uses its slab.
    pub unsafe fn objects_in<M: PhysicalMemory>(machine: &M, frame: Frame) -> u64 {
        // SAFETY: by the caller's promise, nothing else uses the slab.
        unsafe { Header::at(machine, frame.0) }.used
    }

    #[cold]
    fn refill<S: FrameSource, M: PhysicalMemory + Wait>(
        &self,
        cpu: Cpu,
        magazine: &Magazine,
        source: &S,
        machine: &M,
    ) -> Result<(), NoMemory> {
        let mut partial = self.partial.lock(machine);
        while magazine.count.get() < BATCH as u64 {
            if *partial == 0 {
                match source.allocate_reserved(cpu, Reserve::Kernel) {
                    Ok(frame) => self.carve(frame, &mut partial, source, machine),
                    Err(_) if magazine.count.get() > 0 => break,
                    Err(none) => return Err(none),
                }
            }
            // SAFETY: a frame in the list is a slab frame of ours, and we hold the lock.
            let header = unsafe { Header::at(machine, *partial - 1) };
            let object = header.free;
            // SAFETY: a free object of ours; its first word is its link.
            header.free =
                unsafe { core::ptr::with_exposed_provenance::<u64>(object as usize).read() };
            header.used += 1;
            if header.free == 0 {
                header.unlist(&mut partial, machine);
            }
            magazine.objects[magazine.count.get() as usize].set(object);
            magazine.count.add(1);
        }
        Ok(())
    }

    /// Makes a frame a slab frame with all objects free, and lists it.
    fn carve<S: FrameSource, M: PhysicalMemory + Wait>(
        &self,
        frame: Frame,
        partial: &mut u64,
        source: &S,
        machine: &M,
    ) {
        source.descriptor(frame).set_flags(Flags::SLAB);
        self.frames.fetch_add(1, Ordering::Relaxed);
        let start = machine.pointer(frame).as_ptr().expose_provenance();
        let mut free = 0;
        let first = match self.size.is_multiple_of(ALIGNMENT) {
            true => ALIGNMENT,
            false => HEADER,
        };
        let count = (PAGE_SIZE as usize - first) / self.size;
        for i in (0..count).rev() {
            let object = start + first + i * self.size;
            // SAFETY: inside the frame, which is ours alone.
            unsafe { core::ptr::with_exposed_provenance_mut::<u64>(object).write(free) };
            free = object as u64;
        }
        let header = Header {
            free,
            used: 0,
            next: 0,
            previous: 0,
            frame: frame.0,
        };
        // SAFETY: the header is at the start of our frame, and we hold the lock.
        unsafe {
            machine.pointer(frame).cast::<Header>().write(header);
            Header::at(machine, frame.0).list(partial, machine);
        }
    }

    #[cold]
    fn spill<S: FrameSource, M: PhysicalMemory + Wait>(
        &self,
        cpu: Cpu,
        magazine: &Magazine,
        most: usize,
        source: &S,
        machine: &M,
    ) {
        let mut partial = self.partial.lock(machine);
        for _ in 0..most {
            let count = magazine.count.get();
            if count == 0 {
                break;
            }
            magazine.count.set(count - 1);
            let object = magazine.objects[count as usize - 1].get();
            let start = object as usize & !(PAGE_SIZE as usize - 1);
            // SAFETY: the object's frame begins with its header; frames are page-aligned where the CPU sees
            // them; we hold the lock; nothing else reaches the object.
            let header = unsafe {
                let header = &mut *core::ptr::with_exposed_provenance_mut::<Header>(start);
                core::ptr::with_exposed_provenance_mut::<u64>(object as usize).write(header.free);
                header
            };
            let was_full = header.free == 0;
            header.free = object;
            header.used -= 1;
            if was_full {
                header.list(&mut partial, machine);
            }
            if header.used == 0 {
                header.unlist(&mut partial, machine);
                let frame = Frame(header.frame);
                self.frames.fetch_sub(1, Ordering::Relaxed);
                source.descriptor(frame).set_flags(Flags::NONE);
                source.free(cpu, frame);
            }
        }
    }
}
