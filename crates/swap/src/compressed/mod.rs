//! Compressed memory as a swap device.
//!
//! A page that repeats one 8-byte word takes no memory beyond its slot's entry. Other pages are compressed with
//! LZ4 and stored as an object of a size class ([`class`]). A page that does not shrink enough keeps a frame.
//!
//! * A slot's entry is written by the operation on that slot alone ([`entry`]).
//! * A write that fails leaves its slot empty, and holds no memory.
//! * A check value over the stored bytes finds damage before a page is used.
//! * Nothing needs more than 512 bytes of stack: the compressor's table is in the CPU's [`Scratch`].
//!
//! *Writes*: the slot's entry, the object, the CPU's [`Scratch`], and the lists of the object's size class
//! under their lock.

mod check;
mod class;
mod decode;
mod entry;
mod group;
mod scratch;
mod shape;

use faultless_frames::NoMemory;
use faultless_paging::Frame;

use crate::array::FrameArray;
use crate::device::{DeviceError, Page, SwapDevice};
use crate::frames::{allocate, free};
use crate::machine::SwapMachine;
use class::Classes;
use entry::{Entry, Stored};
use scratch::Count;
pub use scratch::{Scratch, Usage};

/// Compressed memory with a number of slots.
///
/// Its memory lies in frames of the machine's source, beside one [`Scratch`] for each CPU. When it is dropped,
/// all frames return to the source.
pub struct Compressed<M: SwapMachine> {
    machine: M,
    cpus: &'static [Scratch],
    entries: FrameArray<Entry>,
    classes: Classes,
}

impl<M: SwapMachine> Compressed<M> {
    /// Creates a device with `slots` empty slots. `cpus` has a scratch memory for each CPU, which no other
    /// device uses. Each slot takes 16 bytes now, whatever it holds later.
    ///
    /// # Errors
    /// [`NoMemory`] when the source has no frames for the slots' entries.
    pub fn new(machine: M, cpus: &'static [Scratch], slots: u64) -> Result<Self, NoMemory> {
        let length = usize::try_from(slots).map_err(|_| NoMemory)?;
        Ok(Self {
            entries: FrameArray::new(&machine, length)?,
            machine,
            cpus,
            classes: Classes::new(),
        })
    }

    /// Returns what the device holds, summed over all CPUs: exact when nothing runs.
    pub fn usage(&self) -> Usage {
        Usage::sum(self.cpus)
    }

    /// Calls `visit` with every frame of the device. Nothing else uses the device meanwhile.
    pub fn for_each_frame(&self, visit: &mut dyn FnMut(Frame)) {
        self.entries.for_each_frame(&self.machine, visit);
        self.classes.for_each_frame(&self.machine, visit);
        for slot in 0..self.entries.len() {
            let entry = self.entries.get(&self.machine, slot);
            if let Some(Stored::Plain { frame, .. }) = entry.map(Entry::get) {
                visit(frame);
            }
        }
    }

    fn entry(&self, slot: u64) -> Option<&Entry> {
        self.entries.get(&self.machine, usize::try_from(slot).ok()?)
    }

    fn own(&self) -> &Scratch {
        &self.cpus[self.machine.cpu().index()]
    }

    /// Stores a page. What is returned is not in a slot yet.
    fn store(&self, page: &Page) -> Result<Stored, NoMemory> {
        if let Some(word) = check::repeated_word(page) {
            return Ok(Stored::Word(word));
        }
        let mut buffers = self.own().buffers(&self.machine);
        match buffers.get().compress(page) {
            Some(bytes) => self.store_object(bytes),
            None => {
                drop(buffers);
                self.store_plain(page)
            }
        }
    }

    fn store_object(&self, bytes: &[u8]) -> Result<Stored, NoMemory> {
        let place = self
            .classes
            .allocate(&self.machine, self.own(), bytes.len())?;
        // SAFETY: the object is this caller's alone and has that length.
        let (first, second) = unsafe { self.classes.bytes_mut(&self.machine, place, bytes.len()) };
        let (from_first, from_second) = bytes.split_at(first.len());
        first.copy_from_slice(from_first);
        second.copy_from_slice(from_second);
        Ok(Stored::Object {
            place,
            length: bytes.len(),
            check: check::of(bytes),
        })
    }

    fn store_plain(&self, page: &Page) -> Result<Stored, NoMemory> {
        let frame = allocate(&self.machine)?;
        self.own().add(Count::Frames, 1);
        // SAFETY: a page's bytes, in a frame that is this caller's alone.
        unsafe { self.machine.pointer(frame).cast::<Page>().write(*page) };
        Ok(Stored::Plain {
            frame,
            check: check::of(page),
        })
    }

    /// Fills `page` from what a slot holds.
    fn load(&self, stored: Stored, page: &mut Page) -> Result<(), DeviceError> {
        match stored {
            Stored::Empty => Err(DeviceError::Failed),
            Stored::Word(word) => {
                check::repeat_word(word, page);
                Ok(())
            }
            Stored::Plain { frame, check } => {
                // SAFETY: the slot's frame, which nothing writes while the slot holds it.
                let stored = unsafe { self.machine.pointer(frame).cast::<Page>().as_ref() };
                page.copy_from_slice(stored);
                intact(check::of(page) == check)
            }
            Stored::Object {
                place,
                length,
                check,
            } => {
                // SAFETY: the slot's object, which nothing writes while the slot holds it.
                let (first, second) = unsafe { self.classes.bytes(&self.machine, place, length) };
                if second.is_empty() {
                    return decompress(first, check, page);
                }
                let mut buffers = self.own().buffers(&self.machine);
                decompress(buffers.get().join(first, second), check, page)
            }
        }
    }

    /// Frees what a slot held.
    fn release(&self, stored: Stored) {
        match stored {
            Stored::Empty | Stored::Word(_) => {}
            Stored::Plain { frame, .. } => {
                free(&self.machine, frame);
                self.own().subtract(Count::Frames, 1);
            }
            // SAFETY: the slot had the object, and does not have it any more.
            Stored::Object { place, length, .. } => unsafe {
                self.classes.free(&self.machine, self.own(), place, length);
            },
        }
        self.own().uncount(&stored);
    }
}

fn intact(is_intact: bool) -> Result<(), DeviceError> {
    match is_intact {
        true => Ok(()),
        false => Err(DeviceError::Damaged),
    }
}

fn decompress(bytes: &[u8], check: u64, page: &mut Page) -> Result<(), DeviceError> {
    intact(check::of(bytes) == check)?;
    intact(decode::decode(bytes, page).is_some())
}

impl<M: SwapMachine> SwapDevice for Compressed<M> {
    fn slots(&self) -> u64 {
        self.entries.len() as u64
    }

    fn write(&self, slot: u64, page: &Page) -> Result<(), DeviceError> {
        let entry = self.entry(slot).ok_or(DeviceError::Failed)?;
        // First, because the new content may need the memory.
        self.release(entry.take());
        let stored = self.store(page).map_err(|NoMemory| DeviceError::Full)?;
        self.own().count(&stored);
        entry.set(stored);
        Ok(())
    }

    fn read(&self, slot: u64, page: &mut Page) -> Result<(), DeviceError> {
        let entry = self.entry(slot).ok_or(DeviceError::Failed)?;
        self.load(entry.get(), page)
    }

    fn discard(&self, slot: u64) {
        if let Some(entry) = self.entry(slot) {
            self.release(entry.take());
        }
    }

    fn is_fast(&self) -> bool {
        true
    }
}

impl<M: SwapMachine> Drop for Compressed<M> {
    fn drop(&mut self) {
        for slot in 0..self.slots() {
            self.discard(slot);
        }
        // SAFETY: the device is going, and its slots are empty.
        unsafe { self.entries.free(&self.machine) };
    }
}
