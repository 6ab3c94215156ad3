//! `/dev/hpet`: the registers of the machine's timer, which programs read through a mapping, as on Linux. The
//! kernel itself does not use them.

use faultless_mm::Caching;

use crate::memory::machine::memory;
use crate::memory::{Device, PAGE_SIZE};
use crate::sync::Once;

/// The tag of its mappings.
pub const TAG: u64 = 1;

static DEVICE: Once<Device> = Once::new();

/// Sets the physical address of the machine's timer; at boot. Mappings show whole pages, so a timer that
/// begins inside a page is not offered.
pub fn begin(physical: u64) {
    let frame = physical / PAGE_SIZE;
    if physical.is_multiple_of(PAGE_SIZE)
        && let Ok(device) = Device::new(memory(), frame..frame + 1, Caching::Uncached, None, TAG)
    {
        DEVICE.set(device);
    }
}

/// The timer, if there is one.
pub fn device() -> Option<&'static Device> {
    DEVICE.try_get()
}
