//! A 16550 serial port: bytes to and from the command. It interrupts on received bytes.

use core::sync::atomic::{AtomicBool, Ordering};

use x86_64::instructions::port::Port;

use super::{idt, io_apic};

const BASE: u16 = 0x3f8;
const LINE: u32 = 4;

/// Registers, by their distance from the first port.
const DATA: u16 = 0;
const INTERRUPT_ENABLE: u16 = 1;
const FIFO_CONTROL: u16 = 2;
const LINE_CONTROL: u16 = 3;
const MODEM_CONTROL: u16 = 4;
const LINE_STATUS: u16 = 5;
const SCRATCH: u16 = 7;

const DATA_READY: u8 = 1;
const ROOM_TO_SEND: u8 = 1 << 5;

static THERE: AtomicBool = AtomicBool::new(false);

fn read(register: u16) -> u8 {
    // SAFETY: The port's registers, or nothing at all, which reads as ones.
    unsafe { Port::new(BASE + register).read() }
}

fn write(register: u16, value: u8) {
    // SAFETY: As above.
    unsafe { Port::new(BASE + register).write(value) }
}

/// Finds the port and initialises it; boot CPU only, once interrupts can be routed.
pub fn find() {
    write(SCRATCH, 0x5a);
    if read(SCRATCH) != 0x5a || !io_apic::route(LINE, idt::SERIAL) {
        return;
    }
    // The fastest rate, 8 bits; FIFOs on and cleared, interrupts at 14 bytes or after a timeout.
    write(LINE_CONTROL, 0x80);
    write(DATA, 1);
    write(INTERRUPT_ENABLE, 0);
    write(LINE_CONTROL, 3);
    write(FIFO_CONTROL, 0xc7);
    // DTR, RTS, and OUT2, which gates the interrupt.
    write(MODEM_CONTROL, 0x0b);
    write(INTERRUPT_ENABLE, 1);
    THERE.store(true, Ordering::Release);
}

/// Whether the port exists.
pub fn is_there() -> bool {
    THERE.load(Ordering::Acquire)
}

/// The next received byte, if any.
pub fn receive() -> Option<u8> {
    (read(LINE_STATUS) & DATA_READY != 0).then(|| read(DATA))
}

/// Sends a byte once the transmitter has room.
pub fn send(byte: u8) {
    while read(LINE_STATUS) & ROOM_TO_SEND == 0 {
        super::relax();
    }
    write(DATA, byte);
}
