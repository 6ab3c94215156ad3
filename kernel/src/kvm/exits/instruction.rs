//! Reading the instruction at which a guest left, for those that the kernel carries out.

use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind, Register};

use crate::kvm::memory::GuestMemory;
use crate::kvm::state::{EFER_LMA, State};
use crate::kvm::walk;

/// The longest instruction.
pub const LONGEST: usize = 15;
pub const PAGE: u64 = 4096;

/// A general register, or a part of one.
#[derive(Clone, Copy)]
pub struct Target {
    number: usize,
    /// Bytes that are written; 4 clear the upper half.
    bytes: usize,
    /// AH to BH.
    is_high: bool,
}

impl Target {
    pub fn of(register: Register) -> Option<Self> {
        // In the order of `kvm_regs`, by the numbers of instructions.
        const NUMBERS: [usize; 16] = [0, 2, 3, 1, 6, 7, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
        if !register.is_gpr() {
            return None;
        }
        let is_high = matches!(
            register,
            Register::AH | Register::BH | Register::CH | Register::DH
        );
        Some(Self {
            number: NUMBERS[register.full_register().number() & 15],
            bytes: register.size(),
            is_high,
        })
    }

    /// The register's value, with more above it.
    pub fn get(self, state: &mut State) -> u64 {
        let value = state.register(self.number);
        match self.is_high {
            true => value >> 8,
            false => value,
        }
    }

    pub fn set(self, state: &mut State, value: u64) {
        let old = state.register(self.number);
        let new = match (self.bytes, self.is_high) {
            (1, true) => old & !0xff00 | (value & 0xff) << 8,
            (1, false) => old & !0xff | value & 0xff,
            (2, _) => old & !0xffff | value & 0xffff,
            (4, _) => value & 0xffff_ffff,
            _ => value,
        };
        state.set_register(self.number, new);
    }
}

/// Reads as much of the instruction as is there.
pub fn fetch<'a>(state: &mut State, memory: &GuestMemory, to: &'a mut [u8; LONGEST]) -> &'a [u8] {
    let linear = state.linear_rip();
    let first = ((PAGE - linear % PAGE) as usize).min(LONGEST);
    if walk::read(state, memory, linear, &mut to[..first]).is_err() {
        return &[];
    }
    let rest = walk::read(
        state,
        memory,
        linear.wrapping_add(first as u64),
        &mut to[first..],
    );
    match rest {
        Ok(()) => to,
        Err(_) => &to[..first],
    }
}

pub fn decode(state: &mut State, bytes: &[u8]) -> Instruction {
    let bits = match (state.is_long(), state.save().cs.attributes >> 10 & 1) {
        (true, _) => 64,
        (false, 1) => 32,
        (false, _) => 16,
    };
    let rip = state.save().rip;
    Decoder::with_ip(bits, bytes, rip, DecoderOptions::NONE).decode()
}

/// The linear address of the memory operand.
pub fn linear_address(state: &mut State, instruction: &Instruction) -> u64 {
    let operand = match instruction.op0_kind() {
        OpKind::Register => 1,
        _ => 0,
    };
    let address = instruction.virtual_address(operand, 0, |register, _, _| {
        if let Some(part) = Target::of(register) {
            let value = part.get(state);
            return Some(match part.bytes {
                1 => value & 0xff,
                2 => value & 0xffff,
                4 => value & 0xffff_ffff,
                _ => value,
            });
        }
        let save = state.save();
        Some(match register {
            Register::FS => save.fs.base,
            Register::GS => save.gs.base,
            _ if save.efer & EFER_LMA != 0 => 0,
            Register::ES => save.es.base,
            Register::CS => save.cs.base,
            Register::SS => save.ss.base,
            Register::DS => save.ds.base,
            _ => 0,
        })
    });
    address.unwrap_or(0)
}
