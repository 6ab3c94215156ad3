//! A guest's memory: the adaptor between this interface and `faultless_tdp`.

use crate::errno::{Answer, ENOSYS, Errno};
use crate::memory::Access;
use crate::process::UserSpace;
use crate::shared::Shared;

/// How a guest's fault ended.
pub enum Fault {
    Resolved,
    /// There is no slot, or a read-only one is written to.
    Mmio,
    OutOfMemory,
    /// A signal came while it waited.
    Interrupted,
    /// The program's memory is not there.
    Refused,
}

/// A guest's memory.
pub struct GuestMemory {
    space: Shared<UserSpace>,
}

impl GuestMemory {
    /// # Errors
    /// `ENOMEM`.
    pub fn new(space: Shared<UserSpace>, _tag: u64) -> Result<Self, Errno> {
        Ok(Self { space })
    }

    /// The program's memory.
    pub fn space(&self) -> &UserSpace {
        &self.space
    }

    /// The physical address of the nested tables' root.
    pub fn root(&self) -> u64 {
        0
    }

    pub fn set_manual(&self, _bits: u64) {}

    /// # Errors
    /// As `KVM_SET_USER_MEMORY_REGION`.
    pub fn set_slot(&self, _: u32, _: u32, _: u64, _: u64, _: u64) -> Result<(), Errno> {
        Err(ENOSYS)
    }

    pub fn fault(&self, _: u64, _: Access, _: u32) -> Fault {
        Fault::Refused
    }

    /// # Errors
    /// As `KVM_GET_DIRTY_LOG`.
    pub fn get_dirty_log(&self, _: u32, _: u64, _: bool) -> Answer {
        Err(ENOSYS)
    }

    /// # Errors
    /// As `KVM_CLEAR_DIRTY_LOG`.
    pub fn clear_dirty_log(&self, _: u32, _: u64, _: u64, _: u64) -> Answer {
        Err(ENOSYS)
    }

    pub fn host_address(&self, _: u64) -> Option<u64> {
        None
    }

    /// Says that the kernel has written guest memory at this address.
    pub fn wrote(&self, _: u64) {}
}
