//! A memory slot: a range of guest-physical addresses, and where its memory lies in the host.
//!
//! A slot lies in a frame of its own, and does not change: another slot replaces it. Only the bits of its dirty log do
//! ([`crate::log`]), with which this frame leads on.
//!
//! *Writes*: nothing after the slot is published, but the log's bits.

use bitflags::bitflags;
#[cfg(not(any(loom, shuttle)))]
use faultless_paging::PAGE_SIZE;
use faultless_paging::{Frame, Pages};

use crate::slots::words::Words;

bitflags! {
    /// What a slot is, as in `struct kvm_userspace_memory_region`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct SlotFlags: u32 {
        /// The pages that the guest writes are logged.
        const LOG_DIRTY_PAGES = 1 << 0;
        /// The guest's stores are accesses to a device.
        const READONLY = 1 << 1;
        /// With [`SlotFlags::LOG_DIRTY_PAGES`]: the log begins with all pages, and nothing is protected before they are cleared
        /// (KVM: `KVM_DIRTY_LOG_INITIALLY_SET`).
        const LOG_BEGINS_FULL = 1 << 16;
    }
}

/// A memory slot, as a hypervisor describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Slot {
    /// The first guest-physical address, page-aligned.
    pub guest_address: u64,
    /// Bytes, a multiple of the page size. 0 deletes the slot.
    pub size: u64,
    /// The host's address of the memory, page-aligned.
    pub host_address: u64,
    /// What it is.
    pub flags: SlotFlags,
}

/// A slot in its frame.
#[repr(C)]
pub(crate) struct SlotBody {
    /// The frame that holds this.
    pub(crate) frame: Frame,
    pub(crate) number: u32,
    pub(crate) flags: SlotFlags,
    /// The guest's pages.
    pub(crate) pages: Pages,
    /// The host's first page.
    pub(crate) host: u64,
    /// The bits of its log, 64 pages in a word ([`crate::log::bitmap`]).
    pub(crate) log: Words,
    /// With the legacy MMU: the address of each page's entry, or 0 ([`crate::mmu::legacy`]).
    pub(crate) rmap: Words,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<SlotBody>() <= PAGE_SIZE as usize);

impl SlotBody {
    /// Whether stores of the guest are logged.
    #[inline]
    pub(crate) fn logs(&self) -> bool {
        self.flags.contains(SlotFlags::LOG_DIRTY_PAGES)
    }

    /// Whether stores of the guest are accesses to a device.
    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        self.flags.contains(SlotFlags::READONLY)
    }

    /// Returns the host's page of a guest's page in this slot.
    #[inline]
    pub(crate) fn host_of(&self, page: u64) -> u64 {
        self.host + (page - self.pages.start)
    }

    /// Returns the guest's pages that show these pages of the host.
    pub(crate) fn guest_of(&self, host: Pages) -> Pages {
        let own = Pages::new(self.host, self.host + self.pages.len());
        let part = own.and(host);
        if part.is_empty() {
            return Pages::new(0, 0);
        }
        let start = self.pages.start + (part.start - self.host);
        Pages::new(start, start + part.len())
    }
}
