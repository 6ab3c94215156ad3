//! Handlers of exceptions and interrupts, called by the entry code.
//!
//! Page faults come first because they are the hot path: straight into the engine, and back.

use linux_raw_sys::general as linux;

use super::fault::{self, ACCESS_ERROR, MAP_ERROR, NO_MEMORY, RESOLVED};
use super::frame::{FastFrame, TrapFrame};
use super::interrupts::{self, Kind};
use super::sources::{FLUSH, RESCHEDULE, TIMER};
use super::sysreg::read_sysreg;
use super::{gic, percpu, power, serial, shootdown, time, tlb};
use crate::memory::{Access, USER_END};
use crate::process;
use crate::signal::force::{self, Fault};
use crate::signal::pending::Trap;

/// The class of an exception, in its syndrome.
const CLASS: u32 = 26;
const FETCH_BY_USER: u64 = 0x20;
const PC_ALIGNMENT: u64 = 0x22;
const ACCESS_BY_KERNEL: u64 = 0x25;
const STACK_ALIGNMENT: u64 = 0x26;
const FLOATING_POINT: u64 = 0x2c;
const STEP: u64 = 0x32;
const BREAKPOINT: u64 = 0x3c;

/// Bits of an abort's syndrome.
const STATUS: u64 = 0x3f;
const WRITE: u64 = 1 << 6;
/// The instruction maintains caches: it counts as a read.
const MAINTENANCE: u64 = 1 << 8;
const LONG: u64 = 1 << 25;

/// The status of an abort: translation, access flag and permission faults, each at four levels; alignment.
const TRANSLATION: u64 = 0x04;
const PERMISSION: u64 = 0x0c;
const PERMISSION_END: u64 = 0x10;
const ALIGNMENT: u64 = 0x21;

/// Kinds of traps, as far as the context of a signal handler differs. The last kind is that of all others.
const PAGE_FAULT: u64 = 1;
const SILENT: u64 = 2;
const OTHER: u64 = 0;

#[inline]
fn access_of(syndrome: u64) -> Access {
    if syndrome >> CLASS == FETCH_BY_USER {
        Access::Execute
    } else if syndrome & (WRITE | MAINTENANCE) == WRITE {
        Access::Write
    } else {
        Access::Read
    }
}

/// Whether an abort is one that the memory core resolves.
#[inline]
fn is_page_fault(syndrome: u64) -> bool {
    (TRANSLATION..PERMISSION_END).contains(&(syndrome & STATUS))
}

/// After a permission fault, drops this CPU's translation. The hardware keeps it, and the memory core raises entries
/// without a flush: without this, the access would fault for ever.
#[inline]
fn forget_translation(address: u64, syndrome: u64) {
    if syndrome & (STATUS & !3) == PERMISSION {
        tlb::flush_page(address);
    }
}

/// An address without the byte that user mode may use for tags.
#[inline]
fn untagged(address: u64) -> u64 {
    ((address << 8) as i64 >> 8) as u64
}

/// What a handler's context says of a fault. As on Linux, breakpoints and steps leave it as it was, and of others there
/// is no address.
pub fn remember(trap: &mut Trap, fault: &Fault) {
    match fault.trap {
        SILENT => {}
        PAGE_FAULT => (trap.address, trap.error) = (fault.address, fault.error),
        _ => (trap.address, trap.error) = (0, fault.error),
    }
}

/// Handles an abort in user mode. 0: resolved, the program continues.
pub extern "C" fn user_page_fault(address: u64, syndrome: u64) -> u32 {
    let address = untagged(address);
    let outcome = match is_page_fault(syndrome) {
        true => fault::resolve(address, access_of(syndrome), false),
        false => MAP_ERROR,
    };
    forget_translation(address, syndrome);
    if outcome != RESOLVED
        && let Some(thread) = percpu::current()
    {
        thread.fault_address.set(address);
    }
    outcome
}

/// Handles an abort in user mode that was not resolved: a signal, or no memory.
pub extern "C" fn user_page_fault_slow(frame: *mut TrapFrame, outcome: u32) {
    let thread = crate::sched::current();
    let address = thread.fault_address.get();
    // SAFETY: The thread runs, so its frame is its own.
    let syndrome = unsafe { (*frame).fast.error };
    if outcome == NO_MEMORY {
        // A process is killed, perhaps this one; if not, the access is tried again.
        process::oom::fault_found_none();
    } else {
        let (signal, code) = match syndrome & STATUS {
            ALIGNMENT => (linux::SIGBUS, linux::BUS_ADRALN),
            _ if is_page_fault(syndrome) || address >= USER_END => fault::signal_of(outcome),
            // An error of the memory system.
            _ => (linux::SIGBUS, linux::BUS_OBJERR),
        };
        force::fault(
            thread,
            Fault {
                signal,
                code: code as i32,
                address,
                key: 0,
                trap: PAGE_FAULT,
                error: shown(syndrome, address),
            },
        );
    }
    crate::sched::leave(frame);
}

/// The syndrome in a signal's context. As Linux does, so that a program cannot probe what the kernel has mapped.
fn shown(syndrome: u64, address: u64) -> u64 {
    if address < USER_END {
        return syndrome;
    }
    let kept = match syndrome >> CLASS {
        FETCH_BY_USER => LONG,
        _ => LONG | WRITE | MAINTENANCE,
    };
    syndrome & (0x3f << CLASS | kept) | TRANSLATION
}

/// Handles a synchronous exception in kernel mode. 0: continue at the frame's `pc`.
pub extern "C" fn kernel_sync(address: u64, syndrome: u64, frame: &mut FastFrame) -> u32 {
    if syndrome >> CLASS != ACCESS_BY_KERNEL {
        return 1;
    }
    let resolve = || {
        let outcome = match is_page_fault(syndrome) {
            true => fault::resolve(address, access_of(syndrome), true),
            false => ACCESS_ERROR,
        };
        forget_translation(address, syndrome);
        outcome
    };
    match fault::in_kernel(frame.pc, resolve) {
        Some(next) => frame.pc = next,
        None => return 1,
    }
    0
}

/// Handles all other exceptions in user mode.
pub extern "C" fn exception_from_user(frame: *mut TrapFrame) {
    // SAFETY: The thread runs, so its frame is its own until it leaves.
    let (syndrome, here) = unsafe { ((*frame).fast.error, (*frame).fast.pc) };
    let thread = crate::sched::current();
    let (signal, code, address, trap, error) = match syndrome >> CLASS {
        PC_ALIGNMENT => {
            let address = read_sysreg!("far_el1");
            (linux::SIGBUS, linux::BUS_ADRALN, address, OTHER, syndrome)
        }
        STACK_ALIGNMENT => {
            // SAFETY: As above.
            let address = unsafe { (*frame).fast.sp };
            (linux::SIGBUS, linux::BUS_ADRALN, address, OTHER, syndrome)
        }
        FLOATING_POINT => (linux::SIGFPE, linux::FPE_FLTINV, here, SILENT, 0),
        STEP => (linux::SIGTRAP, linux::TRAP_TRACE, here, SILENT, 0),
        BREAKPOINT => (linux::SIGTRAP, linux::TRAP_BRKPT, here, SILENT, 0),
        _ => (linux::SIGILL, linux::ILL_ILLOPC, here, OTHER, 0),
    };
    force::fault(
        thread,
        Fault {
            signal,
            code: code as i32,
            address,
            key: 0,
            trap,
            error,
        },
    );
    crate::sched::leave(frame);
}

/// Acknowledges an interrupt of user mode and answers a shootdown. Returns 0 if nothing else is to be done.
pub extern "C" fn acknowledge() -> u32 {
    match gic::acknowledge() {
        None => 0,
        Some(FLUSH) => {
            gic::end(FLUSH);
            shootdown::interrupt();
            0
        }
        // 0 is the first software-generated interrupt.
        Some(number) => number + 1,
    }
}

fn interrupt(number: u32) {
    match number {
        TIMER => {
            // The line is level-triggered, until the next deadline is set.
            time::stop_timer();
            gic::end(number);
            interrupts::add(Kind::Timer);
            crate::sched::timer::interrupt();
        }
        RESCHEDULE => {
            gic::end(number);
            interrupts::add(Kind::Reschedule);
            crate::sched::reschedule_interrupt();
        }
        _ if serial::is_interrupt(number) => {
            interrupts::add(Kind::Serial);
            // Before the bytes are taken: what comes later interrupts again.
            serial::acknowledge();
            crate::files::input::interrupt();
            gic::end(number);
        }
        _ if power::is_key(number) => power::stopped_from_outside(),
        _ => gic::end(number),
    }
}

/// Handles an interrupt of user mode that [`acknowledge`] left.
pub extern "C" fn interrupt_from_user(frame: *mut TrapFrame) {
    // SAFETY: The thread runs, so its frame is its own until it leaves.
    let vector = unsafe { (*frame).fast.vector };
    interrupt(vector as u32 - 1);
    crate::sched::leave(frame);
}

/// Handles an interrupt where the kernel lets them in.
pub extern "C" fn interrupt_from_kernel() {
    match acknowledge() {
        0 => {}
        number => interrupt(number - 1),
    }
}

/// Handles all other exceptions in kernel mode: a bug.
pub extern "C" fn trap_from_kernel(frame: &mut TrapFrame) {
    let address = read_sysreg!("far_el1");
    let f = &frame.fast;
    panic!(
        "exception {:#x} in the kernel, syndrome {:#x}, address {address:#x}\n  \
         pc {:016x} link {:016x} state {:08x} stack {:016x}\n  x0 {:x?}\n  x19 {:x?}",
        f.error >> CLASS,
        f.error,
        f.pc,
        f.link,
        f.pstate,
        core::ptr::from_ref(frame) as u64 + size_of::<TrapFrame>() as u64,
        f.x,
        frame.kept,
    );
}
