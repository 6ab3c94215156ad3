//! Builds the initial user stack: arguments, environment and auxiliary vector, as Linux lays them out.

use alloc::vec::Vec;

use linux_raw_sys::auxvec;
use linux_raw_sys::general as linux;

use super::Plan;
use super::elf::Error;
use super::load::Loaded;
use super::strings::Strings;
use crate::arch::{self, random, signal_frame, uaccess};
use crate::memory::USER_END;
use crate::process;

/// Bytes mapped below the arguments up front, as many as Linux maps; the rest grows.
const FIRST_SIZE: u64 = 32 * 4096;

/// Writes downwards from the stack's end.
struct Writer {
    sp: u64,
}

impl Writer {
    fn bytes(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        self.sp -= bytes.len() as u64;
        uaccess::write_bytes(self.sp, bytes).map_err(|_| Error::NoMemory)?;
        Ok(self.sp)
    }

    fn string(&mut self, text: &[u8]) -> Result<u64, Error> {
        self.bytes(&[0])?;
        self.bytes(text)
    }

    /// Writes all strings in one piece; returns the address of each.
    fn strings(&mut self, texts: &Strings) -> Result<Vec<u64>, Error> {
        let mut places = Vec::new();
        places
            .try_reserve(texts.len())
            .map_err(|_| Error::NoMemory)?;
        let mut at = self.bytes(texts.bytes())?;
        for text in texts.iter() {
            places.push(at);
            at += text.len() as u64 + 1;
        }
        Ok(places)
    }
}

/// Maps and fills the stack; returns the initial stack pointer.
///
/// # Errors
/// No memory, or arguments larger than the stack.
pub fn set_up(plan: &Plan, loaded: &Loaded) -> Result<u64, Error> {
    let size = plan.arguments.size() + plan.environment.size();
    if size as u64 > super::STACK_LIMIT / 4 {
        return Err(Error::Format(
            "the arguments and the environment are too large",
        ));
    }
    let flags = linux::MAP_PRIVATE | linux::MAP_ANONYMOUS | linux::MAP_FIXED | linux::MAP_GROWSDOWN;
    let first_size = FIRST_SIZE + (size as u64 + 1).next_multiple_of(4096);
    process::space()
        .mmap(
            USER_END - first_size,
            first_size,
            linux::PROT_READ | linux::PROT_WRITE,
            flags,
        )
        .map_err(|_| Error::NoMemory)?;

    let mut writer = Writer { sp: USER_END };
    writer.bytes(&[0; 8])?;
    let path = writer.string(plan.path.as_bytes())?;
    let environment = writer.strings(&plan.environment)?;
    let arguments = writer.strings(&plan.arguments)?;
    writer.sp &= !15;
    let platform = writer.string(arch::layout::MACHINE.as_bytes())?;
    let mut seed = [0; 16];
    seed[..8].copy_from_slice(&random::next().to_le_bytes());
    seed[8..].copy_from_slice(&random::next().to_le_bytes());
    let seed = writer.bytes(&seed)?;

    let vector = [
        (auxvec::AT_HWCAP, arch::hardware_capabilities()),
        (auxvec::AT_PAGESZ, 4096),
        (auxvec::AT_CLKTCK, 100),
        (auxvec::AT_PHDR, loaded.headers),
        (auxvec::AT_PHENT, 56),
        (auxvec::AT_PHNUM, loaded.header_count),
        (auxvec::AT_BASE, loaded.interpreter),
        (auxvec::AT_FLAGS, 0),
        (auxvec::AT_ENTRY, loaded.entry),
        (auxvec::AT_UID, 0),
        (auxvec::AT_EUID, 0),
        (auxvec::AT_GID, 0),
        (auxvec::AT_EGID, 0),
        (auxvec::AT_SECURE, 0),
        (auxvec::AT_RANDOM, seed),
        (auxvec::AT_HWCAP2, 0),
        (auxvec::AT_EXECFN, path),
        (auxvec::AT_PLATFORM, platform),
        (auxvec::AT_MINSIGSTKSZ, signal_frame::needed_stack()),
        (auxvec::AT_NULL, 0),
    ];
    let mut words = Vec::new();
    let count = 1 + arguments.len() + 1 + environment.len() + 1 + 2 * vector.len();
    words.try_reserve(count).map_err(|_| Error::NoMemory)?;
    words.push(arguments.len() as u64);
    words.extend(arguments);
    words.push(0);
    words.extend(environment);
    words.push(0);
    words.extend(
        vector
            .into_iter()
            .flat_map(|(kind, value)| [u64::from(kind), value]),
    );
    let sp = (writer.sp - 8 * count as u64) & !15;
    for (at, word) in (0..).zip(&words) {
        uaccess::write(sp + 8 * at, word).map_err(|_| Error::NoMemory)?;
    }
    Ok(sp)
}
