//! The consoles: four 16550 ports of one device (QEMU's `pci-serial-4x`), which accept bytes and never block for
//! long. They go by the numbers that the consoles have on x86-64.

use core::sync::atomic::{AtomicU64, Ordering};

use super::paging::physical_to_virtual;
use super::pci;
use super::start_info::Devices;

const VENDOR: u16 = 0x1b36;
const DEVICE: u16 = 0x0004;

/// The number of the first console.
const FIRST: u16 = 0xe9;
const COUNT: u16 = 4;
/// Bytes of registers of a console.
const OF_CONSOLE: u64 = 8;

/// Registers.
const DATA: usize = 0;
const FIFO_CONTROL: usize = 2;
const LINE_STATUS: usize = 5;

const FIFO_ON: u8 = 1;
const FIFO_SIZE: usize = 16;
const ROOM: u8 = 1 << 5;
const EMPTY: u8 = 1 << 6;
/// Looks at a console whose reader may be gone.
const PATIENCE: u32 = 10_000_000;

/// Where the registers are; 0 if there are none.
static PORTS: AtomicU64 = AtomicU64::new(0);

/// Finds the consoles; boot CPU only.
pub fn find(devices: &Devices) {
    let Some(bridge) = devices.bridge else { return };
    let Some(ports) = pci::find_ports(VENDOR, DEVICE) else {
        return;
    };
    let at = physical_to_virtual(bridge.ports.0 + ports);
    PORTS.store(at as u64, Ordering::Relaxed);
    for port in FIRST..FIRST + COUNT {
        let at = registers(port);
        // SAFETY: The registers of a console of ours.
        unsafe { at.add(FIFO_CONTROL).write_volatile(FIFO_ON) };
    }
}

fn registers(port: u16) -> *mut u8 {
    (PORTS.load(Ordering::Relaxed) + u64::from(port - FIRST) * OF_CONSOLE) as *mut u8
}

/// Writes all bytes to the console with this number.
pub fn write(port: u16, bytes: &[u8]) {
    if !is_at(port) {
        return;
    }
    let at = registers(port);
    for piece in bytes.chunks(FIFO_SIZE) {
        // SAFETY: The registers of a console of ours.
        unsafe {
            while at.add(LINE_STATUS).read_volatile() & ROOM == 0 {}
            for &byte in piece {
                at.add(DATA).write_volatile(byte);
            }
        }
    }
}

/// Waits until the consoles have passed everything on. The emulator keeps what its reader is not ready for, and loses
/// that when the machine ends.
pub fn drain() {
    for port in (FIRST..FIRST + COUNT).filter(|&port| is_at(port)) {
        let at = registers(port);
        for _ in 0..PATIENCE {
            // SAFETY: The registers of a console of ours.
            if unsafe { at.add(LINE_STATUS).read_volatile() } & EMPTY != 0 {
                break;
            }
        }
    }
}

/// Whether there is such a console.
pub fn is_at(port: u16) -> bool {
    PORTS.load(Ordering::Relaxed) != 0 && (FIRST..FIRST + COUNT).contains(&port)
}
