//! General registers: `KVM_GET_REGS` and `KVM_SET_REGS`.

use super::state::State;
use crate::arch::svm::Clean;

/// `struct kvm_regs`: the sixteen registers, RIP, and the flags.
pub type Registers = [u64; 18];

pub fn get(state: &mut State) -> Registers {
    let mut all = [0; 18];
    for (number, value) in all[..16].iter_mut().enumerate() {
        *value = state.register(number);
    }
    all[16] = state.save().rip;
    all[17] = state.save().rflags;
    all
}

pub fn set(state: &mut State, all: &Registers) {
    for (number, &value) in all[..16].iter().enumerate() {
        state.set_register(number, value);
    }
    let save = state.save();
    save.rip = all[16];
    save.rflags = all[17] | 2;
    // An exception that waits belongs to the old state.
    let control = state.control();
    const EXCEPTION: u32 = 3;
    if control.event >> 8 & 7 == EXCEPTION {
        control.event = 0;
    }
    state.changed(Clean::CONTROL_REGISTERS);
}
