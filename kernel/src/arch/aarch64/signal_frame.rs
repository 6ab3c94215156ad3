//! A signal handler's frame on the user stack, byte for byte as Linux lays it out.
//!
//! ```text
//!   x29 ->   frame record: the interrupted code's x29 and x30
//!            ucontext (4560 bytes): flags, link, stack, mask, registers, then records: vector registers,
//!            syndrome, end
//!   sp ->    siginfo (128 bytes)
//! ```

use linux_raw_sys::general as linux;

use super::frame::TrapFrame;
use super::registers::{self, USER_STATE};
use super::{fpu, uaccess};
use crate::errno::{EFAULT, Errno};
use crate::process;
use crate::sched::thread::Thread;
use crate::signal::Set;
use crate::signal::action::Action;
use crate::signal::pending::{AlternateStack, Info, Trap};

/// Sizes of the parts.
const INFO: u64 = 128;
const CONTEXT: u64 = 4560;
const RECORD: u64 = 16;

/// Offsets in the ucontext.
const STACK: u64 = 16;
const MASK: u64 = 40;
const FAULT_ADDRESS: u64 = 176;
const REGISTERS: u64 = FAULT_ADDRESS + 8;
const RECORDS: u64 = 464;

const SA_RESTORER: u32 = 0x0400_0000;

/// The record of the vector registers: magic number, size; status, control; registers.
const VECTORS_MAGIC: u32 = 0x4650_8001;
const VECTORS_SIZE: u32 = 528;
/// The record of the syndrome.
const SYNDROME_MAGIC: u32 = 0x4553_5201;
const SYNDROME_SIZE: u32 = 16;

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// The smallest alternate stack (Linux: `MINSIGSTKSZ`).
pub const LEAST_STACK: u64 = 5120;

/// The stack that a handler needs (`AT_MINSIGSTKSZ`).
pub fn needed_stack() -> u64 {
    INFO + CONTEXT + 2 * RECORD
}

/// Puts a frame on the user stack and makes `frame` enter the handler.
///
/// # Errors
/// `EFAULT`: there is no room for it.
pub fn push(
    thread: &Thread,
    frame: &mut TrapFrame,
    info: &Info,
    action: &Action,
    mask: Set,
    stack: AlternateStack,
    trap: Trap,
) -> Result<(), Errno> {
    let old = frame.fast.sp;
    let on_stack = stack.contains(old);
    let mut sp = old;
    let uses_stack = action.has(linux::SA_ONSTACK) && stack.size != 0;
    if uses_stack && !on_stack {
        sp = stack.start.wrapping_add(stack.size);
    }
    let record = sp.wrapping_sub(RECORD) & !15;
    let sp = record.wrapping_sub(INFO + CONTEXT);
    if (uses_stack || on_stack) && !stack.contains(sp) {
        return Err(EFAULT);
    }
    let context = sp.wrapping_add(INFO);
    let at = |offset: u64| context.wrapping_add(offset);

    // SAFETY: The thread runs here, so the area is this CPU's.
    let area = unsafe { &mut *thread.fpu.get() };
    fpu::save(area);
    let general = frame.general();
    uaccess::write(record, &[general[29], general[30]])?;
    uaccess::write(sp, &info.words())?;
    let flags = stack.flags | if on_stack { linux::SS_ONSTACK } else { 0 };
    // Flags, link, stack, mask.
    uaccess::write(
        context,
        &[0, 0, stack.start, u64::from(flags), stack.size, mask],
    )?;
    let mut words = [0; 35];
    words[0] = trap.address;
    words[1..32].copy_from_slice(&general);
    words[32..].copy_from_slice(&[frame.fast.sp, frame.fast.pc, frame.fast.pstate]);
    uaccess::write(at(FAULT_ADDRESS), &words)?;
    let vectors = at(RECORDS);
    let head = [
        pair(VECTORS_MAGIC, VECTORS_SIZE),
        pair(area.status, area.control),
    ];
    uaccess::write(vectors, &head)?;
    write_vectors(vectors.wrapping_add(16), &area.vectors)?;
    let mut next = vectors.wrapping_add(VECTORS_SIZE.into());
    if trap.error != 0 {
        let record = [pair(SYNDROME_MAGIC, SYNDROME_SIZE), trap.error];
        uaccess::write(next, &record)?;
        next = next.wrapping_add(SYNDROME_SIZE.into());
    }
    uaccess::write(next, &0u64)?;

    let x = &mut frame.fast.x;
    x[0] = u64::from(info.signal);
    if action.has(linux::SA_SIGINFO) {
        x[1] = sp;
        x[2] = context;
    }
    frame.kept[29 - 19] = record;
    frame.fast.link = match action.has(SA_RESTORER) {
        true => action.restorer,
        false => process::space().trampoline(),
    };
    frame.fast.sp = sp;
    frame.fast.pc = action.handler;
    frame.fast.forget_call();
    registers::make_loadable(frame);
    Ok(())
}

fn write_vectors(to: u64, vectors: &[u128; 32]) -> Result<(), Errno> {
    let mut words = [0; 64];
    for (pair, vector) in words.chunks_mut(2).zip(vectors) {
        pair[0] = *vector as u64;
        pair[1] = (*vector >> 64) as u64;
    }
    uaccess::write(to, &words)
}

/// Takes a frame off the user stack and makes `frame` resume the interrupted code; returns the signal mask
/// and the alternate stack to restore.
///
/// # Errors
/// `EFAULT`: there is no such frame.
pub fn pop(frame: &mut TrapFrame) -> Result<(Set, AlternateStack), Errno> {
    let sp = frame.fast.sp;
    if sp & 15 != 0 {
        return Err(EFAULT);
    }
    let context = sp.wrapping_add(INFO);
    let at = |offset: u64| context.wrapping_add(offset);
    let [start, flags, size]: [u64; 3] = uaccess::read(at(STACK))?;
    let mask: u64 = uaccess::read(at(MASK))?;
    let words: [u64; 34] = uaccess::read(at(REGISTERS))?;
    // Not into the thread's own area: the read may sleep, and then the switch saves to that area.
    let area = read_records(at(RECORDS))?;
    if words[33] & 0x1f != 0 {
        return Err(EFAULT);
    }
    fpu::restore(&area);
    let mut general = [0; 31];
    general.copy_from_slice(&words[..31]);
    frame.set_general(&general);
    frame.fast.sp = words[31];
    frame.fast.pc = words[32];
    frame.fast.pstate = words[33] & USER_STATE;
    frame.fast.forget_call();
    let stack = AlternateStack {
        start,
        size,
        flags: flags as u32 & !linux::SS_ONSTACK,
    };
    Ok((mask, stack))
}

/// Reads the records, of which the vector registers' has to be there.
fn read_records(start: u64) -> Result<fpu::Area, Errno> {
    let mut area = None;
    let mut offset = 0;
    let end = CONTEXT - RECORDS;
    while offset + 8 <= end {
        let record = start.wrapping_add(offset);
        let [magic, size]: [u32; 2] = uaccess::read(record)?;
        match (magic, size) {
            (0, 0) => return area.ok_or(EFAULT),
            (VECTORS_MAGIC, VECTORS_SIZE) if area.is_none() => {
                area = Some(read_vectors(record.wrapping_add(8))?);
            }
            (SYNDROME_MAGIC, _) => {}
            _ => return Err(EFAULT),
        }
        let size = u64::from(size);
        if size < 16 || !size.is_multiple_of(16) {
            return Err(EFAULT);
        }
        offset += size;
    }
    Err(EFAULT)
}

fn read_vectors(from: u64) -> Result<fpu::Area, Errno> {
    let mut area = fpu::Area::initial();
    [area.status, area.control] = uaccess::read(from)?;
    let words: [u64; 64] = uaccess::read(from.wrapping_add(8))?;
    for (vector, pair) in area.vectors.iter_mut().zip(words.chunks(2)) {
        *vector = u128::from(pair[0]) | u128::from(pair[1]) << 64;
    }
    Ok(area)
}
