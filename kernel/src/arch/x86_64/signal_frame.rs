//! A signal handler's frame on the user stack, byte for byte as Linux lays it out.
//!
//! ```text
//!   higher   floating-point state, 64-byte aligned, ends in a magic number
//!            siginfo (128 bytes)
//!            ucontext (304 bytes): flags, link, stack, registers, mask
//!   rsp ->   the restorer's address, as if it had called the handler
//! ```

use linux_raw_sys::general as linux;

use super::frame::{TrapFrame, VECTOR_NONE};
use super::{fpu, gdt, protection_keys, uaccess};
use crate::errno::{EFAULT, Errno};
use crate::memory::USER_END;
use crate::sched::thread::Thread;
use crate::signal::Set;
use crate::signal::action::Action;
use crate::signal::pending::{AlternateStack, Info, Trap};

const UC_SIZE: usize = 304;
const FRAME_SIZE: u64 = 8 + UC_SIZE as u64 + 128;
/// Extended state is present; SS is saved, and restored strictly.
const UC_FLAGS: u64 = 0b111;
/// The flags that a program may change: Linux's FIX_EFLAGS.
pub(super) const USER_FLAGS: u64 = 0x0005_0dd5;

/// Offsets in the ucontext, in 8-byte words.
const STACK: usize = 2;
const REGISTERS: usize = 5;
const SEGMENTS: usize = REGISTERS + 18;
const ERROR: usize = SEGMENTS + 1;
const TRAP: usize = ERROR + 1;
const OLD_MASK: usize = TRAP + 1;
const CR2: usize = OLD_MASK + 1;
const STATE: usize = CR2 + 1;
const MASK: usize = UC_SIZE / 8 - 1;

/// The smallest alternate stack (Linux: `MINSIGSTKSZ`).
pub const LEAST_STACK: u64 = 2048;

/// The stack that a handler needs (`AT_MINSIGSTKSZ`).
pub fn needed_stack() -> u64 {
    1024 + fpu::size() as u64
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
    let old = frame.fast.rsp;
    let on_stack = stack.contains(old);
    let mut sp = old.wrapping_sub(128);
    let uses_stack = action.has(linux::SA_ONSTACK) && stack.size != 0;
    if uses_stack && !on_stack {
        sp = stack.start.wrapping_add(stack.size);
    }
    let extended = fpu::size() > 512;
    let state_size = fpu::size() + if extended { 4 } else { 0 };
    let state = sp.wrapping_sub(state_size as u64) & !63;
    let sp = (state.wrapping_sub(FRAME_SIZE) & !15).wrapping_sub(8);
    if (uses_stack || on_stack) && !stack.contains(sp) {
        return Err(EFAULT);
    }

    // SAFETY: The thread runs here, so the area is this CPU's.
    let area = unsafe { &mut *thread.fpu.get() };
    fpu::save(area);
    fpu::describe_for_signal(area);
    let opened = protection_keys::Opened::new();
    uaccess::write_bytes(state, &area.0[..fpu::size()])?;
    if extended {
        uaccess::write(state.wrapping_add(fpu::size() as u64), &fpu::MAGIC_2)?;
    }

    let f = &frame.fast;
    let mut words = [0u64; UC_SIZE / 8];
    words[0] = if extended { UC_FLAGS } else { UC_FLAGS & !1 };
    words[STACK] = stack.start;
    words[STACK + 1] = u64::from(stack.flags | if on_stack { linux::SS_ONSTACK } else { 0 });
    words[STACK + 2] = stack.size;
    words[REGISTERS..SEGMENTS].copy_from_slice(&[
        f.r8, f.r9, f.r10, f.r11, frame.r12, frame.r13, frame.r14, frame.r15, f.rdi, f.rsi,
        frame.rbp, frame.rbx, f.rdx, f.rax, f.rcx, f.rsp, f.rip, f.rflags,
    ]);
    words[SEGMENTS] = u64::from(gdt::USER_CODE) | u64::from(gdt::USER_DATA) << 48;
    words[ERROR] = trap.error;
    words[TRAP] = trap.number;
    words[OLD_MASK] = mask;
    words[CR2] = trap.address;
    words[STATE] = state;
    words[MASK] = mask;
    let context = sp.wrapping_add(8);
    let siginfo_at = context.wrapping_add(UC_SIZE as u64);
    uaccess::write(sp, &action.restorer)?;
    uaccess::write(context, &words)?;
    uaccess::write(siginfo_at, &info.words())?;

    drop(opened);
    fpu::reset();
    frame.fast.rdi = u64::from(info.signal);
    frame.fast.rsi = siginfo_at;
    frame.fast.rdx = context;
    frame.fast.rax = 0;
    frame.fast.rsp = sp;
    frame.fast.rip = action.handler;
    // Direction, resume, trap.
    frame.fast.rflags &= !(0x400 | 0x1_0000 | 0x100);
    frame.fast.vector = VECTOR_NONE;
    // An invalid handler address faults in user mode, like any jump; the frame is complete.
    let _ = make_loadable(frame);
    Ok(())
}

/// Takes a frame off the user stack and makes `frame` resume the interrupted code; returns the signal mask
/// and the alternate stack to restore.
///
/// # Errors
/// `EFAULT`: there is no such frame.
pub fn pop(frame: &mut TrapFrame) -> Result<(Set, AlternateStack), Errno> {
    // `ret` has popped the restorer's address.
    let context = frame.fast.rsp;
    let words: [u64; UC_SIZE / 8] = uaccess::read(context)?;
    let r = &words[REGISTERS..SEGMENTS];
    let state = words[STATE];
    // Not into the thread's own area: the read may sleep, and then the switch saves to that area.
    let mut area = fpu::Area::initial();
    if state != 0 {
        uaccess::read_bytes(state, &mut area.0[..512])?;
        let magic = |at| uaccess::read::<u32>(at).is_ok_and(|word| word == fpu::MAGIC_2);
        let extended = fpu::is_extended(&area) && magic(state.wrapping_add(fpu::size() as u64));
        if extended {
            uaccess::read_bytes(state, &mut area.0[..fpu::size()])?;
        }
        if !fpu::check(&mut area, extended) {
            return Err(EFAULT);
        }
    }
    fpu::restore(&area);
    let f = &mut frame.fast;
    [f.r8, f.r9, f.r10, f.r11] = [r[0], r[1], r[2], r[3]];
    [f.rdi, f.rsi, f.rdx, f.rax, f.rcx] = [r[8], r[9], r[12], r[13], r[14]];
    [f.rsp, f.rip] = [r[15], r[16]];
    f.rflags = f.rflags & !USER_FLAGS | r[17] & USER_FLAGS;
    f.vector = VECTOR_NONE;
    [frame.r12, frame.r13, frame.r14, frame.r15] = [r[4], r[5], r[6], r[7]];
    [frame.rbp, frame.rbx] = [r[10], r[11]];
    make_loadable(frame)?;
    let stack = AlternateStack {
        start: words[STACK],
        size: words[STACK + 2],
        flags: words[STACK + 1] as u32 & !linux::SS_ONSTACK,
    };
    Ok((words[MASK], stack))
}

/// Ensures that the return to user mode itself cannot fault.
pub(super) fn make_loadable(frame: &mut TrapFrame) -> Result<(), Errno> {
    frame.fast.cs = u64::from(gdt::USER_CODE);
    frame.fast.ss = u64::from(gdt::USER_DATA);
    frame.fast.rflags |= 0x202;
    if frame.fast.rip >= USER_END {
        // Faults immediately, in user mode, with an address that is canonical.
        frame.fast.rip = USER_END;
        return Err(EFAULT);
    }
    Ok(())
}
