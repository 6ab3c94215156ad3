//! QEMU's `isa-debugcon`: a port that accepts bytes and never blocks.

/// Writes all bytes to the device at this port.
pub fn write(port: u16, bytes: &[u8]) {
    // SAFETY: Reads `bytes` only; the ports given are debug consoles or nothing at all.
    unsafe {
        core::arch::asm!("rep outsb", in("dx") port, inout("rsi") bytes.as_ptr() => _,
            inout("rcx") bytes.len() => _, options(nostack, preserves_flags, readonly));
    }
}

/// Whether there is such a device at this port: reads return its own signature.
pub fn is_at(port: u16) -> bool {
    const ANSWER: u8 = 0xe9;
    let answer: u8;
    // SAFETY: Reading it changes nothing; where there is no device, all bits are set.
    unsafe {
        core::arch::asm!("in al, dx", in("dx") port, out("al") answer,
            options(nostack, nomem, preserves_flags));
    }
    answer == ANSWER
}
