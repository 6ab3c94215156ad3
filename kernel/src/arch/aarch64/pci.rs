//! PCI configuration space of bus 0, of the devices' first functions.
//!
//! No firmware has run, so the base address registers are empty: [`find`] fills them.

use core::sync::atomic::{AtomicU64, Ordering};

use super::paging::{map_device, physical_to_virtual};
use super::start_info::{Bridge, Devices};
use crate::memory::boot_frames::BootFrames;

/// Devices on the bus.
const DEVICES: u32 = 32;
/// Bytes of configuration space of a device, with all its functions.
const OF_DEVICE: u64 = 1 << 15;

const COMMAND: u32 = 0x04;
const PORTS_ON: u32 = 1;
const MEMORY_ON: u32 = 2;
/// The base address registers.
const BARS: core::ops::Range<u32> = 0x10..0x28;
const IS_PORTS: u32 = 1;
const IS_64_BIT: u32 = 4;
const BAR_2: u32 = 0x18;
const NOTHING: u32 = u32::MAX;

/// Where the configuration space of each device is mapped; 0 if there is none.
static WINDOWS: [AtomicU64; DEVICES as usize] = [const { AtomicU64::new(0) }; DEVICES as usize];
/// The physical address of the configuration space.
static CONFIGURATION: AtomicU64 = AtomicU64::new(0);

fn place(device: u32, function: u32, register: u32) -> Option<*mut u32> {
    if function != 0 {
        return None;
    }
    let window = WINDOWS[device as usize].load(Ordering::Relaxed);
    (window != 0).then(|| (window + u64::from(register & !3)) as *mut u32)
}

/// Reads a register of a device's function; boot CPU only.
pub fn read_function(device: u32, function: u32, register: u32) -> u32 {
    // SAFETY: Reading configuration has no effect; without a device it reads as ones.
    place(device, function, register).map_or(NOTHING, |at| unsafe { at.read_volatile() })
}

/// Writes a register of a device's function; boot CPU only. The device is the caller's.
pub fn write_function(device: u32, function: u32, register: u32, value: u32) {
    if let Some(at) = place(device, function, register) {
        // SAFETY: The configuration of a device that nothing else uses.
        unsafe { at.write_volatile(value) }
    }
}

/// Gives every device addresses; on the boot tables, which map all of the bridge.
pub fn find(devices: &Devices) {
    let Some(bridge) = devices.bridge else { return };
    CONFIGURATION.store(bridge.configuration, Ordering::Relaxed);
    for (window, device) in WINDOWS.iter().zip(0..) {
        let at = physical_to_virtual(bridge.configuration + device * OF_DEVICE);
        window.store(at as u64, Ordering::Relaxed);
    }
    // Port 0 and the first page stay free: an address of 0 means that there is none.
    let mut next = (0x1000, bridge.memory.0);
    for device in 0..DEVICES {
        if read_function(device, 0, 0) != NOTHING {
            place_device(device, &bridge, &mut next);
        }
    }
}

fn place_device(device: u32, bridge: &Bridge, (ports, memory): &mut (u64, u64)) {
    let mut registers = BARS.step_by(4);
    while let Some(register) = registers.next() {
        write_function(device, 0, register, NOTHING);
        let mask = read_function(device, 0, register);
        if mask == 0 {
            continue;
        }
        let is_ports = mask & IS_PORTS != 0;
        let flags = if is_ports { 3 } else { 15 };
        let size = u64::from((!(mask & !flags)).wrapping_add(1));
        let (next, end) = match is_ports {
            true => (&mut *ports, bridge.ports.1),
            false => (&mut *memory, bridge.memory.0 + bridge.memory.1),
        };
        let at = next.next_multiple_of(size.max(16));
        let fits = size != 0 && at + size <= end;
        if fits {
            *next = at + size;
        }
        write_function(device, 0, register, if fits { at as u32 } else { 0 });
        if !is_ports && mask & IS_64_BIT != 0 {
            write_function(device, 0, register + 4, 0);
            registers.next();
        }
    }
    let command = read_function(device, 0, COMMAND) & 0xffff;
    write_function(device, 0, COMMAND, command | PORTS_ON | MEMORY_ON);
}

/// Maps the configuration spaces in the kernel's own tables, once these are in use.
pub fn map(frames: &mut BootFrames) {
    let configuration = CONFIGURATION.load(Ordering::Relaxed);
    if configuration == 0 {
        return;
    }
    for (window, device) in WINDOWS.iter().zip(0..) {
        let at = map_device(configuration + device * OF_DEVICE, frames);
        window.store(at as u64, Ordering::Relaxed);
    }
}

fn find_device(vendor: u16, device: u16) -> Option<u32> {
    let wanted = u32::from(device) << 16 | u32::from(vendor);
    (0..DEVICES).find(|&device| read_function(device, 0, 0) == wanted)
}

/// The address in the third base address register of a device, found by vendor and device number.
pub fn find_memory(vendor: u16, device: u16) -> Option<u64> {
    let found = find_device(vendor, device)?;
    let address = u64::from(read_function(found, 0, BAR_2) & !15);
    Some(address).filter(|&address| address != 0)
}

/// The first port of a device, found by vendor and device number.
pub fn find_ports(vendor: u16, device: u16) -> Option<u64> {
    let found = find_device(vendor, device)?;
    let address = u64::from(read_function(found, 0, BARS.start) & !3);
    Some(address).filter(|&address| address != 0)
}
