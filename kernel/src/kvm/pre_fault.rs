//! `KVM_PRE_FAULT_MEMORY`: maps guest memory before the guest needs it.

use super::memory::Fault;
use super::vm::Vm;
use crate::arch::uaccess;
use crate::errno::{Answer, EFAULT, EINTR, EINVAL, ENOENT, ENOMEM, Errno};
use crate::memory::{Access, PAGE_SIZE};
use crate::sched;

/// Maps a range for reads, page by page, and tells the program what is left of it.
///
/// # Errors
/// `EINVAL`: not aligned, empty, or with flags; `ENOENT`: no memory at the first page; `EINTR`, `EFAULT`, `ENOMEM`.
pub fn run(vm: &Vm, at: u64) -> Answer {
    // Address, size, flags, and five words of padding.
    let [mut address, mut size, flags, ..]: [u64; 8] = uaccess::read(at)?;
    let is_aligned = address.is_multiple_of(PAGE_SIZE) && size.is_multiple_of(PAGE_SIZE);
    let grows = address.checked_add(size).is_some_and(|end| end > address);
    if flags != 0 || !is_aligned || !grows {
        return Err(EINVAL);
    }
    let whole = size;
    let mut result = Ok(());
    while size != 0 && result.is_ok() {
        result = page(vm, address);
        if result.is_ok() {
            (address, size) = (address + PAGE_SIZE, size - PAGE_SIZE);
        }
    }
    uaccess::write(at, &[address, size])?;
    match result {
        Err(error) if size == whole => Err(error),
        _ => Ok(0),
    }
}

fn page(vm: &Vm, address: u64) -> Result<(), Errno> {
    if !sched::breathe() {
        return Err(EINTR);
    }
    match vm.memory.fault(address, Access::Read) {
        Fault::Resolved(_) => Ok(()),
        Fault::Mmio => Err(ENOENT),
        Fault::OutOfMemory => Err(ENOMEM),
        Fault::Interrupted => Err(EINTR),
        // A load needs no place in a ring.
        Fault::Refused | Fault::RingFull => Err(EFAULT),
    }
}
