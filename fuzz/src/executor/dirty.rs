//! Soft-dirty bits of this process.

use crate::address::PAGE;

/// The bit in an entry of `/proc/self/pagemap`.
const SOFT_DIRTY: u64 = 1 << 55;

/// Clears all of them.
pub fn clear() -> Result<(), i32> {
    // SAFETY: a path that ends in 0, and a byte.
    let written = unsafe {
        let file = libc::open(c"/proc/self/clear_refs".as_ptr(), libc::O_WRONLY);
        let written = libc::write(file, b"4".as_ptr().cast(), 1);
        libc::close(file);
        written
    };
    match written {
        1 => Ok(()),
        _ => Err(libc::EIO),
    }
}

/// Reads which pages from an address on have one.
pub fn look(address: u64, to: &mut [u8]) -> Result<(), i32> {
    let mut entries = [0u64; 64];
    let entries = &mut entries[..to.len().min(64)];
    let bytes = size_of_val(entries);
    // SAFETY: a path that ends in 0, and as many bytes as there are.
    let got = unsafe {
        let file = libc::open(c"/proc/self/pagemap".as_ptr(), libc::O_RDONLY);
        let offset = (address / PAGE * 8) as i64;
        let got = libc::pread(file, entries.as_mut_ptr().cast(), bytes, offset);
        libc::close(file);
        got
    };
    if got != bytes as isize {
        return Err(libc::EIO);
    }
    for (to, entry) in to.iter_mut().zip(entries) {
        *to = u8::from(*entry & SOFT_DIRTY != 0);
    }
    Ok(())
}
