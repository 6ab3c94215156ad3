//! The hypervisor's names where there is none: on AArch64, so far.

use core::fmt;

use crate::errno::Answer;

/// Whether the machine can run guests.
pub fn is_there() -> bool {
    false
}

/// What a guest's descriptor is; there are none.
pub enum Handle {}

impl Handle {
    /// `ioctl`.
    pub fn ioctl(&self, _request: u32, _argument: u64) -> Answer {
        match *self {}
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

pub mod device {
    use crate::errno::{Answer, ENODEV};

    /// `ioctl` on `/dev/kvm`, which cannot be opened.
    pub fn ioctl(_request: u32, _argument: u64) -> Answer {
        Err(ENODEV)
    }
}
