//! Maps a checked program: segments as private mappings of the program's file, followed by zeroed memory.

use elf::abi;
use elf::segment::ProgramHeader;
use linux_raw_sys::general as linux;

use super::Image;
use super::elf::{Error, Object, PAGE};
use crate::arch::uaccess;
use crate::process;

/// A loaded program.
pub struct Loaded {
    /// The program's entry point (`AT_ENTRY`).
    pub entry: u64,
    /// The address of its program headers (`AT_PHDR`).
    pub headers: u64,
    pub header_count: u64,
    /// The load base of its interpreter (`AT_BASE`), or 0.
    pub interpreter: u64,
    /// The range of the file's executable bytes.
    pub code: (u64, u64),
    /// Where execution starts: `entry`, or in the interpreter.
    pub start: u64,
}

/// Loads a program, and its interpreter if it has one, into the process's empty address space.
///
/// # Errors
/// No memory.
pub fn load(
    (image, program): (&Image, &Object),
    interpreter: Option<&(Image, Object)>,
) -> Result<Loaded, Error> {
    let base = program.base.unwrap_or(0);
    map(image, program, base)?;
    process::space().set_brk(base + program.span().1);
    process::space().set_data_size(data_size(program));
    let entry = base.wrapping_add(program.entry);
    let mut loaded = Loaded {
        entry,
        headers: match program.headers {
            0 => 0,
            headers => base + headers,
        },
        header_count: program.header_count,
        interpreter: 0,
        code: code(base, program),
        start: entry,
    };
    if let Some((image, object)) = interpreter {
        let base = match object.base {
            Some(base) => base,
            None => find_room(object)?,
        };
        map(image, object, base)?;
        loaded.interpreter = base;
        loaded.start = base.wrapping_add(object.entry);
    }
    Ok(loaded)
}

/// The range of the file's executable bytes.
fn code(base: u64, object: &Object) -> (u64, u64) {
    let code = || {
        let all = object.segments.iter();
        all.filter(|segment| segment.p_flags & abi::PF_X != 0)
    };
    let start = code()
        .map(|segment| base.wrapping_add(segment.p_vaddr))
        .min();
    let end = code()
        .map(|segment| base.wrapping_add(segment.p_vaddr + segment.p_filesz))
        .max();
    start.zip(end).unwrap_or_default()
}

/// Bytes of the file's last segment: what Linux counts as the program's data.
fn data_size(object: &Object) -> u64 {
    let all = || object.segments.iter();
    let start = all().map(|segment| segment.p_vaddr).max();
    let end = all()
        .map(|segment| segment.p_vaddr + segment.p_filesz)
        .max();
    start
        .zip(end)
        .map_or(0, |(start, end)| end.saturating_sub(start))
}

/// Finds a free range for an object that may go anywhere; returns its load base.
fn find_room(object: &Object) -> Result<u64, Error> {
    let (first, end) = object.span();
    let space = process::space();
    let flags = linux::MAP_PRIVATE | linux::MAP_ANONYMOUS | linux::MAP_NORESERVE;
    let room = space.mmap(0, end - first, linux::PROT_NONE, flags);
    let room = room.map_err(|_| Error::NoMemory)?;
    let freed = space.munmap(room, end - first);
    freed.map_err(|_| Error::NoMemory)?;
    Ok(room.wrapping_sub(first))
}

fn protection(segment: &ProgramHeader) -> u32 {
    let mut protection = 0;
    for (flag, bit) in [
        (abi::PF_R, linux::PROT_READ),
        (abi::PF_W, linux::PROT_WRITE),
        (abi::PF_X, linux::PROT_EXEC),
    ] {
        if segment.p_flags & flag != 0 {
            protection |= bit;
        }
    }
    protection
}

/// Maps all segments. If two share a page, the later one wins, as on Linux.
fn map(image: &Image, object: &Object, base: u64) -> Result<(), Error> {
    for segment in &object.segments {
        let start = base.wrapping_add(segment.p_vaddr);
        let (first, file_end) = (start & !(PAGE - 1), start + segment.p_filesz);
        let mut mapped = first;
        if segment.p_filesz != 0 {
            mapped = file_end.next_multiple_of(PAGE);
            map_file(image, segment, first, mapped)?;
        }
        if segment.p_memsz > segment.p_filesz {
            if segment.p_filesz != 0 {
                clear(segment, file_end, mapped)?;
            }
            map_zeroes(segment, mapped, start + segment.p_memsz)?;
        }
    }
    Ok(())
}

fn map_file(image: &Image, segment: &ProgramHeader, start: u64, end: u64) -> Result<(), Error> {
    let opened = image.opened(segment.p_offset & !(PAGE - 1));
    let flags = linux::MAP_PRIVATE | linux::MAP_FIXED;
    let mapped =
        process::space().mmap_object(start, end - start, protection(segment), flags, &opened);
    mapped.map(drop).map_err(|_| Error::NoMemory)
}

/// Zeroes the rest of the last page of file bytes, if the segment is writable.
fn clear(segment: &ProgramHeader, start: u64, end: u64) -> Result<(), Error> {
    const ZEROES: [u8; PAGE as usize] = [0; PAGE as usize];
    if segment.p_flags & abi::PF_W == 0 {
        return Ok(());
    }
    uaccess::write_bytes(start, &ZEROES[..(end - start) as usize]).map_err(|_| Error::NoMemory)
}

/// Maps the part without bytes in the file: writable whatever the segment says, as on Linux.
fn map_zeroes(segment: &ProgramHeader, start: u64, end: u64) -> Result<(), Error> {
    let end = end.next_multiple_of(PAGE);
    if start >= end {
        return Ok(());
    }
    let execute = protection(segment) & linux::PROT_EXEC;
    let protection = linux::PROT_READ | linux::PROT_WRITE | execute;
    let flags = linux::MAP_PRIVATE | linux::MAP_ANONYMOUS | linux::MAP_FIXED;
    let mapped = process::space().mmap(start, end - start, protection, flags);
    mapped.map(drop).map_err(|_| Error::NoMemory)
}
