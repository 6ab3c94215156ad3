//! Debug registers. A guest that reads or writes one leaves: registers 0 to 3 are loaded only while a guest has
//! breakpoints (`run`).

use iced_x86::{Mnemonic, Register};

use super::instruction::{Target, decode, fetch};
use crate::kvm::state::State;
use crate::kvm::vm::Vm;

/// Carries out a `mov` to or from a debug register; whether it was one.
pub fn exit(vm: &Vm, state: &mut State) -> bool {
    let mut bytes = [0; super::instruction::LONGEST];
    let bytes = fetch(state, &vm.memory, &mut bytes);
    let instruction = decode(state, bytes);
    if instruction.mnemonic() != Mnemonic::Mov {
        return false;
    }
    let (to, from) = (instruction.op0_register(), instruction.op1_register());
    if let (Some(target), Some(number)) = (Target::of(to), number_of(from)) {
        let value = get(state, number);
        target.set(state, value);
    } else if let (Some(number), Some(source)) = (number_of(to), Target::of(from)) {
        let value = source.get(state);
        set(state, number, value);
    } else {
        return false;
    }
    state.go_on_at(instruction.next_ip());
    true
}

/// The number of a debug register. Numbers 4 and 5 are other names of 6 and 7.
fn number_of(register: Register) -> Option<usize> {
    const ALL: [Register; 8] = [
        Register::DR0,
        Register::DR1,
        Register::DR2,
        Register::DR3,
        Register::DR4,
        Register::DR5,
        Register::DR6,
        Register::DR7,
    ];
    ALL.iter().position(|&other| other == register)
}

fn get(state: &mut State, number: usize) -> u64 {
    match number {
        0..=3 => state.breakpoints[number],
        4 | 6 => state.save().dr6,
        _ => state.save().dr7,
    }
}

fn set(state: &mut State, number: usize, value: u64) {
    match number {
        0..=3 => state.breakpoints[number] = value,
        4 | 6 => state.save().dr6 = value & 0x1_e00f | 0xfffe_0ff0,
        _ => state.save().dr7 = value & 0xffff_2bff | 0x400,
    }
    state.changed(crate::arch::svm::Clean::DEBUG_REGISTERS);
}
