//! A guest's own page tables, walked by the kernel: from a linear address to a guest-physical one, and accesses
//! of the kernel to guest memory. For instructions that the kernel carries out; nothing here is fast.

use super::memory::{DirtyRing, Fault, GuestMemory};
use super::state::{CR0_PG, EFER_LMA, State};
use crate::arch::protection_keys::Opened;
use crate::arch::uaccess;
use crate::errno::{EFAULT, Errno};

/// Why an access of the kernel for a guest failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The guest's tables refuse it: the error code of the page fault.
    ByGuest { address: u64, error: u32 },
    /// There is no memory at this guest-physical address.
    NoMemory(u64),
    /// The program's memory is not there.
    ByHost,
}

const PAGE: u64 = 4096;
const PRESENT: u64 = 1;
const WRITABLE: u64 = 2;
const USER: u64 = 4;
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Reads a guest-physical word of 4 or 8 bytes.
fn word(memory: &GuestMemory, at: u64, bytes: usize) -> Result<u64, Refused> {
    let mut word = [0; 8];
    read_physical(memory, at, &mut word[..bytes])?;
    Ok(u64::from_le_bytes(word))
}

/// Reads guest-physical memory within a page.
fn read_physical(memory: &GuestMemory, at: u64, to: &mut [u8]) -> Result<(), Refused> {
    let host = memory.host_address(at).ok_or(Refused::NoMemory(at))?;
    // The rights in the register are the guest's, and not those of the program.
    let _opened = Opened::new();
    uaccess::read_bytes(host, to).map_err(|_| Refused::ByHost)
}

/// The guest-physical address of a linear one.
pub fn translate(
    state: &mut State,
    memory: &GuestMemory,
    linear: u64,
    writes: bool,
) -> Result<u64, Refused> {
    let save = state.save();
    let (cr0, cr3, cr4, efer, cpl) = (save.cr0, save.cr3, save.cr4, save.efer, save.cpl);
    if cr0 & CR0_PG == 0 {
        return Ok(linear & 0xffff_ffff);
    }
    let long = efer & EFER_LMA != 0;
    const PAE: u64 = 1 << 5;
    const LA57: u64 = 1 << 12;
    let (levels, bytes, bits) = match (long, cr4 & PAE != 0) {
        (true, _) if cr4 & LA57 != 0 => (5, 8, 9),
        (true, _) => (4, 8, 9),
        (false, true) => (3, 8, 9),
        (false, false) => (2, 4, 10),
    };
    let user = cpl == 3;
    let error = |present: bool| Refused::ByGuest {
        address: linear,
        error: u32::from(present) | u32::from(writes) << 1 | u32::from(user) << 2,
    };
    let (mut table, mut rights) = match levels {
        3 => (cr3 & 0xffff_ffe0, WRITABLE | USER),
        _ => (cr3 & ADDRESS, WRITABLE | USER),
    };
    let mut level = levels;
    let entry = loop {
        level -= 1;
        let index = linear >> (12 + level * bits) & ((1 << bits) - 1);
        let index = if levels == 3 && level == 2 {
            index & 3
        } else {
            index
        };
        let entry = word(memory, table + index * bytes as u64, bytes)?;
        if entry & PRESENT == 0 {
            return Err(error(false));
        }
        // The top entries of 32-bit tables with physical address extension have no rights.
        if !(levels == 3 && level == 2) {
            rights &= entry;
        }
        if level == 0 || entry & LARGE != 0 && (level == 1 || level == 2 && levels > 3) {
            break entry;
        }
        table = entry & ADDRESS;
    };
    const WRITE_PROTECT: u64 = 1 << 16;
    let may_write = rights & WRITABLE != 0 || !user && cr0 & WRITE_PROTECT == 0;
    if user && rights & USER == 0 || writes && !may_write {
        return Err(error(true));
    }
    let offset = (1u64 << (12 + level * bits)) - 1;
    let base = entry & ADDRESS & !offset;
    let base = if bytes == 4 { base & 0xffff_ffff } else { base };
    Ok(base | linear & offset)
}

/// Calls `f` for each part of a linear range that lies in one page, with its guest-physical address and length.
fn each_part(
    linear: u64,
    length: usize,
    mut f: impl FnMut(u64, usize, usize) -> Result<(), Refused>,
) -> Result<(), Refused> {
    let mut done = 0;
    while done < length {
        let at = linear.wrapping_add(done as u64);
        let part = ((PAGE - at % PAGE) as usize).min(length - done);
        f(at, done, part)?;
        done += part;
    }
    Ok(())
}

/// Reads memory at a linear address.
///
/// # Errors
/// Why it is not allowed; part may have been read.
pub fn read(
    state: &mut State,
    memory: &GuestMemory,
    linear: u64,
    to: &mut [u8],
) -> Result<(), Refused> {
    let length = to.len();
    each_part(linear, length, |at, done, part| {
        let physical = translate(state, memory, at, false)?;
        read_physical(memory, physical, &mut to[done..done + part])
    })
}

/// Writes memory at a linear address, for the vCPU that has this ring.
///
/// # Errors
/// As for [`read`].
pub fn write(
    state: &mut State,
    memory: &GuestMemory,
    linear: u64,
    from: &[u8],
    ring: Option<&DirtyRing<'_>>,
) -> Result<(), Refused> {
    each_part(linear, from.len(), |at, done, part| {
        let physical = translate(state, memory, at, true)?;
        let host = memory
            .host_address(physical)
            .ok_or(Refused::NoMemory(physical))?;
        match memory.prepare_write(physical, ring) {
            Fault::Resolved(_) => {}
            Fault::Mmio => return Err(Refused::NoMemory(physical)),
            _ => return Err(Refused::ByHost),
        }
        // As above.
        let opened = Opened::new();
        let written = uaccess::write_bytes(host, &from[done..done + part]);
        drop(opened);
        written.map_err(|_| Refused::ByHost)?;
        // Once more: the log may have been read and cleared before the write.
        match memory.prepare_write(physical, ring) {
            Fault::Resolved(_) | Fault::Mmio => Ok(()),
            _ => Err(Refused::ByHost),
        }
    })
}

impl Refused {
    /// Makes the guest take its page fault; an error of the host is the program's.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn deliver(self, state: &mut State) -> Result<(), Errno> {
        match self {
            Self::ByGuest { address, error } => {
                state.save().cr2 = address;
                state.changed(crate::arch::svm::Clean::CR2);
                state.inject(super::state::exception::PAGE_FAULT, Some(error));
                Ok(())
            }
            Self::NoMemory(_) | Self::ByHost => Err(EFAULT),
        }
    }
}
