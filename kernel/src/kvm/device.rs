//! `/dev/kvm` itself.

use super::uapi::{self, MAX_CPUID};
use super::{area, cpuid, extensions, msr, vm};
use crate::arch::{time, uaccess};
use crate::errno::{Answer, EINVAL};

const VERSION: u64 = 12;

/// A request on the device.
///
/// # Errors
/// Those of Linux.
pub fn ioctl(request: u32, at: u64) -> Answer {
    match request {
        uapi::GET_API_VERSION if at == 0 => Ok(VERSION),
        // There is one type of VM.
        uapi::CREATE_VM if at == 0 => vm::create(),
        uapi::GET_VCPU_MMAP_SIZE if at == 0 => Ok(area::SIZE),
        uapi::GET_API_VERSION | uapi::CREATE_VM | uapi::GET_VCPU_MMAP_SIZE => Err(EINVAL),
        uapi::CHECK_EXTENSION => Ok(extensions::value(at as u32)),
        uapi::GET_SUPPORTED_CPUID => {
            let room: u32 = uaccess::read(at)?;
            let _ = room.min(MAX_CPUID);
            cpuid::write(at, &cpuid::supported()?)
        }
        uapi::GET_EMULATED_CPUID => cpuid::write(at, &[]),
        uapi::GET_MSR_INDEX_LIST => msr::list(at),
        uapi::GET_MSR_FEATURE_INDEX_LIST => msr::list_features(at),
        uapi::GET_MSRS => {
            let get = |number, value: &mut u64| {
                let found = msr::feature(number);
                *value = found.unwrap_or_default();
                found.is_some()
            };
            msr::several(at, get, true)
        }
        _ => Err(EINVAL),
    }
}

/// The rate of the time stamp counter, which guests share.
pub fn tsc_khz() -> u64 {
    time::kilohertz()
}
