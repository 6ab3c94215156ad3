//! Loading an ELF program: checked completely before anything is mapped.
//!
//! Only anonymous memory exists so far, so a segment is mapped anonymously, filled by copying and
//! then given its protection. Bad input is refused with one line.

use core::fmt;

use alloc::vec::Vec;
use elf::ElfBytes;
use elf::abi;
use elf::endian::LittleEndian;
use elf::segment::ProgramHeader;
use linux_raw_sys::general as linux;

use crate::arch::uaccess;
use crate::memory::{USER_END, machine};
use crate::process;

const PAGE: u64 = 4096;
/// Where a position-independent program goes without randomisation.
const PIE_BASE: u64 = 0x5555_5555_4000;
/// Linux's `mmap_min_addr`.
const LOWEST: u64 = 0x1_0000;

/// Pages that hold a part of the program's file.
#[derive(Clone, Copy)]
pub struct Part {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
}

/// All parts, in order.
pub type Parts = Vec<Part>;

/// A loaded program.
pub struct Loaded {
    /// What came from the file.
    pub parts: Parts,
    pub entry: u64,
    /// Where its program headers are in memory.
    pub headers: u64,
    pub header_count: u64,
}

/// Why a file cannot be run.
pub enum Error {
    Format(&'static str),
    TooLarge { needed: u64, memory: u64 },
    NoMemory,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(text) => f.write_str(text),
            Self::TooLarge { needed, memory } => write!(
                f,
                "larger than memory: it needs {} MiB, the machine has {} MiB",
                needed >> 20,
                memory >> 20
            ),
            Self::NoMemory => f.write_str("out of memory while loading the program"),
        }
    }
}

use Error::Format;

/// Checks what can be checked without the segments.
fn check_header(image: &[u8]) -> Result<(), Error> {
    if image.len() < 4 || image[..4] != abi::ELFMAGIC {
        return Err(Format("not an ELF program"));
    }
    if image.len() < 64 {
        return Err(Format("truncated: shorter than an ELF header"));
    }
    if image[abi::EI_CLASS] != abi::ELFCLASS64 {
        return Err(Format("a 32-bit program; only 64-bit ones run"));
    }
    let machine = u16::from_le_bytes([image[18], image[19]]);
    if image[abi::EI_DATA] != abi::ELFDATA2LSB || machine != abi::EM_X86_64 {
        return Err(Format(
            "built for another architecture; only x86-64 programs run",
        ));
    }
    Ok(())
}

/// Segments, on the heap: a kernel stack has no room for them.
type Segments = Vec<ProgramHeader>;
/// The most that are looked at.
const MOST: usize = 64;

fn push(segments: &mut Segments, segment: ProgramHeader) -> Result<(), Error> {
    if segments.len() == MOST {
        return Err(Format("more than 64 segments"));
    }
    segments.try_reserve(1).map_err(|_| Error::NoMemory)?;
    segments.push(segment);
    Ok(())
}

/// The segments to load, checked against the file and each other.
fn check_segments(image: &[u8], base: u64, all: &[ProgramHeader]) -> Result<Segments, Error> {
    let mut segments = Segments::new();
    let mut total = 0u64;
    for segment in all.iter().filter(|segment| segment.p_type == abi::PT_LOAD) {
        let file_end = segment.p_offset.checked_add(segment.p_filesz);
        if file_end.is_none_or(|end| end > image.len() as u64) {
            return Err(Format(
                "truncated: a segment lies beyond the end of the file",
            ));
        }
        if segment.p_memsz < segment.p_filesz {
            return Err(Format(
                "damaged: a segment is larger in the file than in memory",
            ));
        }
        if segment.p_memsz == 0 {
            continue;
        }
        let end = base
            .checked_add(segment.p_vaddr)
            .and_then(|at| at.checked_add(segment.p_memsz));
        if end.is_none_or(|end| end > USER_END) {
            return Err(Format("damaged: a segment lies outside of user memory"));
        }
        if base + segment.p_vaddr < LOWEST {
            return Err(Format("a segment lies below the lowest address allowed"));
        }
        if segment.p_vaddr % PAGE != segment.p_offset % PAGE {
            return Err(Format(
                "damaged: a segment's address does not fit its place in the file",
            ));
        }
        total = total.saturating_add(segment.p_memsz);
        push(&mut segments, *segment)?;
    }
    if segments.is_empty() {
        return Err(Format("damaged: no segment to load"));
    }
    segments.sort_unstable_by_key(|segment| segment.p_vaddr);
    if segments
        .windows(2)
        .any(|pair| pair[0].p_vaddr + pair[0].p_memsz > pair[1].p_vaddr)
    {
        return Err(Format("damaged: overlapping segments"));
    }
    let (memory, _) = machine::sizes();
    if total > memory {
        return Err(Error::TooLarge {
            needed: total,
            memory,
        });
    }
    Ok(segments)
}

fn protection(segment: &ProgramHeader) -> u32 {
    let mut protection = 0;
    if segment.p_flags & abi::PF_R != 0 {
        protection |= linux::PROT_READ;
    }
    if segment.p_flags & abi::PF_W != 0 {
        protection |= linux::PROT_WRITE;
    }
    if segment.p_flags & abi::PF_X != 0 {
        protection |= linux::PROT_EXEC;
    }
    protection
}

/// A program that can be loaded.
struct Checked {
    base: u64,
    segments: Segments,
    entry: u64,
    headers: u64,
    header_count: u64,
}

/// Checks all of a program that can be checked without loading it.
///
/// # Errors
/// What is wrong with it.
pub fn check(image: &[u8]) -> Result<(), Error> {
    examine(image).map(|_| ())
}

fn examine(image: &[u8]) -> Result<Checked, Error> {
    check_header(image)?;
    let file = ElfBytes::<LittleEndian>::minimal_parse(image)
        .map_err(|_| Format("truncated or damaged ELF header"))?;
    let base = match file.ehdr.e_type {
        abi::ET_EXEC => 0,
        abi::ET_DYN => PIE_BASE,
        abi::ET_REL => return Err(Format("an object file, not a program")),
        _ => return Err(Format("not a program")),
    };
    let table = file
        .segments()
        .ok_or(Format("damaged: no program headers"))?;
    let mut all = Segments::new();
    for segment in table.iter() {
        push(&mut all, segment)?;
    }
    if all.iter().any(|segment| segment.p_type == abi::PT_INTERP) {
        return Err(Format(
            "dynamically linked, which is not supported yet; link it with -static",
        ));
    }
    let segments = check_segments(image, base, &all)?;
    let entry = base.wrapping_add(file.ehdr.e_entry);
    if entry >= USER_END {
        return Err(Format(
            "damaged: the entry point lies outside of user memory",
        ));
    }
    let headers = segments
        .iter()
        .find(|segment| {
            segment.p_offset <= file.ehdr.e_phoff
                && file.ehdr.e_phoff < segment.p_offset + segment.p_filesz
        })
        .map_or(0, |segment| {
            base + segment.p_vaddr + file.ehdr.e_phoff - segment.p_offset
        });
    Ok(Checked {
        base,
        segments,
        entry,
        headers,
        header_count: u64::from(file.ehdr.e_phnum),
    })
}

/// Loads a program into the process's address space.
///
/// # Errors
/// What is wrong with it.
pub fn load(image: &[u8]) -> Result<Loaded, Error> {
    let checked = examine(image)?;
    let base = checked.base;
    let mut parts = Parts::new();
    parts
        .try_reserve_exact(checked.segments.len())
        .map_err(|_| Error::NoMemory)?;
    let map_end = map(image, base, &checked.segments)?;
    process::space().set_brk(map_end);
    let from_file = checked.segments.iter();
    let from_file = from_file.filter(|segment| segment.p_filesz != 0);
    parts.extend(from_file.map(|segment| Part {
        start: (base + segment.p_vaddr) & !(PAGE - 1),
        end: (base + segment.p_vaddr + segment.p_filesz).next_multiple_of(PAGE),
        offset: segment.p_offset & !(PAGE - 1),
    }));
    Ok(Loaded {
        parts,
        entry: checked.entry,
        headers: checked.headers,
        header_count: checked.header_count,
    })
}

/// Maps and fills all segments; the end of the last one's pages.
fn map(image: &[u8], base: u64, segments: &[ProgramHeader]) -> Result<u64, Error> {
    let space = process::space();
    let flags = linux::MAP_PRIVATE | linux::MAP_ANONYMOUS | linux::MAP_FIXED;
    let start = |segment: &ProgramHeader| (base + segment.p_vaddr) & !(PAGE - 1);
    let end =
        |segment: &ProgramHeader| (base + segment.p_vaddr + segment.p_memsz).next_multiple_of(PAGE);
    let mut mapped = 0;
    for segment in segments {
        // Two segments may share a page; then the later one's protection holds for it.
        let from = start(segment).max(mapped);
        mapped = end(segment);
        if from < mapped {
            let writable = linux::PROT_READ | linux::PROT_WRITE;
            space
                .mmap(from, mapped - from, writable, flags)
                .map_err(|_| Error::NoMemory)?;
        }
        let content = &image[segment.p_offset as usize..][..segment.p_filesz as usize];
        uaccess::write_bytes(base + segment.p_vaddr, content).map_err(|_| Error::NoMemory)?;
    }
    for segment in segments {
        let (from, to) = (start(segment), end(segment));
        space
            .mprotect(from, to - from, protection(segment))
            .map_err(|_| Error::NoMemory)?;
    }
    Ok(mapped)
}
