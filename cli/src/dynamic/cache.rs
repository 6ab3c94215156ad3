//! Reads `/etc/ld.so.cache`, in which glibc's loader finds libraries without a search through folders.
//!
//! The file has a header, entries of 24 bytes, and texts that they point to. All numbers have the machine's
//! byte order, here little-endian. Older caches have an older table in front. An entry's flags say what it is
//! for. A name has several entries if it depends on hardware capabilities: the loader takes the best one for
//! the machine.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::arch::Arch;

const OLD: &[u8] = b"ld.so-1.7.0\0";
const NEW: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER: usize = 48;
const ENTRY: usize = 24;
const OLD_ENTRY: usize = 12;

/// The flags of an ELF library of glibc for an architecture.
const fn flags(arch: Arch) -> u32 {
    match arch {
        Arch::X86_64 => 0x0303,
        Arch::AArch64 => 0x0a03,
    }
}

/// A cache.
pub struct Cache<'c> {
    /// From the new header on; offsets of texts are relative to it.
    bytes: &'c [u8],
}

impl<'c> Cache<'c> {
    /// Parses a file. `None` if its format is unknown or it is damaged: a loader then ignores it.
    pub fn parse(file: &'c [u8]) -> Option<Self> {
        let bytes = match file.strip_prefix(OLD) {
            Some(rest) => {
                let count = number(rest, 0)? as usize;
                let entries = count.checked_mul(OLD_ENTRY)?;
                let end = (OLD.len() + 4).checked_add(entries)?;
                file.get(end.checked_next_multiple_of(8)?..)?
            }
            None => file,
        };
        let cache = Cache { bytes };
        let is_whole = bytes.starts_with(NEW) && cache.entries()?.len() % ENTRY == 0;
        is_whole.then_some(cache)
    }

    fn entries(&self) -> Option<&'c [u8]> {
        let count = number(self.bytes, NEW.len())? as usize;
        self.bytes.get(HEADER..)?.get(..count.checked_mul(ENTRY)?)
    }

    /// The paths of a library. Files for every machine come before files that need capabilities.
    pub fn find(&self, name: &OsStr, arch: Arch) -> Vec<&'c Path> {
        let mut found = Vec::new();
        for entry in self
            .entries()
            .into_iter()
            .flat_map(|all| all.chunks_exact(ENTRY))
        {
            let field = |at| number(entry, at).unwrap_or(0);
            if field(0) != flags(arch) || self.text(field(4)) != Some(name.as_bytes()) {
                continue;
            }
            if let Some(path) = self.text(field(8)) {
                let needs_more = field(16) != 0 || field(20) != 0;
                found.push((needs_more, Path::new(OsStr::from_bytes(path))));
            }
        }
        found.sort_by_key(|&(needs_more, _)| needs_more);
        found.into_iter().map(|(_, path)| path).collect()
    }

    fn text(&self, at: u32) -> Option<&'c [u8]> {
        let rest = self.bytes.get(at as usize..)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        Some(&rest[..end])
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*four))
}

#[cfg(test)]
pub mod tests {
    use super::{Arch, Cache, ENTRY, HEADER, NEW, OLD, Path, flags};
    use std::ffi::OsStr;

    pub const OURS: u32 = flags(Arch::X86_64);

    /// A cache of names, paths, flags and capabilities.
    pub fn made(entries: &[(&str, &str, u32, u64)]) -> Vec<u8> {
        let mut texts = Vec::new();
        let mut table = Vec::new();
        let texts_at = HEADER + entries.len() * ENTRY;
        for (name, path, flags, capabilities) in entries {
            let mut text = |text: &str| {
                let at = texts_at + texts.len();
                texts.extend_from_slice(text.as_bytes());
                texts.push(0);
                at as u32
            };
            for field in [*flags, text(name), text(path), 0] {
                table.extend_from_slice(&field.to_le_bytes());
            }
            table.extend_from_slice(&capabilities.to_le_bytes());
        }
        let mut file = NEW.to_vec();
        file.extend_from_slice(&(entries.len() as u32).to_le_bytes());
        file.resize(HEADER, 0);
        [file, table, texts].concat()
    }

    fn find(file: &[u8], name: &str) -> Vec<String> {
        let cache = Cache::parse(file).unwrap();
        let found = cache.find(OsStr::new(name), Arch::X86_64);
        let text = |path: &&Path| path.to_str().unwrap().to_owned();
        found.iter().map(text).collect()
    }

    const ENTRIES: [(&str, &str, u32, u64); 4] = [
        ("liba.so.1", "/fast/liba.so.1", OURS, 1 << 62 | 1),
        ("liba.so.1", "/lib/liba.so.1", OURS, 0),
        ("liba.so.1", "/lib32/liba.so.1", 0x0003, 0),
        ("libb.so.1", "/lib/libb.so.1", OURS, 0),
    ];

    #[test]
    fn finds_libraries_for_this_machine() {
        let file = made(&ENTRIES);
        let cache = Cache::parse(&file).unwrap();
        let other = cache.find(OsStr::new("liba.so.1"), Arch::AArch64);
        assert!(other.is_empty());
        assert_eq!(
            find(&file, "liba.so.1"),
            ["/lib/liba.so.1", "/fast/liba.so.1"]
        );
        assert_eq!(find(&file, "libb.so.1"), ["/lib/libb.so.1"]);
        assert!(find(&file, "libb.so").is_empty());
    }

    #[test]
    fn passes_over_an_older_table() {
        let mut file = OLD.to_vec();
        file.extend_from_slice(&3_u32.to_le_bytes());
        file.resize((16 + 36_usize).next_multiple_of(8), 0);
        file.extend(made(&ENTRIES));
        assert_eq!(find(&file, "libb.so.1"), ["/lib/libb.so.1"]);
    }

    #[test]
    fn a_damaged_one_is_none() {
        let whole = made(&ENTRIES);
        for length in 0..HEADER + 4 * ENTRY {
            assert!(Cache::parse(&whole[..length]).is_none(), "{length}");
        }
        for length in HEADER + 4 * ENTRY..whole.len() {
            let cache = Cache::parse(&whole[..length]).unwrap();
            let _ = cache.find(OsStr::new("liba.so.1"), Arch::X86_64);
        }
        for at in 0..HEADER + 4 * ENTRY {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            if let Some(cache) = Cache::parse(&damaged) {
                let _ = cache.find(OsStr::new("liba.so.1"), Arch::X86_64);
            }
        }
    }

    /// This machine's own cache, if there is one, has the C library.
    #[test]
    fn reads_a_real_one() {
        let file = std::fs::read("/etc/ld.so.cache");
        let (Ok(file), Some(Arch::X86_64)) = (file, Arch::of_host()) else {
            return;
        };
        let found = find(&file, "libc.so.6");
        assert!(
            found.iter().any(|path| Path::new(path).exists()),
            "{found:?}"
        );
    }
}
