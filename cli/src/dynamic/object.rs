//! Reads from an ELF file what a loader reads before it searches for libraries: the interpreter, the names of
//! needed libraries, and the folders to search for them.
//!
//! Like a loader, this uses program headers only; section headers may be missing.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use elf::ElfBytes;
use elf::abi;
use elf::dynamic::DynamicTable;
use elf::endian::LittleEndian;
use elf::segment::ProgramHeader;
use elf::string_table::StringTable;

use crate::arch::Arch;
use crate::elf_check;
use crate::size::Size;

/// A program or a library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// What it is for.
    pub arch: Arch,
    /// The loader that has to start it.
    pub interpreter: Option<PathBuf>,
    /// The name by which other objects need it.
    pub soname: Option<OsString>,
    /// The libraries that it needs, in order.
    pub needed: Vec<OsString>,
    /// Folders to search for its libraries and for theirs, separated by colons.
    pub rpath: Option<OsString>,
    /// Folders to search for its own libraries only. If present, `rpath` does not count.
    pub runpath: Option<OsString>,
    /// Whether the search for its libraries leaves out the loader's own folders.
    pub avoids_default: bool,
}

/// Why a loader for `arch` skips a file and continues its search, if it does: the file is for another machine.
pub fn foreign(file: &[u8], arch: Arch) -> Option<&'static str> {
    if !file.starts_with(&abi::ELFMAGIC) || file.len() < elf_check::HEADER {
        return None;
    }
    if file[abi::EI_CLASS] == abi::ELFCLASS32 {
        return Some("32-bit");
    }
    match elf_check::arch(file) {
        Ok(other) if other == arch => None,
        Ok(Arch::X86_64) => Some("for x86-64"),
        Ok(Arch::AArch64) => Some("for AArch64"),
        Err(_) => Some("for another machine"),
    }
}

impl Object {
    /// Reads a file that is a sound program or library, and fits a machine with `memory`.
    pub fn read(file: &[u8], memory: Size) -> Result<Self> {
        let arch = elf_check::check(file, memory)?;
        let elf = ElfBytes::<LittleEndian>::minimal_parse(file)?;
        let headers: Vec<_> = elf.segments().into_iter().flatten().collect();
        let mut object = Object {
            arch,
            ..Object::default()
        };
        if let Some(header) = find(&headers, abi::PT_INTERP) {
            let data = elf.segment_data(header).ok();
            let path = data.context("truncated: its interpreter's name lies beyond its end")?;
            let path = path.strip_suffix(&[0]).unwrap_or(path);
            object.interpreter = Some(OsString::from_vec(path.to_vec()).into());
        }
        let Some(header) = find(&headers, abi::PT_DYNAMIC) else {
            return Ok(object);
        };
        let data = elf.segment_data(header).ok();
        let data = data.context("truncated: its dynamic section lies beyond its end")?;
        let entries = DynamicTable::new(LittleEndian, elf.ehdr.class, data).iter();
        let entries: Vec<_> = entries
            .take_while(|entry| entry.d_tag != abi::DT_NULL)
            .collect();
        let value = |tag| entries.iter().find(|entry| entry.d_tag == tag);
        let value = |tag| value(tag).map(elf::dynamic::Dyn::d_val);
        let texts = match (value(abi::DT_STRTAB), value(abi::DT_STRSZ)) {
            (Some(address), Some(size)) => in_file(&headers, file, address, size)
                .context("damaged: its names lie outside of what it loads")?,
            _ => &[],
        };
        let texts = StringTable::new(texts);
        let text = |at: u64| -> Result<OsString> {
            let at = usize::try_from(at).ok();
            let name = at.and_then(|at| texts.get_raw(at).ok());
            let name = name.context("damaged: a name lies outside of its table")?;
            Ok(OsString::from_vec(name.to_vec()))
        };
        for entry in &entries {
            match entry.d_tag {
                abi::DT_NEEDED => object.needed.push(text(entry.d_val())?),
                abi::DT_SONAME => object.soname = Some(text(entry.d_val())?),
                abi::DT_RPATH => object.rpath = Some(text(entry.d_val())?),
                abi::DT_RUNPATH => object.runpath = Some(text(entry.d_val())?),
                abi::DT_FLAGS_1 => {
                    object.avoids_default = entry.d_val() & abi::DF_1_NODEFLIB as u64 != 0;
                }
                _ => {}
            }
        }
        Ok(object)
    }
}

fn find(headers: &[ProgramHeader], kind: u32) -> Option<&ProgramHeader> {
    headers.iter().find(|header| header.p_type == kind)
}

/// The bytes of the file that are loaded at an address.
fn in_file<'f>(
    headers: &[ProgramHeader],
    file: &'f [u8],
    address: u64,
    size: u64,
) -> Option<&'f [u8]> {
    let mut loaded = headers
        .iter()
        .filter(|header| header.p_type == abi::PT_LOAD);
    let segment = loaded.find(|segment| {
        let end = segment.p_vaddr.checked_add(segment.p_filesz);
        segment.p_vaddr <= address && end.is_some_and(|end| address < end)
    })?;
    let into = address - segment.p_vaddr;
    let size = size.min(segment.p_filesz - into);
    let start = usize::try_from(segment.p_offset.checked_add(into)?).ok()?;
    file.get(start..)?.get(..usize::try_from(size).ok()?)
}

#[cfg(test)]
mod tests {
    use super::{Arch, Object, foreign};
    use crate::dynamic::made::Made;
    use crate::size::Size;

    const MEMORY: Size = Size::mebi(64);

    #[test]
    fn reads_what_a_loader_reads() {
        let mut made = Made::program("/lib/ld.so");
        made.needed = vec!["libb.so.1", "liba.so"];
        made.runpath = Some("$ORIGIN/lib:/opt");
        made.soname = Some("self.so");
        let object = Object::read(&made.file(), MEMORY).unwrap();
        assert_eq!(object.interpreter.unwrap().to_str(), Some("/lib/ld.so"));
        assert_eq!(object.needed, ["libb.so.1", "liba.so"]);
        assert_eq!(object.runpath.unwrap(), "$ORIGIN/lib:/opt");
        assert_eq!(object.soname.unwrap(), "self.so");
        assert_eq!(object.rpath, None);
        assert!(!object.avoids_default);
    }

    #[test]
    fn a_program_that_needs_nothing_is_an_object_too() {
        let own = Made::library("x").file();
        assert_eq!(Object::read(&own, MEMORY).unwrap().interpreter, None);
    }

    #[test]
    fn no_cut_and_no_flipped_byte_is_a_panic() {
        let mut made = Made::program("/lib/ld.so");
        made.needed = vec!["libb.so.1"];
        let whole = made.file();
        for length in 0..whole.len() {
            let _ = Object::read(&whole[..length], MEMORY);
            let _ = foreign(&whole[..length], Arch::X86_64);
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                let _ = Object::read(&damaged, MEMORY);
            }
        }
    }

    #[test]
    fn says_what_is_damaged() {
        let mut made = Made::program("/lib/ld.so");
        made.needed = vec!["libb.so.1"];
        made.names_at = Some(0x70_0000);
        let error = Object::read(&made.file(), MEMORY).unwrap_err().to_string();
        assert!(error.contains("outside of what it loads"), "{error}");
    }

    #[test]
    fn knows_files_for_other_machines() {
        let mut file = Made::library("x").file();
        let foreign = |file: &[u8]| foreign(file, Arch::X86_64);
        assert_eq!(foreign(&file), None);
        file[18] = 183;
        assert_eq!(foreign(&file), Some("for AArch64"));
        assert_eq!(super::foreign(&file, Arch::AArch64), None);
        file[18] = 243;
        assert_eq!(foreign(&file), Some("for another machine"));
        file[4] = 1;
        assert_eq!(foreign(&file), Some("32-bit"));
        assert_eq!(foreign(b"no ELF file"), None);
    }
}
