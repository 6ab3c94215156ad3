//! The PL011: bytes to and from the command. It interrupts on received bytes.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use arm_gic::UniqueMmioPointer;
use arm_pl011_uart::{DataBits, Interrupts, LineConfig, PL011Registers, Parity, StopBits, Uart};

use super::gic;
use super::paging::physical_to_virtual;
use super::start_info::Devices;
use crate::sync::SpinLock;

/// The reference clock; the rate of the line means nothing to an emulator.
const CLOCK: u32 = 24_000_000;
const RATE: u32 = 115_200;

static UART: SpinLock<Option<Uart<'static>>> = SpinLock::new(None);
/// The number of its interrupt; 0 if there is no port.
static INTERRUPT: AtomicU32 = AtomicU32::new(0);

/// Received bytes wait, or have waited for a while.
fn received() -> Interrupts {
    Interrupts::RXI | Interrupts::RTI
}

/// Finds the port and initialises it; boot CPU only, once interrupts can be routed.
pub fn find(devices: &Devices) {
    let Some((registers, interrupt)) = devices.serial else {
        return;
    };
    let Some(at) = NonNull::new(physical_to_virtual(registers)) else {
        return;
    };
    // SAFETY: The device tree names the registers, which the direct map has as device memory.
    let mut uart = Uart::new(unsafe { UniqueMmioPointer::new(at.cast::<PL011Registers>()) });
    let line = LineConfig {
        data_bits: DataBits::Bits8,
        parity: Parity::None,
        stop_bits: StopBits::One,
    };
    if uart.enable(line, RATE, CLOCK).is_err() {
        return;
    }
    uart.set_interrupt_masks(received());
    *UART.lock() = Some(uart);
    INTERRUPT.store(interrupt, Ordering::Release);
    gic::route(interrupt);
}

/// Whether the port exists.
pub fn is_there() -> bool {
    INTERRUPT.load(Ordering::Acquire) != 0
}

/// Whether an interrupt is the port's.
pub fn is_interrupt(number: u32) -> bool {
    is_there() && number == INTERRUPT.load(Ordering::Relaxed)
}

/// The next received byte, if any.
pub fn receive() -> Option<u8> {
    let mut uart = UART.lock();
    uart.as_mut()?.read_word().ok().flatten()
}

/// Acknowledges the interrupt, before the received bytes are taken.
pub fn acknowledge() {
    if let Some(uart) = UART.lock().as_mut() {
        uart.clear_interrupts(received());
    }
}

/// Sends a byte once the transmitter has room.
pub fn send(byte: u8) {
    if let Some(uart) = UART.lock().as_mut() {
        while uart.is_tx_fifo_full() {
            core::hint::spin_loop();
        }
        uart.write_word(byte);
    }
}
