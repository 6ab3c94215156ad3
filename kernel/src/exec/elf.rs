//! Parses and checks an ELF file completely, before anything of the old program is gone. Bad input is refused
//! with a one-line error.

use core::fmt;

use alloc::vec::Vec;
use elf::abi;
use elf::endian::LittleEndian;
use elf::file::{Class, FileHeader, parse_ident};
use elf::segment::{ProgramHeader, SegmentTable};

use super::Image;
use crate::arch::layout::{ELF_MACHINE, PIE_BASE};
use crate::errno::{EIO, ELIBBAD, ENOEXEC, ENOMEM, Errno};
use crate::files::directory::Name;
use crate::memory::{USER_END, machine};

pub const PAGE: u64 = 4096;
/// Linux's `mmap_min_addr`.
const LOWEST: u64 = 0x1_0000;
/// The sizes of an ELF header and of a program header.
const HEADER: usize = 64;
const ENTRY: usize = 56;
/// The error for a program of another architecture.
const ELSEWHERE: &str = match ELF_MACHINE {
    abi::EM_AARCH64 => "built for another architecture; only AArch64 programs run",
    _ => "built for another architecture; only x86-64 programs run",
};
/// The longest path of an interpreter.
const LONGEST_PATH: u64 = 4096;

/// Why a file cannot be run.
pub enum Error {
    Format(&'static str),
    TooLarge {
        needed: u64,
        memory: u64,
    },
    NoMemory,
    /// The interpreter that the program names cannot be run.
    Interpreter(Errno),
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
            Self::Interpreter(error) => {
                write!(f, "its interpreter cannot be run (error {})", error.0)
            }
        }
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        match error {
            Error::NoMemory | Error::TooLarge { .. } => ENOMEM,
            Error::Format(_) => ENOEXEC,
            Error::Interpreter(error) => error,
        }
    }
}

use Error::Format;

/// Segments, on the heap: a kernel stack has no room for them.
pub type Segments = Vec<ProgramHeader>;
/// The most segments accepted.
const MOST: usize = 64;

/// A file that can be loaded.
pub struct Object {
    /// The load base; `None`: any address.
    pub base: Option<u64>,
    /// The `PT_LOAD` segments, by address.
    pub segments: Segments,
    pub entry: u64,
    /// Where the program headers are in memory, relative to the base, or 0.
    pub headers: u64,
    pub header_count: u64,
    /// The path of the interpreter that loads it.
    pub interpreter: Option<Name>,
}

impl Object {
    /// Checks a program.
    ///
    /// # Errors
    /// The reason why it cannot run.
    pub fn of_program(image: &Image) -> Result<Self, Error> {
        let (header, all) = read(image)?;
        let base = match header.e_type {
            abi::ET_EXEC => 0,
            _ => PIE_BASE & !(alignment(&all) - 1),
        };
        let interpreter = all.iter().find(|segment| segment.p_type == abi::PT_INTERP);
        let interpreter = interpreter.map(|segment| path_in(image, segment));
        Ok(Self {
            interpreter: interpreter.transpose()?,
            ..Self::new(image, &header, &all, Some(base))?
        })
    }

    /// Checks an interpreter.
    ///
    /// # Errors
    /// The reason why it cannot run.
    pub fn of_interpreter(image: &Image) -> Result<Self, Error> {
        if image.size() < HEADER as u64 {
            return Err(Error::Interpreter(EIO));
        }
        let object = read(image).and_then(|(header, all)| {
            let base = (header.e_type == abi::ET_EXEC).then_some(0);
            Self::new(image, &header, &all, base)
        });
        object.map_err(|error| match error {
            Format(_) => Error::Interpreter(ELIBBAD),
            error => error,
        })
    }

    fn new(
        image: &Image,
        header: &FileHeader<LittleEndian>,
        all: &[ProgramHeader],
        base: Option<u64>,
    ) -> Result<Self, Error> {
        let segments = check_segments(image.size(), base, all)?;
        if base.unwrap_or(0).wrapping_add(header.e_entry) >= USER_END {
            return Err(Format(
                "damaged: the entry point lies outside of user memory",
            ));
        }
        let mut with_table = segments.iter().filter(|segment| {
            segment.p_offset <= header.e_phoff
                && header.e_phoff < segment.p_offset + segment.p_filesz
        });
        let headers = with_table.next().map_or(0, |segment| {
            segment.p_vaddr + header.e_phoff - segment.p_offset
        });
        Ok(Self {
            base,
            segments,
            entry: header.e_entry,
            headers,
            header_count: u64::from(header.e_phnum),
            interpreter: None,
        })
    }

    /// The pages that it covers, relative to its base: first address and end.
    pub fn span(&self) -> (u64, u64) {
        let first = self.segments.first().map_or(0, |segment| segment.p_vaddr);
        let ends = self.segments.iter().map(|s| s.p_vaddr + s.p_memsz);
        let end = ends.max().unwrap_or(first).next_multiple_of(PAGE);
        (first & !(PAGE - 1), end)
    }
}

fn push(segments: &mut Segments, segment: ProgramHeader) -> Result<(), Error> {
    if segments.len() == MOST {
        return Err(Format("more than 64 segments"));
    }
    segments.try_reserve(1).map_err(|_| Error::NoMemory)?;
    segments.push(segment);
    Ok(())
}

/// Reads the ELF header and checks its fields.
fn read_header(image: &Image) -> Result<FileHeader<LittleEndian>, Error> {
    let mut bytes = [0; HEADER];
    let length = image.read(0, &mut bytes);
    if length < 4 || bytes[..4] != abi::ELFMAGIC {
        return Err(Format("not an ELF program"));
    }
    if length < HEADER {
        return Err(Format("truncated: shorter than an ELF header"));
    }
    if bytes[abi::EI_CLASS] != abi::ELFCLASS64 {
        return Err(Format("a 32-bit program; only 64-bit ones run"));
    }
    if bytes[abi::EI_DATA] != abi::ELFDATA2LSB {
        return Err(Format("a big-endian program; only little-endian ones run"));
    }
    if u16::from_le_bytes([bytes[18], bytes[19]]) != ELF_MACHINE {
        return Err(Format(ELSEWHERE));
    }
    let damaged = |_| Format("truncated or damaged ELF header");
    let ident = parse_ident::<LittleEndian>(&bytes).map_err(damaged)?;
    let header = FileHeader::parse_tail(ident, &bytes[abi::EI_NIDENT..]).map_err(damaged)?;
    match header.e_type {
        abi::ET_EXEC | abi::ET_DYN => Ok(header),
        abi::ET_REL => Err(Format("an object file, not a program")),
        _ => Err(Format("not a program")),
    }
}

/// Reads the ELF header and all program headers.
fn read(image: &Image) -> Result<(FileHeader<LittleEndian>, Segments), Error> {
    let header = read_header(image)?;
    if header.e_phnum == 0 {
        return Err(Format("damaged: no program headers"));
    }
    let size = usize::from(header.e_phnum) * ENTRY;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| Error::NoMemory)?;
    bytes.resize(size, 0);
    if usize::from(header.e_phentsize) != ENTRY || image.read(header.e_phoff, &mut bytes) < size {
        return Err(Format("truncated or damaged ELF header"));
    }
    let mut all = Segments::new();
    for segment in SegmentTable::new(LittleEndian, Class::ELF64, &bytes).iter() {
        push(&mut all, segment)?;
    }
    Ok((header, all))
}

/// The largest alignment that a segment asks for.
fn alignment(all: &[ProgramHeader]) -> u64 {
    let loaded = all.iter().filter(|segment| segment.p_type == abi::PT_LOAD);
    let alignments = loaded.map(|segment| segment.p_align);
    alignments
        .filter(|align| align.is_power_of_two())
        .fold(PAGE, u64::max)
}

/// The path that a segment of the file holds.
fn path_in(image: &Image, segment: &ProgramHeader) -> Result<Name, Error> {
    const DAMAGED: Error = Format("damaged: no path of an interpreter");
    if !(2..=LONGEST_PATH).contains(&segment.p_filesz) {
        return Err(DAMAGED);
    }
    let size = segment.p_filesz as usize;
    let mut path = Name::new();
    path.try_reserve_exact(size).map_err(|_| Error::NoMemory)?;
    path.resize(size, 0);
    if image.read(segment.p_offset, &mut path) < size {
        return Err(Error::Interpreter(EIO));
    }
    if path.last() != Some(&0) {
        return Err(DAMAGED);
    }
    let length = path.iter().position(|&byte| byte == 0);
    path.truncate(length.unwrap_or(size));
    Ok(path)
}

/// The segments to load, checked against the file and each other.
fn check_segments(size: u64, base: Option<u64>, all: &[ProgramHeader]) -> Result<Segments, Error> {
    let mut segments = Segments::new();
    let mut total = 0u64;
    for segment in all.iter().filter(|segment| segment.p_type == abi::PT_LOAD) {
        let file_end = segment.p_offset.checked_add(segment.p_filesz);
        if file_end.is_none_or(|end| end > size) {
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
        let start = base.unwrap_or(0).checked_add(segment.p_vaddr);
        let end = start.and_then(|start| start.checked_add(segment.p_memsz));
        if end.is_none_or(|end| end > USER_END) {
            return Err(Format("damaged: a segment lies outside of user memory"));
        }
        if base.is_some() && start.is_some_and(|start| start < LOWEST) {
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
