//! Interrupts that the program sends to a guest (`KVM_INTERRUPT`). Without an interrupt controller there is at most
//! one at a time, and the program asks when the guest can take the next (`request_interrupt_window`).
//!
//! A guest that cannot take an interrupt now gets a *virtual* one with an intercept: it leaves as soon as it can.

use super::state::State;
use crate::arch::svm::{Clean, Intercepts};

const INTERRUPTS: u64 = 1 << 9;
const VALID: u32 = 1 << 31;
/// A virtual interrupt waits, whatever the task priority is.
const VIRTUAL: u32 = 1 << 8 | 0xf << 16 | 1 << 20;
const PRIORITY: u32 = 0xf;

/// Whether the guest could take an interrupt now.
pub fn is_ready(state: &mut State) -> bool {
    state.interrupt.is_none() && can_take(state)
}

fn can_take(state: &mut State) -> bool {
    let is_on = state.save().rflags & INTERRUPTS != 0;
    let control = state.control();
    is_on && control.event == 0 && control.interrupt_state & 1 == 0
}

/// Hands the guest the interrupt that waits, once it can take it.
pub fn inject(state: &mut State) {
    if !can_take(state) {
        return open_window(state);
    }
    if let Some(vector) = state.interrupt.take() {
        state.control().event = u32::from(vector) | VALID;
    }
}

/// Makes the guest leave when it can take an interrupt.
pub fn open_window(state: &mut State) {
    let control = state.control();
    control.interrupt_control |= VIRTUAL;
    control.intercepts[0] |= Intercepts::INTERRUPT_WINDOW.bits() as u32;
    state.changed(Clean::INTERCEPTS | Clean::INTERRUPTS);
}

/// The guest has left because it can.
pub fn close_window(state: &mut State) {
    let control = state.control();
    control.interrupt_control &= !VIRTUAL;
    control.intercepts[0] &= !(Intercepts::INTERRUPT_WINDOW.bits() as u32);
    state.changed(Clean::INTERCEPTS | Clean::INTERRUPTS);
}

/// The task priority (CR8).
pub fn priority(state: &mut State) -> u64 {
    u64::from(state.control().interrupt_control & PRIORITY)
}

/// Sets the task priority.
#[inline]
pub fn set_priority(state: &mut State, to: u64) {
    let new = to as u32 & PRIORITY;
    let control = state.control();
    if control.interrupt_control & PRIORITY != new {
        control.interrupt_control = control.interrupt_control & !PRIORITY | new;
        state.changed(Clean::INTERRUPTS);
    }
}
