//! PCI configuration space of bus 0.

use x86_64::instructions::port::Port;

const ADDRESS: u16 = 0xcf8;
const DATA: u16 = 0xcfc;

const COMMAND: u32 = 0x04;
const MEMORY_ON: u32 = 2;
/// The third base address register, and the upper half of one of 64 bits.
const BAR_2: u32 = 0x18;
const BAR_3: u32 = 0x1c;
const IS_64_BIT: u32 = 4;

fn select(device: u32, function: u32, register: u32) {
    // SAFETY: Chooses a register of a device on bus 0.
    unsafe { Port::new(ADDRESS).write(1 << 31 | device << 11 | function << 8 | register) };
}

/// Reads a register of a device's function; boot CPU only.
pub fn read_function(device: u32, function: u32, register: u32) -> u32 {
    select(device, function, register);
    // SAFETY: Reading configuration has no effect; without a device it reads as ones.
    unsafe { Port::new(DATA).read() }
}

/// Writes a register of a device's function; boot CPU only. The device is the caller's.
pub fn write_function(device: u32, function: u32, register: u32, value: u32) {
    select(device, function, register);
    // SAFETY: The configuration of a device that nothing else uses.
    unsafe { Port::new(DATA).write(value) }
}

fn read(device: u32, register: u32) -> u32 {
    read_function(device, 0, register)
}

fn write(device: u32, register: u32, value: u32) {
    write_function(device, 0, register, value);
}

/// The address in the third base address register of a device, found by vendor and device number.
pub fn find_memory(vendor: u16, device: u16) -> Option<u64> {
    let wanted = u32::from(device) << 16 | u32::from(vendor);
    let found = (0..32).find(|&device| read(device, 0) == wanted)?;
    write(found, COMMAND, read(found, COMMAND) | MEMORY_ON);
    let low = read(found, BAR_2);
    let high = if low & IS_64_BIT != 0 {
        read(found, BAR_3)
    } else {
        0
    };
    Some(u64::from(high) << 32 | u64::from(low & !15)).filter(|&address| address != 0)
}
