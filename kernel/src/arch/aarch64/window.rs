//! Memory that the command writes and the kernel reads: QEMU's `ivshmem-plain`.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{paging, pci};

const VENDOR: u16 = 0x1af4;
const DEVICE: u16 = 0x1110;

/// The size of the window in bytes.
pub const SIZE: usize = 64 << 10;

/// The physical address of the window; 0 if there is none.
static ADDRESS: AtomicU64 = AtomicU64::new(0);

/// Finds the window; boot CPU only.
pub fn find() {
    // The direct map has all of the bridge's window of memory, below the machine's memory.
    ADDRESS.store(
        pci::find_memory(VENDOR, DEVICE).unwrap_or(0),
        Ordering::Relaxed,
    );
}

/// Whether there is a window.
pub fn is_there() -> bool {
    ADDRESS.load(Ordering::Relaxed) != 0
}

/// Copies a part of the window; does nothing if there is none.
///
/// # Panics
/// If the part does not lie in it.
pub fn read(from: usize, to: &mut [u8]) {
    assert!(from + to.len() <= SIZE, "a part of the window");
    let address = ADDRESS.load(Ordering::Relaxed);
    if address == 0 {
        return;
    }
    let start = paging::physical_to_virtual(address);
    // Aligned words, because it is mapped as device memory.
    let mut at = from;
    while at < from + to.len() {
        // SAFETY: Mapped, and the word lies in it. The command does not write while it is read, and whatever it
        // holds is bytes.
        let word = unsafe { start.add(at & !7).cast::<u64>().read_volatile() }.to_ne_bytes();
        let bytes = &word[at & 7..];
        let count = bytes.len().min(from + to.len() - at);
        to[at - from..at - from + count].copy_from_slice(&bytes[..count]);
        at += count;
    }
}
