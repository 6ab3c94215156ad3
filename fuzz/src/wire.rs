//! The binary form of programs. Numbers are LEB128; there are as many arguments as the kind has.

use crate::KINDS;
use crate::address::Scene;
use crate::op::{Actor, Op};
use crate::program::{MOST_OPS, MOST_PROCESSES, MOST_THREADS, Program};

/// Appends a program.
pub fn encode(program: &Program, to: &mut Vec<u8>) {
    to.push(program.scene as u8);
    number(program.ops.len() as u64, to);
    for op in &program.ops {
        number(op.kind.into(), to);
        let Actor { process, thread } = op.actor;
        to.push(process << 4 | thread | u8::from(op.beside) << 7);
        for &value in &op.arguments[..op.kind().arguments.len()] {
            number(value, to);
        }
    }
}

/// Encodes all programs.
pub fn encode_all(programs: &[Program]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for program in programs {
        encode(program, &mut bytes);
    }
    bytes
}

/// Decodes the next program from `bytes` into `program`; `None` if no valid one is left.
pub fn decode(bytes: &mut &[u8], program: &mut Program) -> Option<()> {
    program.scene = *Scene::ALL.get(usize::from(byte(bytes)?))?;
    program.ops.clear();
    let count = take(bytes)? as usize;
    if count > MOST_OPS {
        return None;
    }
    for _ in 0..count {
        let kind = take(bytes)?;
        let place = byte(bytes)?;
        let (process, thread) = (place >> 4 & 7, place & 15);
        let known = KINDS.get(kind as usize)?;
        if usize::from(process) >= MOST_PROCESSES || usize::from(thread) >= MOST_THREADS {
            return None;
        }
        let mut op = Op {
            kind: kind as u16,
            actor: Actor { process, thread },
            beside: place & 0x80 != 0,
            arguments: [0; 6],
        };
        for value in op.arguments.iter_mut().take(known.arguments.len()) {
            *value = take(bytes)?;
        }
        program.ops.push(op);
    }
    Some(())
}

fn number(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (&first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(first)
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let next = byte(bytes)?;
        value |= u64::from(next & 0x7f) << shift;
        if next < 0x80 {
            return Some(value);
        }
    }
    None
}
