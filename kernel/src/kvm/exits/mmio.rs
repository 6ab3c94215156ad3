//! Accesses to guest-physical addresses without memory.

use super::Next;
use crate::errno::Errno;
use crate::kvm::area::Area;
use crate::kvm::memory::GuestMemory;
use crate::kvm::state::State;

/// An access that the program carries out.
#[derive(Clone, Copy)]
pub struct Access {}

/// # Errors
/// `EFAULT`.
pub fn exit(_: &mut State, _: &GuestMemory, area: &Area, _: u64) -> Result<Next, Errno> {
    Ok(super::cannot_emulate(area, &[]))
}

/// # Errors
/// `EFAULT`.
pub fn complete(_: Access, _: &mut State, _: &GuestMemory, _: &Area) -> Result<Next, Errno> {
    Ok(Next::Enter)
}
