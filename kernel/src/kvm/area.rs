//! A vCPU's run area: the pages that it shares with its program (`struct kvm_run`, the data of port accesses, and
//! the ring of coalesced writes, which stays empty).
//!
//! The pages belong to the kernel and are mapped as a device, so they are neither moved nor reclaimed. They are
//! freed when the vCPU and all mappings are gone. The page behind them, which is not mapped, holds the FPU state
//! of the guest. The program may write to the area at any time: each field is read once, by a volatile access.

use faultless_mm::{Caching, Pager};
use faultless_paging::Frame;

use crate::arch::{fpu, paging};
use crate::errno::{ENOMEM, Errno};
use crate::memory::machine::{self, Purpose, memory};
use crate::memory::{Device, PAGE_SIZE};

/// Bytes of the area (`KVM_GET_VCPU_MMAP_SIZE`).
pub const SIZE: u64 = 3 * PAGE_SIZE;
/// Where the data of port accesses is.
pub const PORT_DATA: usize = PAGE_SIZE as usize;
const ORDER: u32 = 2;

/// Offsets of fields of `struct kvm_run`.
pub mod at {
    pub const REQUEST_WINDOW: usize = 0;
    pub const IMMEDIATE_EXIT: usize = 1;
    pub const EXIT_REASON: usize = 8;
    pub const READY: usize = 12;
    pub const IF_FLAG: usize = 13;
    pub const FLAGS: usize = 14;
    pub const CR8: usize = 16;
    pub const APIC_BASE: usize = 24;
    /// What depends on the reason.
    pub const DETAILS: usize = 32;
    pub const VALID_REGS: usize = 288;
    pub const DIRTY_REGS: usize = 296;
    pub const REGS: usize = 304;
    pub const SREGS: usize = REGS + 144;
    pub const EVENTS: usize = SREGS + 312;
}

/// A run area.
pub struct Area {
    device: Device,
    physical: u64,
}

/// Frees the pages with the last mapping.
struct Owner;

impl Pager for Owner {
    fn has(&self, _: u64, _: u64) -> bool {
        false
    }

    fn fill(&self, _: u64, _: u64, _: Frame) -> Result<(), Errno> {
        Err(crate::errno::EIO)
    }

    fn gone(&self, physical: u64) {
        machine::free_block(physical, ORDER);
    }
}

impl Area {
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Self, Errno> {
        let physical = machine::allocate_block(ORDER, Purpose::Guest).ok_or(ENOMEM)?;
        // SAFETY: A fresh block, mapped by the direct map.
        unsafe {
            paging::physical_to_virtual(physical).write_bytes(0, (PAGE_SIZE as usize) << ORDER)
        };
        let first = physical / PAGE_SIZE;
        let frames = first..first + SIZE / PAGE_SIZE;
        let device = Device::new(memory(), frames, Caching::Cached, Some(&Owner), physical);
        match device {
            Ok(device) => Ok(Self { device, physical }),
            Err(_) => {
                machine::free_block(physical, ORDER);
                Err(ENOMEM)
            }
        }
    }

    /// What a mapping of the vCPU shows.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn place(&self, at: usize) -> *mut u8 {
        paging::physical_to_virtual(self.physical + at as u64)
    }

    /// Where the guest's FPU state is while it is not in the registers. Used under the vCPU's turn.
    pub fn fpu(&self) -> *mut fpu::Area {
        const { assert!(size_of::<fpu::Area>() as u64 <= PAGE_SIZE) };
        self.place(SIZE as usize).cast()
    }

    /// Reads a field.
    pub fn read<T: Copy>(&self, at: usize) -> T {
        debug_assert!(at + size_of::<T>() <= SIZE as usize);
        // SAFETY: In the area, aligned as the structure is; the program's writes give some value of an integer.
        unsafe { self.place(at).cast::<T>().read_volatile() }
    }

    /// Writes a field.
    pub fn write<T: Copy>(&self, at: usize, value: T) {
        debug_assert!(at + size_of::<T>() <= SIZE as usize);
        // SAFETY: As above.
        unsafe { self.place(at).cast::<T>().write_volatile(value) };
    }

    /// Copies bytes out of the area.
    pub fn copy_out(&self, at: usize, to: &mut [u8]) {
        for (offset, byte) in to.iter_mut().enumerate() {
            *byte = self.read(at + offset);
        }
    }

    /// Copies bytes into the area.
    pub fn copy_in(&self, at: usize, from: &[u8]) {
        for (offset, &byte) in from.iter().enumerate() {
            self.write(at + offset, byte);
        }
    }

    /// Says why `KVM_RUN` returns, with up to 256 bytes of details in words.
    pub fn leave(&self, reason: u32, details: &[u64]) {
        self.write(at::EXIT_REASON, reason);
        for (number, &word) in details.iter().enumerate() {
            self.write(at::DETAILS + 8 * number, word);
        }
    }
}
