//! QEMU's `isa-debugcon`: a port that takes bytes and never makes one wait.

/// Writes all bytes to the device at this port.
pub fn write(port: u16, bytes: &[u8]) {
    // SAFETY: Reads `bytes` only; the ports given are debug consoles or nothing at all.
    unsafe {
        core::arch::asm!("rep outsb", in("dx") port, inout("rsi") bytes.as_ptr() => _,
            inout("rcx") bytes.len() => _, options(nostack, preserves_flags, readonly));
    }
}
