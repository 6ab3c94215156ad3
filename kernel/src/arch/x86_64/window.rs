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
    // The direct map covers all firmware addresses below 4 GiB.
    let found = pci::find_memory(VENDOR, DEVICE).filter(|at| at + SIZE as u64 <= 1 << 32);
    ADDRESS.store(found.unwrap_or(0), Ordering::Relaxed);
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
    if address != 0 {
        let start = paging::physical_to_virtual(address);
        // SAFETY: Mapped, and the part lies in it. The command does not write while it is read, and
        // whatever it holds is bytes.
        unsafe {
            to.as_mut_ptr()
                .copy_from_nonoverlapping(start.add(from), to.len())
        };
    }
}
