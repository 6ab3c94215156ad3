//! Attributes of a vCPU (`KVM_SET_DEVICE_ATTR` and its like): the offset of its time.

use super::state::State;
use super::uapi;
use crate::arch::svm::Clean;
use crate::arch::uaccess;
use crate::errno::{Answer, ENXIO};

/// A request about an attribute: flags and group, number, address of the value.
///
/// # Errors
/// `ENXIO`: there is no such attribute; `EFAULT`.
pub fn ioctl(state: &mut State, request: u32, at: u64) -> Answer {
    /// `KVM_VCPU_TSC_CTRL` and `KVM_VCPU_TSC_OFFSET`.
    const TIME: u64 = 0;
    const OFFSET: u64 = 0;
    let [head, number, value]: [u64; 3] = uaccess::read(at)?;
    if head >> 32 != TIME || number != OFFSET {
        return Err(ENXIO);
    }
    match request {
        uapi::GET_DEVICE_ATTR => uaccess::write(value, &state.control().tsc_offset)?,
        uapi::SET_DEVICE_ATTR => {
            state.control().tsc_offset = uaccess::read(value)?;
            state.changed(Clean::INTERCEPTS);
        }
        _ => {}
    }
    Ok(0)
}
