//! The data set: chunks that all contain the same sorted records.

use faultless_mm::PROT_READ;

use super::RECORD;
use super::memory::Memory;
use super::options::Options;
use crate::system::{PAGE, Stop, Thread};

/// Bytes of an address in memory.
const POINTER: u64 = 8;

/// Allocates the chunks, and returns the address of the table of their addresses.
pub fn make_chunks(thread: &Thread<'_>, o: &Options, memory: &Memory) -> Result<u64, Stop> {
    let table_size = o.chunks * POINTER;
    let chunks = memory.allocate(thread, o, table_size)?;
    let holes = if o.use_holes {
        memory.allocate(thread, o, table_size)?
    } else {
        0
    };
    for i in (0..table_size).step_by(POINTER as usize) {
        thread.store(chunks + i, memory.allocate(thread, o, o.chunk_size)?)?;
        if o.use_holes {
            thread.store(holes + i, memory.allocate(thread, o, PAGE)?)?;
        }
    }
    if o.use_holes {
        for i in (0..table_size).step_by(POINTER as usize) {
            memory.release(thread, thread.load(holes + i)?, PAGE)?;
        }
        memory.release(thread, holes, table_size)?;
    }
    if o.verbose > 0 {
        thread.print("Allocated memory\n".to_owned());
    }
    Ok(chunks)
}

/// The address of a chunk.
pub fn chunk(thread: &Thread<'_>, chunks: u64, number: u64) -> Result<u64, Stop> {
    thread.load(chunks + number * POINTER)
}

/// Writes the records 0, 1, 2, ... to each chunk.
pub fn fill_chunks(thread: &Thread<'_>, o: &Options, chunks: u64) -> Result<(), Stop> {
    for i in 0..o.chunks {
        let at = chunk(thread, chunks, i)?;
        for j in 0..o.chunk_size / RECORD {
            thread.store(at + j * RECORD, j)?;
        }
        if o.use_permissions && i % 2 == 0 {
            write_protect(thread, o, at)?;
        }
    }
    if o.verbose > 0 {
        thread.print("Wrote memory\n".to_owned());
    }
    Ok(())
}

/// Makes the whole pages inside a chunk read-only. The pages at its ends may also belong to a neighbour,
/// unless the chunk is from mmap; then these are all its pages.
fn write_protect(thread: &Thread<'_>, o: &Options, at: u64) -> Result<(), Stop> {
    let first = at.next_multiple_of(PAGE);
    let end = at + o.chunk_size;
    let end = if o.always_mmap {
        end.next_multiple_of(PAGE)
    } else {
        end / PAGE * PAGE
    };
    if first >= end {
        return Ok(());
    }
    let result = thread.call(|space| space.mprotect(first, end - first, PROT_READ))?;
    thread.or_die("mprotect", result)
}
