//! Scheduling: which thread runs where.
//!
//! A thread gives up its CPU only in `switch`: when it sleeps, ends, or returns to user mode with its slice
//! over, and in `cond_resched`. Kernel code between two calls of it is never preempted.
//!
//! Wake-ups are not lost. The sleeper puts itself on a list and sets its state to `SLEEPING` under that
//! list's lock, then calls `block`. The waker calls `wake` under the same lock. The compare-and-swap back to
//! `RUNNABLE` decides which CPU queues the thread. A CPU that queues a thread then looks for an idle CPU, and
//! an idle CPU looks at the queues before it halts: [`idle::CPUS`] orders the two.

pub mod idle;
mod place;
pub mod queue;
pub mod stop_machine;
pub mod thread;
pub mod timer;
pub mod wait;

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use faultless_sync::{Cpu, TakenCpu, fence_after_rmw};

use crate::arch::interrupts::{self, Kind};
use crate::arch::percpu::{self, MAX_CPUS};
use crate::arch::{self, TrapFrame, context, fpu, registers};
use crate::memory::stacks;
use crate::{process, signal, trace};
use thread::{DEAD, RUNNABLE, SLEEPING, Thread, Work};

/// Nanoseconds that a thread runs while others wait.
const SLICE: u64 = 4_000_000;

/// The thread that each CPU has just left, until the switch is complete.
static LEFT: [AtomicPtr<Thread>; MAX_CPUS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_CPUS];

/// The thread that runs on this CPU.
///
/// # Panics
/// Before threads run.
#[inline]
pub fn current() -> &'static Thread {
    percpu::current().expect("threads run")
}

/// Makes a sleeping thread runnable. Nothing happens if it does not sleep.
pub fn wake(thread: &'static Thread) {
    if thread
        .state
        .compare_exchange(SLEEPING, RUNNABLE, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
    {
        enqueue(thread);
    }
}

/// Queues a runnable thread where it should run, and notifies that CPU.
pub fn enqueue(thread: &'static Thread) {
    send(place::of_woken(thread), thread);
}

fn send(cpu: u32, thread: &'static Thread) {
    // Once it is in a queue, the thread may run, end, and become another one.
    let allowed = place::allowed(thread);
    let before = queue::push(cpu, thread);
    if cpu == percpu::cpu_number() {
        timer::program();
    } else if before == 0 && !idle::CPUS.is_polling(Cpu(cpu)) {
        // Idle: it has to wake up. Busy: its thread's slice begins to count.
        interrupts::send(cpu, Kind::Reschedule);
    }
    // A CPU that became idle after `place` had looked may not have seen the thread before it halted.
    tell(idle::CPUS.take_for(Cpu(cpu), allowed));
}

/// Called when more threads wait here than can run: wakes an idle CPU, which takes one that it may run.
fn share(this: u32) {
    tell(idle::CPUS.take(|| queue::allowed(this)));
}

/// Makes an idle CPU that was taken look at the queues.
fn tell(taken: Option<TakenCpu>) {
    if let Some(taken) = taken
        && taken.needs_interrupt
    {
        interrupts::send(taken.cpu.0, Kind::Reschedule);
    }
}

/// Makes the CPU that runs a thread check the thread's work.
pub fn kick(thread: &Thread) {
    // The work was added before; a CPU that takes the thread from here on sees it.
    fence_after_rmw();
    let cpu = thread.cpu.load(Ordering::Relaxed);
    if cpu != percpu::cpu_number() {
        interrupts::send(cpu, Kind::Reschedule);
    }
}

/// Adds work to a thread, and makes it do that work before user mode.
pub fn interrupt(thread: &'static Thread, work: Work) {
    thread.add_work(work);
    wake(thread);
    kick(thread);
}

/// Tells all other CPUs to check their queues and their threads' work.
fn tell_others() {
    let this = percpu::cpu_number();
    for cpu in (0..percpu::count()).filter(|&cpu| cpu != this) {
        interrupts::send(cpu, Kind::Reschedule);
    }
}

/// Handles the interrupt that says that this CPU's queue, or its thread's work, has changed.
pub fn reschedule_interrupt() {
    stop_machine::mark(current());
    timer::program();
}

/// Applies a change of the CPUs that a thread may run on. A waiting thread moves when its CPU next checks its
/// queue, at the latest at the end of a slice.
pub fn affinity_changed(thread: &'static Thread) {
    thread.add_work(Work::RESCHEDULE);
    kick(thread);
}

/// Lets another thread run; the current one continues later (`sched_yield`).
pub fn yield_now() {
    // The thread yields to those that wait here, so a queue that is shorter by one is no reason to move.
    let waiting = queue::length(percpu::cpu_number());
    give_up(waiting.saturating_sub(1));
}

/// Ends the current thread's slice.
fn preempt(thread: &Thread) {
    thread.remove_work(Work::RESCHEDULE);
    count(&thread.usage.preempted);
    give_up(queue::length(percpu::cpu_number()));
}

/// Lets another thread run; the current one continues here, or where fewer than `below` wait.
fn give_up(below: u32) {
    let this = percpu::cpu_number();
    let old = current();
    match place::of_leaving(old, this, below) {
        // Its stack is in use here: `switched` queues it there once the stack is free.
        Some(cpu) => old.leaves_for.set(Some(cpu)),
        None => {
            queue::push(this, old);
        }
    }
    switch();
}

/// Called in a long system call, with no lock held: answers shootdowns, takes interrupts and lets another
/// thread run if this one's slice is over. `false`: a signal or the end is pending.
pub fn breathe() -> bool {
    cond_resched(|| ());
    !current().is_interrupted()
}

/// Like [`breathe`], whatever is pending. The CPU is also given up while the gate is closed. The value of
/// `around` is kept meanwhile.
pub fn cond_resched<R>(around: impl FnOnce() -> R) {
    arch::take_interrupts();
    arch::relax();
    let thread = current();
    if thread.work().contains(Work::RESCHEDULE) || !stop_machine::lets(thread) {
        let _kept = around();
        preempt(thread);
    }
}

/// Lets another thread run. The current one is no longer `RUNNABLE`, or a waker has queued it since; it
/// continues when a CPU takes it from a queue.
pub fn block() {
    count(&current().usage.slept);
    switch();
}

/// Increments a counter of the current thread, which is the only writer.
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn switch() {
    let this = percpu::cpu_number();
    let old = current();
    let new = queue::next(this, percpu::count()).unwrap_or_else(|| idle::of(this));
    // If it passes the closed gate, then only as far as user mode, even if it is the old one.
    stop_machine::mark(new);
    if core::ptr::eq(old, new) {
        timer::program();
        return;
    }
    process::usage::charge(old);
    trace::switch(new);
    new.on_cpu.store(true, Ordering::Relaxed);
    let cpu = percpu::this();
    cpu.current.store(new.as_mut_ptr(), Ordering::Relaxed);
    context::set_kernel_stack(cpu, stacks::top(new));
    // SAFETY: The registers hold the old thread's state, and its record is this CPU's until the
    // switch is complete; the new thread was marked as ours by `queue::next`.
    unsafe {
        if old.is_user {
            old.bases.set(context::user_bases(old.bases.get()));
            fpu::save(&mut *old.fpu_in_use());
        }
        if new.is_user {
            if new.space.get().is_null() {
                // It is about to end, and has given its space back.
                process::space::leave(this, cpu);
            } else {
                process::space::enter(this, cpu, new.space.get());
            }
            registers::load_step(&*new.frame());
            context::set_user_bases(new.bases.get());
            fpu::restore(&*new.fpu_in_use());
        } else {
            process::space::leave(this, cpu);
        }
        LEFT[this as usize].store(old.as_mut_ptr(), Ordering::Relaxed);
        context::switch(old.context.get(), *new.context.get());
    }
    switched();
}

/// Completes a switch, on the new thread's stack: the old one's is free.
fn switched() {
    let this = percpu::cpu_number() as usize;
    let old = LEFT[this].load(Ordering::Relaxed);
    // SAFETY: Set just before the switch; threads are never unmapped.
    if let Some(old) = unsafe { old.as_ref() } {
        let dead = old.state.load(Ordering::Relaxed) == DEAD;
        let target = old.leaves_for.take();
        // Release: a CPU that may run it now sees its whole stack and context.
        old.on_cpu.store(false, Ordering::Release);
        if dead {
            stacks::free(old);
        } else if let Some(cpu) = target {
            send(cpu, old);
        }
    }
    timer::begin_slice();
    timer::program();
    if queue::length(this as u32) != 0 {
        share(this as u32);
    }
}

/// A new thread's first call.
pub extern "C" fn thread_begin() {
    switched();
    let thread = current();
    if let Some(entry) = thread.take_entry() {
        entry(thread);
    }
    leave(thread.frame());
}

/// Does the thread's pending work before it returns to user mode. `frame` is the thread's; no reference to it
/// is held beyond a stop, where a tracer may change it.
pub extern "C" fn leave(frame: *mut TrapFrame) {
    let thread = current();
    loop {
        let work = thread.work();
        if work.difference(Work::TRACED | Work::CALLS).is_empty() {
            return;
        }
        if work.contains(Work::EXIT) {
            process::end::exit_thread(thread);
        }
        if work.contains(Work::STOP) {
            process::stop::wait_to_go_on(thread);
            continue;
        }
        if work.contains(Work::SIGNAL) {
            signal::deliver::deliver(thread, frame);
        }
        if work.contains(Work::RESCHEDULE)
            || work.contains(Work::GATE) && stop_machine::stops(thread)
        {
            preempt(thread);
        }
    }
}
