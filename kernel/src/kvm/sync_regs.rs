//! Registers in the run area (`KVM_CAP_SYNC_REGS`): read before the guest is entered, and written when it has left,
//! as the program asks for it.

use super::area::{Area, at};
use super::state::State;
use super::{events, registers, system_registers};
use crate::errno::{EINVAL, Errno};

const REGS: u64 = 1;
const SREGS: u64 = 2;
const EVENTS: u64 = 4;
/// What can be exchanged.
pub const ALL: u64 = REGS | SREGS | EVENTS;

/// Takes over what the program has changed.
///
/// # Errors
/// `EINVAL`: unknown parts, or values that no CPU has.
pub fn from_program(state: &mut State, area: &Area) -> Result<(), Errno> {
    let (valid, dirty): (u64, u64) = (area.read(at::VALID_REGS), area.read(at::DIRTY_REGS));
    if (valid | dirty) & !ALL != 0 {
        return Err(EINVAL);
    }
    if dirty & REGS != 0 {
        registers::set(state, &area.read(at::REGS));
        area.write(at::DIRTY_REGS, area.read::<u64>(at::DIRTY_REGS) & !REGS);
    }
    if dirty & SREGS != 0 {
        system_registers::set(state, &area.read(at::SREGS))?;
        area.write(at::DIRTY_REGS, area.read::<u64>(at::DIRTY_REGS) & !SREGS);
    }
    if dirty & EVENTS != 0 {
        events::set(state, &area.read(at::EVENTS))?;
        area.write(at::DIRTY_REGS, area.read::<u64>(at::DIRTY_REGS) & !EVENTS);
    }
    Ok(())
}

/// Stores what the program wants to see.
pub fn to_program(state: &mut State, area: &Area) {
    let valid: u64 = area.read(at::VALID_REGS);
    if valid & REGS != 0 {
        area.write(at::REGS, registers::get(state));
    }
    if valid & SREGS != 0 {
        area.write(at::SREGS, system_registers::get(state));
    }
    if valid & EVENTS != 0 {
        area.write(at::EVENTS, events::get(state));
    }
}
