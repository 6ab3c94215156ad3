//! The source of ebizzy's memory: `malloc`, `mmap` (`-m`) or the program break (`-M`).

use faultless_mm::{PROT_READ, PROT_WRITE, flags};

use super::Worker;
use super::options::Options;
use crate::system::{Heap, LINE_PAIR, Stop, Thread, extend_break};

/// The allocator that the options choose.
pub enum Memory {
    /// `malloc` and `free`.
    Malloc(Box<Heap>),
    /// A mapping for each block.
    Mmap,
    /// The program break only. Nothing is freed.
    Break,
}

impl Memory {
    /// The allocator for these options.
    pub fn new(options: &Options) -> Self {
        match (options.always_mmap, options.never_mmap) {
            (true, _) => Memory::Mmap,
            (_, true) => Memory::Break,
            _ => Memory::Malloc(Box::default()),
        }
    }

    /// Allocates a block of `size` bytes; ends the program if there is no memory.
    pub fn allocate(&self, thread: &Thread<'_>, o: &Options, size: u64) -> Result<u64, Stop> {
        let anonymous = flags::PRIVATE | flags::ANONYMOUS;
        let block = thread.call(|space| match self {
            Memory::Malloc(heap) => heap.allocate(space, size),
            Memory::Mmap => space.mmap(0, size, PROT_READ | PROT_WRITE, anonymous).ok(),
            Memory::Break => extend_break(space, size.next_multiple_of(LINE_PAIR)),
        })?;
        block.ok_or_else(|| {
            let (chunks, of) = (o.chunks, o.chunk_size);
            thread.die(format_args!(
                "cannot allocate {size} bytes ({chunks} chunks of {of}; try a smaller -n or -s)"
            ))
        })
    }

    /// Frees a block.
    pub fn release(&self, thread: &Thread<'_>, block: u64, size: u64) -> Result<(), Stop> {
        match self {
            Memory::Malloc(heap) => {
                if thread.call(|space| heap.free(space, block, size))? {
                    return Ok(());
                }
                Err(thread.die("free: a mapping cannot be given back"))
            }
            Memory::Mmap => {
                let result = thread.call(|space| space.munmap(block, size))?;
                thread.or_die("munmap", result)
            }
            Memory::Break => Ok(()),
        }
    }

    /// Allocates the memory of a copy. With `-M` a thread gets the block that it freed last, as from a heap.
    pub fn allocate_copy(
        &self,
        thread: &Thread<'_>,
        options: &Options,
        worker: &Worker,
        size: u64,
    ) -> Result<u64, Stop> {
        match self {
            Memory::Break => Ok(worker.slot),
            _ => self.allocate(thread, options, size),
        }
    }
}
