//! A vCPU's dirty ring (`KVM_CAP_DIRTY_LOG_RING`): the pages that it shares with its program, and the limits of its size.
//!
//! Like the run area, the pages belong to the kernel, are mapped as a device, and are freed when the vCPU and all mappings are gone.
//! The program may write to them at any time; `faultless_tdp` trusts nothing that it finds there.

use faultless_mm::{Caching, Pager};
use faultless_paging::Frame;
use faultless_tdp::{DirtyPage, DirtyRing};
use linux_raw_sys::general as linux;

use crate::arch::paging;
use crate::errno::{E2BIG, EINVAL, EIO, ENOMEM, Errno};
use crate::memory::machine::{self, Purpose, memory};
use crate::memory::{Device, PAGE_SIZE};

/// Bytes of a ring at most.
pub const MOST_BYTES: u64 = 65536 * size_of::<DirtyPage>() as u64;
/// Places that are left when the vCPU has to leave: for what the kernel stores for the guest in one exit.
const RESERVED: u32 = 64;
/// Where the ring is in a mapping of the vCPU (`KVM_DIRTY_LOG_PAGE_OFFSET`).
const OFFSET: u64 = 64 * PAGE_SIZE;

const _: () = assert!(size_of::<DirtyPage>() == 16);

/// A vCPU's ring.
pub struct Ring {
    places: DirtyRing<'static>,
    device: Device,
}

/// Frees the pages with the last mapping. Its tag is their address and their order.
struct Owner;

impl Pager for Owner {
    fn has(&self, _: u64, _: u64) -> bool {
        false
    }

    fn fill(&self, _: u64, _: u64, _: Frame) -> Result<(), Errno> {
        Err(EIO)
    }

    fn gone(&self, tag: u64) {
        let order = tag % PAGE_SIZE;
        machine::free_block(tag - order, order as u32);
    }
}

/// Checks a ring's bytes, of which a program gives the lower half.
///
/// # Errors
/// `EINVAL`: no power of two, or less than a page; `E2BIG`.
pub fn check(bytes: u32) -> Result<u64, Errno> {
    let bytes = u64::from(bytes);
    if !bytes.is_power_of_two() || bytes < PAGE_SIZE {
        return Err(EINVAL);
    }
    match bytes > MOST_BYTES {
        true => Err(E2BIG),
        false => Ok(bytes),
    }
}

impl Ring {
    /// # Errors
    /// `ENOMEM`: also if no pages in a row are free.
    pub fn new(bytes: u64) -> Result<Self, Errno> {
        let order = (bytes / PAGE_SIZE).ilog2();
        let physical = machine::allocate_block(order, Purpose::Guest).ok_or(ENOMEM)?;
        let start = paging::physical_to_virtual(physical);
        // SAFETY: A fresh block, mapped by the direct map.
        unsafe { start.write_bytes(0, bytes as usize) };
        let first = physical / PAGE_SIZE;
        let frames = first..first + bytes / PAGE_SIZE;
        let tag = physical + u64::from(order);
        let device = Device::new(memory(), frames, Caching::Cached, Some(&Owner), tag);
        let Ok(device) = device else {
            machine::free_block(physical, order);
            return Err(ENOMEM);
        };
        let count = bytes as usize / size_of::<DirtyPage>();
        // SAFETY: Zeros are free places, all of which are atomics. The memory stays while the device does.
        let places = unsafe { core::slice::from_raw_parts(start.cast::<DirtyPage>(), count) };
        let places = DirtyRing::new(places, RESERVED)?;
        Ok(Self { places, device })
    }

    /// The ring itself. It is used no longer than this.
    #[inline]
    pub fn places(&self) -> &DirtyRing<'static> {
        &self.places
    }

    /// What a mapping of the vCPU from an offset on shows, and where there; `None` if it does not begin in the ring.
    ///
    /// # Errors
    /// `EINVAL`: a part of the ring is to be mapped privately, or executably.
    pub fn mapped(
        &self,
        offset: u64,
        length: u64,
        protection: u32,
        is_shared: bool,
    ) -> Result<Option<(&Device, u64)>, Errno> {
        let end = OFFSET + self.device.size();
        let is_inside = |at: u64| (OFFSET..end).contains(&at);
        let last = offset.saturating_add(length.saturating_sub(1));
        let is_refused = protection & linux::PROT_EXEC != 0 || !is_shared;
        if is_refused && (is_inside(offset) || is_inside(last)) {
            return Err(EINVAL);
        }
        Ok((offset >= OFFSET).then(|| (&self.device, offset - OFFSET)))
    }
}
