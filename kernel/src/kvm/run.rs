//! `KVM_RUN`: a vCPU's run loop.
//!
//! The loop enters the guest, handles what made it leave, and looks at its thread's work before it enters again.
//! That look and the entry happen with interrupts off, and an interrupt that comes in between makes the guest
//! leave at once: so no signal, stop or end is missed. A signal ends the call with EINTR.
//!
//! *Writes*: the vCPU's state, its control block and run area; this CPU's line in `flush`, twice an entry.

use faultless_tdp::DirtyRing;

use super::area::{Area, at};
use super::exits::{self, Next, mmio};
use super::state::{Pending, State};
use super::stats::Stat;
use super::uapi::{self, mp_state};
use super::vcpu::Vcpu;
use super::vm::Vm;
use super::{flush, fpu, interrupts, io, sync_regs};
use crate::arch;
use crate::arch::svm::{self, Clean};
use crate::errno::{Answer, EAGAIN, EINTR, Errno};
use crate::sched::thread::{Thread, Work};
use crate::sched::wait::{self, Interruptible};
use crate::sched::{self, stop_machine};
use crate::signal::send;

/// Runs a vCPU until the program is needed.
///
/// # Errors
/// `EINTR`: a signal came, or the program asked for an immediate exit. `EINVAL`: registers in the run area are
/// none. `EFAULT`: the program's memory is not there. `EAGAIN`: a vCPU that waits to be started.
pub fn run(vm: &Vm, vcpu: &Vcpu, state: &mut State) -> Answer {
    let thread = sched::current();
    let wants_exit = vcpu.area.read::<u8>(at::IMMEDIATE_EXIT) != 0;
    let before = state.mask.map(|mask| {
        let blocked = thread.signals.lock().blocked;
        send::set_blocked(thread, mask);
        blocked
    });
    vcpu.area.write(at::FLAGS, 0u16);
    vcpu.stats.add(Stat::FpuReload);
    fpu::enter(thread, &vcpu.area);
    let answer = begin(vm, vcpu, state, wants_exit);
    fpu::leave(thread, &vcpu.area);
    sync_regs::to_program(state, &vcpu.area);
    tell(state, &vcpu.area);
    if let Some(blocked) = before {
        send::set_blocked(thread, blocked);
    }
    answer
}

fn begin(vm: &Vm, vcpu: &Vcpu, state: &mut State, wants_exit: bool) -> Answer {
    let area = &vcpu.area;
    if state.mp_state == mp_state::UNINITIALIZED {
        if !wants_exit {
            sleep(state);
        }
        return match wants_exit || sched::current().is_interrupted() {
            true => {
                area.leave(uapi::exit::INTR, &[]);
                Err(EINTR)
            }
            false => Err(EAGAIN),
        };
    }
    sync_regs::from_program(state, area)?;
    interrupts::set_priority(state, area.read(at::CR8));
    match core::mem::replace(&mut state.pending, Pending::Nothing) {
        Pending::Nothing => {}
        Pending::Port(access) => io::complete(access, state, &vm.memory, vcpu)?,
        Pending::Memory(access) => {
            mmio::complete(access, state, area);
        }
    }
    if wants_exit {
        return Err(EINTR);
    }
    area.write(at::EXIT_REASON, uapi::exit::UNKNOWN);
    state.has_run = true;
    turn(vm, vcpu, state)
}

/// The loop.
fn turn(vm: &Vm, vcpu: &Vcpu, state: &mut State) -> Answer {
    let thread = sched::current();
    loop {
        // As on Linux, also if a signal has come.
        if vcpu.ring().is_some_and(DirtyRing::is_nearly_full) {
            vcpu.area.leave(uapi::exit::DIRTY_RING_FULL, &[]);
            return Ok(0);
        }
        if may_not_enter(thread) {
            vcpu.stats.add(Stat::SignalExits);
            vcpu.area.leave(uapi::exit::INTR, &[]);
            return Err(EINTR);
        }
        if vcpu.area.read::<u8>(at::REQUEST_WINDOW) != 0 {
            if interrupts::is_ready(state) {
                vcpu.area.leave(uapi::exit::IRQ_WINDOW_OPEN, &[]);
                return Ok(0);
            }
            interrupts::open_window(state);
        }
        if state.mp_state == mp_state::HALTED {
            // Nothing but a signal can come.
            sleep(state);
            continue;
        }
        enter(vm, vcpu, state);
        if exits::handle(vm, vcpu, state)? == Next::Leave {
            return Ok(0);
        }
    }
}

/// Does the thread's work, as far as a system call can; whether the rest needs the return to user mode.
#[inline]
fn may_not_enter(thread: &'static Thread) -> bool {
    let marks = Work::TRACED | Work::CALLS;
    loop {
        let work = thread.work().difference(marks);
        if work.is_empty() {
            return false;
        }
        if work.intersects(Work::SIGNAL | Work::EXIT | Work::STOP) {
            return true;
        }
        if !work.contains(Work::RESCHEDULE) && stop_machine::lets(thread) {
            return false;
        }
        sched::cond_resched(|| ());
    }
}

/// Enters the guest, and returns when it has left. Interrupts are off.
#[inline]
fn enter(vm: &Vm, vcpu: &Vcpu, state: &mut State) {
    let host = svm::enable_here();
    let flushes = vm.flusher.enter(state);
    state.control().flush = 0;
    if flushes {
        state.control().flush = svm::flush_command();
        // Another CPU keeps other parts of the block, or old ones.
        state.control().clean = Clean::empty().bits();
        vcpu.stats.add(Stat::TlbFlush);
    }
    if state.interrupt.is_some() {
        interrupts::inject(state);
    }
    const BREAKPOINTS: u64 = 0xff;
    if state.save().dr7 & BREAKPOINTS != 0 {
        svm::load_breakpoints(&state.breakpoints);
    }
    if state.sees_xcr0 {
        arch::fpu::choose(state.xcr0);
    }
    // SAFETY: SVM is on; the state was checked by what set it, or is refused by the CPU; the guest reaches memory
    // by its nested tables only. The vCPU's turn is held, and interrupts are off.
    unsafe { svm::enter(state.block(), host, &raw mut state.registers) };
    if state.sees_xcr0 {
        // QEMU 7.2 lets a guest change it unseen.
        state.xcr0 = arch::fpu::choose_all();
    }
    flush::left();
    state.control().clean = Clean::all().bits();
}

/// Writes what every return tells the program.
fn tell(state: &mut State, area: &Area) {
    const INTERRUPTS: u64 = 1 << 9;
    area.write(at::IF_FLAG, u8::from(state.save().rflags & INTERRUPTS != 0));
    area.write(at::CR8, interrupts::priority(state));
    area.write(at::APIC_BASE, state.apic_base);
    let ready = interrupts::is_ready(state);
    area.write(at::READY, u8::from(ready));
}

/// Sleeps until a signal comes.
fn sleep(state: &State) {
    let key = core::ptr::from_ref(state) as u64;
    let _: Result<_, Errno> = wait::sleep(key, u32::MAX, None, Interruptible::Yes, || Ok(true));
}
