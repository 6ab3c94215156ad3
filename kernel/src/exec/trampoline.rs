//! The code that returns from signal handlers, on architectures whose programs have none of their own. Linux has
//! it in its vDSO.

use linux_raw_sys::general as linux;

use super::elf::Error;
use crate::arch::layout::TRAMPOLINE;
use crate::arch::uaccess;
use crate::memory::PAGE_SIZE;
use crate::process;

/// Maps it into the current process's address space.
///
/// # Errors
/// No memory.
pub fn map() -> Result<(), Error> {
    if TRAMPOLINE.is_empty() {
        return Ok(());
    }
    let space = process::space();
    let writable = linux::PROT_READ | linux::PROT_WRITE;
    let flags = linux::MAP_PRIVATE | linux::MAP_ANONYMOUS;
    let at = space
        .mmap(0, PAGE_SIZE, writable, flags)
        .map_err(|_| Error::NoMemory)?;
    for (place, instruction) in (at..).step_by(4).zip(TRAMPOLINE) {
        uaccess::write(place, instruction).map_err(|_| Error::NoMemory)?;
    }
    space
        .mprotect(at, PAGE_SIZE, linux::PROT_READ | linux::PROT_EXEC)
        .map_err(|_| Error::NoMemory)?;
    space.set_trampoline(at);
    Ok(())
}
