//! Exceptions and interrupts on their way to a guest: `KVM_GET_VCPU_EVENTS`, `KVM_SET_VCPU_EVENTS`, and delivery
//! again after an exit in the middle of one.

use super::state::State;
use crate::arch::uaccess::Plain;
use crate::errno::{EINVAL, Errno};

const VALID: u32 = 1 << 31;
const HAS_ERROR: u32 = 1 << 11;
/// Kinds of events in the control block.
const INTERRUPT: u32 = 0;
const NMI: u32 = 2;
const EXCEPTION: u32 = 3;
const SOFTWARE: u32 = 4;

/// `struct kvm_vcpu_events`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Events {
    pub injected: u8,
    pub vector: u8,
    pub has_error: u8,
    pub pending: u8,
    pub error: u32,
    pub interrupt_injected: u8,
    pub interrupt: u8,
    pub interrupt_soft: u8,
    pub shadow: u8,
    pub nmi_injected: u8,
    pub nmi_pending: u8,
    pub nmi_masked: u8,
    padding: u8,
    pub sipi_vector: u32,
    pub flags: u32,
    smi: [u8; 4],
    triple_fault: u8,
    reserved: [u8; 26],
    has_payload: u8,
    payload: [u32; 2],
}

const _: () = assert!(size_of::<Events>() == 64);
// SAFETY: Integers; the sizes above leave no padding.
unsafe impl Plain for Events {}

/// `KVM_VCPUEVENT_VALID_*`.
const HAS_SHADOW: u32 = 1 << 2;
const KNOWN: u32 = 0xf;

pub fn get(state: &mut State) -> Events {
    let control = state.control();
    let (event, error) = (control.event, control.event_error);
    let mut events = Events {
        shadow: if control.interrupt_state & 1 != 0 {
            3
        } else {
            0
        },
        flags: 1 | HAS_SHADOW | 8,
        ..Events::default()
    };
    if event & VALID != 0 {
        match event >> 8 & 7 {
            INTERRUPT => {
                events.interrupt_injected = 1;
                events.interrupt = event as u8;
            }
            NMI => events.nmi_injected = 1,
            _ => {
                events.injected = 1;
                events.vector = event as u8;
                events.has_error = u8::from(event & HAS_ERROR != 0);
                events.error = error;
            }
        }
    }
    events
}

/// # Errors
/// `EINVAL`.
pub fn set(state: &mut State, events: &Events) -> Result<(), Errno> {
    if events.flags & !KNOWN != 0 {
        return Err(EINVAL);
    }
    let throws = events.injected != 0 || events.pending != 0;
    // There are 32 exceptions, and number 2 is the NMI.
    if throws && (events.vector > 31 || events.vector == 2) {
        return Err(EINVAL);
    }
    let control = state.control();
    control.event = 0;
    if throws {
        control.event = u32::from(events.vector) | EXCEPTION << 8 | VALID;
        if events.has_error != 0 {
            control.event |= HAS_ERROR;
            control.event_error = events.error;
        }
    } else if events.nmi_injected != 0 || events.nmi_pending != 0 {
        control.event = 2 | NMI << 8 | VALID;
    } else if events.interrupt_injected != 0 {
        control.event = u32::from(events.interrupt) | INTERRUPT << 8 | VALID;
    }
    if events.flags & HAS_SHADOW != 0 {
        control.interrupt_state = u64::from(events.shadow != 0);
    }
    Ok(())
}

/// Delivers again what the guest was taking when it left. An instruction that takes a software interrupt is
/// carried out again.
#[inline]
pub fn deliver_again(state: &mut State) {
    let control = state.control();
    let event = control.exit_interrupt;
    // The CPU has taken what was asked for.
    control.event = 0;
    if event & VALID == 0 {
        return;
    }
    let is_software =
        event >> 8 & 7 == SOFTWARE || event >> 8 & 7 == EXCEPTION && matches!(event as u8, 3 | 4);
    if !is_software {
        control.event = event;
        control.event_error = control.exit_interrupt_error;
    }
}
