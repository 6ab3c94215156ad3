//! Handlers of exceptions and interrupts, called by the entry code.
//!
//! Page faults come first because they are the hot path: straight into the engine, and back.

use linux_raw_sys::general as linux;

use super::fault::{self, ACCESS_ERROR, CODE_ERROR, KEY_ERROR, NO_MEMORY, RESOLVED};
use super::frame::{FastFrame, TrapFrame};
use super::interrupts::{self, Kind};
use super::{apic, idt, percpu, protection_keys, uaccess};
use crate::memory::{Access, USER_END};
use crate::process;
use crate::signal::force::{self, Fault};
use crate::signal::pending::Trap;

/// The number of a page fault.
const PAGE_FAULT: u64 = 14;

const ERROR_PRESENT: u64 = 1;
const ERROR_WRITE: u64 = 2;
const ERROR_USER: u64 = 4;
const ERROR_RESERVED: u64 = 8;
const ERROR_FETCH: u64 = 16;
const ERROR_KEY: u64 = 32;

#[inline]
fn access_of(error: u64) -> Access {
    if error & ERROR_WRITE != 0 {
        Access::Write
    } else if error & ERROR_FETCH != 0 {
        Access::Execute
    } else {
        Access::Read
    }
}

#[inline]
fn resolve(address: u64, error: u64, by_kernel: bool) -> u32 {
    let access = access_of(error);
    match fault::resolve(address, access, by_kernel) {
        // The page itself allows the access.
        RESOLVED if error & ERROR_KEY != 0 && protection_keys::refuse(0, access) => KEY_ERROR,
        outcome => outcome,
    }
}

/// What a handler's context says of a fault: of the last page fault it keeps the address, as CR2 does.
pub fn remember(trap: &mut Trap, fault: &Fault) {
    (trap.number, trap.error) = (fault.trap, fault.error);
    if fault.trap == PAGE_FAULT {
        trap.address = fault.address;
    }
}

/// Handles a page fault in user mode. 0: resolved, the program continues.
pub extern "C" fn user_page_fault(address: u64, error: u64) -> u32 {
    // The page is present, but the access was not a user access: SMAP forbids it, and no mapping would allow
    // it. (QEMU 7.2 makes an IRETQ in user mode read its stack so.)
    let outcome = if error & (ERROR_PRESENT | ERROR_USER) == ERROR_PRESENT {
        ACCESS_ERROR
    } else {
        resolve(address, error, false)
    };
    if outcome != RESOLVED
        && let Some(thread) = percpu::current()
    {
        thread.fault_address.set(address);
    }
    outcome
}

/// Handles a page fault in user mode that was not resolved: a signal, or no memory.
pub extern "C" fn user_page_fault_slow(frame: *mut TrapFrame, outcome: u32) {
    let thread = crate::sched::current();
    let address = thread.fault_address.get();
    // SAFETY: The thread runs, so its frame is its own.
    let mut error = unsafe { (*frame).fast.error };
    if address >= USER_END {
        // As Linux does, so that a program cannot probe what the kernel has mapped.
        error |= ERROR_PRESENT;
    }
    if error & ERROR_RESERVED != 0 {
        panic!("reserved bits in the page tables at {address:#x}");
    }
    if outcome == ACCESS_ERROR && error & (ERROR_FETCH | ERROR_PRESENT) == ERROR_FETCH {
        // Linux faults the page in first and refuses the second fault; the handler sees that one's error
        // code.
        if resolve(address, error & !ERROR_FETCH, false) == RESOLVED {
            error |= ERROR_PRESENT;
        }
    }
    if outcome == NO_MEMORY {
        // A process is killed, perhaps this one; if not, the access is tried again.
        process::oom::fault_found_none();
    } else {
        let (signal, code) = fault::signal_of(outcome);
        force::fault(
            thread,
            Fault {
                signal,
                code: code as i32,
                address,
                key: match outcome {
                    CODE_ERROR => protection_keys::EXECUTE_ONLY,
                    _ => 0,
                },
                trap: PAGE_FAULT,
                error,
            },
        );
    }
    crate::sched::leave(frame);
}

/// Handles a page fault in kernel mode. 0: continue at the frame's `rip`.
pub extern "C" fn kernel_page_fault(address: u64, error: u64, frame: &mut FastFrame) -> u32 {
    if error & ERROR_USER != 0 {
        return 1;
    }
    match fault::in_kernel(frame.rip, || resolve(address, error, true)) {
        Some(next) => frame.rip = next,
        None => return 1,
    }
    0
}

/// Handles all other exceptions and interrupts in user mode.
pub extern "C" fn trap_from_user(frame: *mut TrapFrame) {
    // SAFETY: The thread runs, so its frame is its own until it leaves.
    let registers = unsafe { &mut *frame };
    let vector = registers.fast.vector;
    if vector < 32 {
        exception(registers);
    } else {
        interrupt(vector as u8);
    }
    crate::sched::leave(frame);
}

fn exception(frame: &mut TrapFrame) {
    let thread = crate::sched::current();
    let here = frame.fast.rip;
    let kernel = linux::SI_KERNEL as i32;
    let (signal, code, address) = match frame.fast.vector {
        0 => (linux::SIGFPE, linux::FPE_INTDIV as i32, here),
        1 => (linux::SIGTRAP, linux::TRAP_TRACE as i32, here),
        3 => (linux::SIGTRAP, kernel, 0),
        6 => (linux::SIGILL, linux::ILL_ILLOPN as i32, here),
        11 | 12 => (linux::SIGBUS, kernel, 0),
        16 | 19 => (
            linux::SIGFPE,
            super::fpu::error_code(frame.fast.vector == 19),
            here,
        ),
        17 => (linux::SIGBUS, linux::BUS_ADRALN as i32, 0),
        _ => (linux::SIGSEGV, kernel, 0),
    };
    if frame.fast.vector == 1 {
        // Single-stepping continues only as long as the program asks for it.
        // SAFETY: Clears the status of the debug exception just taken.
        unsafe { core::arch::asm!("mov dr6, {}", in(reg) 0xffff_0ff0_u64) };
    }
    let (trap, error) = (frame.fast.vector, frame.fast.error);
    force::fault(
        thread,
        Fault {
            signal,
            code,
            address,
            key: 0,
            trap,
            error,
        },
    );
}

fn interrupt(vector: u8) {
    match vector {
        idt::TIMER => {
            apic::end_of_interrupt();
            interrupts::add(Kind::Timer);
            crate::sched::timer::interrupt();
        }
        idt::RESCHEDULE => {
            apic::end_of_interrupt();
            interrupts::add(Kind::Reschedule);
            crate::sched::reschedule_interrupt();
        }
        idt::SERIAL => {
            apic::end_of_interrupt();
            interrupts::add(Kind::Serial);
            crate::files::input::interrupt();
        }
        // The old interrupt controllers are masked. Interrupts that they still have pending, and the spurious
        // vector, need no acknowledgement.
        _ => {}
    }
}

/// Handles all other exceptions and interrupts in kernel mode: interrupts in the idle loop, or a bug.
pub extern "C" fn trap_from_kernel(frame: &mut TrapFrame) {
    let vector = frame.fast.vector;
    if vector >= 32 {
        interrupt(vector as u8);
        return;
    }
    if let Some(fixup) = (vector == 13)
        .then(|| uaccess::fixup(frame.fast.rip))
        .flatten()
    {
        // A non-canonical address in a user access that the range check let through.
        frame.fast.rip = fixup;
        return;
    }
    let cr2 = x86_64::registers::control::Cr2::read_raw();
    let f = frame.fast;
    panic!(
        "exception {vector} in the kernel, error {:#x}, address {cr2:#x}\n  \
         rip {:016x} rsp {:016x} flags {:08x}\n  \
         rax {:016x} rbx {:016x} rcx {:016x} rdx {:016x}\n  \
         rsi {:016x} rdi {:016x} rbp {:016x} r8  {:016x}\n  \
         r9  {:016x} r10 {:016x} r11 {:016x} r12 {:016x}\n  \
         r13 {:016x} r14 {:016x} r15 {:016x}",
        f.error,
        f.rip,
        f.rsp,
        f.rflags,
        f.rax,
        frame.rbx,
        f.rcx,
        f.rdx,
        f.rsi,
        f.rdi,
        frame.rbp,
        f.r8,
        f.r9,
        f.r10,
        f.r11,
        frame.r12,
        frame.r13,
        frame.r14,
        frame.r15,
    );
}
