//! Accesses to guest-physical addresses without memory, or stores to read-only memory (`KVM_EXIT_MMIO`).
//!
//! The kernel reads the instruction, and the program carries out its access. A load is completed when the program
//! runs the vCPU again; a store is over when the guest leaves, as on Linux. Instructions with one memory operand
//! that only moves data are known: MOV, MOVZX, MOVSX, MOVSXD, MOVNTI, STOS, LODS. The program is told of others.

use iced_x86::{Code, Instruction, Mnemonic, OpKind};

use super::instruction::{LONGEST, PAGE, Target, decode, fetch, linear_address};
use super::{Next, cannot_emulate};
use crate::errno::Errno;
use crate::kvm::area::{Area, at};
use crate::kvm::state::{Pending, State, register};
use crate::kvm::uapi;
use crate::kvm::vcpu::Vcpu;
use crate::kvm::vm::Vm;

const DOWN: u64 = 1 << 10;

/// A load that the program carries out.
#[derive(Clone, Copy)]
pub struct Access {
    target: Target,
    bytes: usize,
    is_signed: bool,
    /// Where the instruction is, and the next one.
    at: u64,
    next: u64,
}

/// What an instruction does to memory.
enum Does {
    Store(u64),
    Load(Target, bool),
}

/// An access to an address without memory.
///
/// # Errors
/// `EFAULT`: the program's memory, which should have the instruction, is not there.
pub fn exit(vm: &Vm, vcpu: &Vcpu, state: &mut State, address: u64) -> Result<Next, Errno> {
    let mut bytes = [0; LONGEST];
    let bytes = fetch(state, &vm.memory, &mut bytes);
    let instruction = decode(state, bytes);
    let Some((does, length)) = what(state, &instruction) else {
        return Ok(cannot_emulate(vm, vcpu, state, bytes));
    };
    // Where in the page the access is, the operand says.
    let linear = linear_address(state, &instruction);
    let physical = address & !(PAGE - 1) | linear & (PAGE - 1);
    let (here, next) = (state.linear_rip(), instruction.next_ip());
    let (data, is_write) = match does {
        Does::Store(value) => (value, 1),
        Does::Load(..) => (0, 0),
    };
    match does {
        Does::Store(_) => finish(state, &instruction, next),
        Does::Load(target, is_signed) => {
            step(state, &instruction, length);
            state.pending = Pending::Memory(Access {
                target,
                bytes: length,
                is_signed,
                at: here,
                next,
            });
        }
    }
    let kept = match length {
        8 => data,
        _ => data & ((1 << (8 * length)) - 1),
    };
    vcpu.area.leave(
        uapi::exit::MMIO,
        &[physical, kept, length as u64 | is_write << 32],
    );
    Ok(Next::Leave)
}

/// The program has carried out a load.
pub fn complete(access: Access, state: &mut State, area: &Area) {
    if state.linear_rip() != access.at {
        return;
    }
    let mut data = [0; 8];
    area.copy_out(at::DETAILS + 8, &mut data[..access.bytes]);
    let value = u64::from_le_bytes(data);
    let unused = 64 - 8 * access.bytes as u32;
    let value = match access.is_signed {
        true => ((value << unused) as i64 >> unused) as u64,
        false => value,
    };
    access.target.set(state, value);
    state.go_on_at(access.next);
}

/// What an instruction does to its memory operand, and how many bytes that has; `None`: not known.
fn what(state: &mut State, instruction: &Instruction) -> Option<(Does, usize)> {
    if instruction.code() == Code::INVALID || instruction.has_lock_prefix() {
        return None;
    }
    let length = instruction.memory_size().size();
    let fits = matches!(length, 1 | 2 | 4 | 8);
    let does = match instruction.mnemonic() {
        Mnemonic::Mov | Mnemonic::Movnti if instruction.op0_kind() == OpKind::Memory => {
            Does::Store(match instruction.op1_kind() {
                OpKind::Register => Target::of(instruction.op1_register())?.get(state),
                _ => instruction.immediate(1),
            })
        }
        Mnemonic::Mov => Does::Load(Target::of(instruction.op0_register())?, false),
        Mnemonic::Movzx => Does::Load(Target::of(instruction.op0_register())?, false),
        Mnemonic::Movsx | Mnemonic::Movsxd => {
            Does::Load(Target::of(instruction.op0_register())?, true)
        }
        Mnemonic::Stosb | Mnemonic::Stosw | Mnemonic::Stosd | Mnemonic::Stosq => {
            Does::Store(state.register(register::RAX))
        }
        Mnemonic::Lodsb | Mnemonic::Lodsw | Mnemonic::Lodsd | Mnemonic::Lodsq
            if !repeats(instruction) =>
        {
            Does::Load(Target::of(instruction.op0_register())?, false)
        }
        _ => return None,
    };
    fits.then_some((does, length))
}

fn repeats(instruction: &Instruction) -> bool {
    instruction.has_rep_prefix() || instruction.has_repne_prefix()
}

/// Advances the registers of a string instruction.
fn step(state: &mut State, instruction: &Instruction, length: usize) {
    let number = match instruction.mnemonic() {
        Mnemonic::Stosb | Mnemonic::Stosw | Mnemonic::Stosd | Mnemonic::Stosq => register::RDI,
        Mnemonic::Lodsb | Mnemonic::Lodsw | Mnemonic::Lodsd | Mnemonic::Lodsq => register::RSI,
        _ => return,
    };
    let by = match state.save().rflags & DOWN {
        0 => length as u64,
        _ => (length as u64).wrapping_neg(),
    };
    let old = state.register(number);
    state.set_register(number, old.wrapping_add(by));
}

/// Goes on behind a store; one that repeats goes on with the next item.
fn finish(state: &mut State, instruction: &Instruction, next: u64) {
    step(state, instruction, instruction.memory_size().size());
    if repeats(instruction) {
        let left = state.register(register::RCX).wrapping_sub(1);
        state.set_register(register::RCX, left);
        if left != 0 {
            return;
        }
    }
    state.go_on_at(next);
}
