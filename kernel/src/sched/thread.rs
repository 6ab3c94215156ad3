//! A thread's record: it lies above the thread's kernel stack, in a slot of `memory::stacks`.
//!
//! *Writes*: fields in `Cell`s belong to the CPU that runs the thread (or that switches it out). The
//! run-queue link is written under the queue's lock, the wait link under the bucket's lock. The rest are
//! atomics with the rule beside them.

use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use bitflags::bitflags;

use super::timer::Timer;
use crate::arch::frame::FRAME_SIZE;
use crate::arch::{TrapFrame, context, fpu};
use crate::errno::Errno;
use crate::memory::stacks;
use crate::process::usage::ThreadUsage;
use crate::process::{Process, UserSpace};
use crate::sched::wait::Waiter;
use crate::shared::Shared;
use crate::signal::pending::ThreadSignals;
use crate::sync::SpinLock;
use crate::syscall::numa::Policy;
use crate::syscall::restart::Rest;

bitflags! {
    /// The work of a thread before it returns to user mode.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Work: u32 {
        /// Let another thread run.
        const RESCHEDULE = 1 << 0;
        /// A signal may be deliverable.
        const SIGNAL = 1 << 1;
        /// The process ends.
        const EXIT = 1 << 2;
        /// The process is stopped, or a tracer wants the thread to stop.
        const STOP = 1 << 3;
        /// A mark without work: the thread is traced (`ptrace`).
        const TRACED = 1 << 4;
        /// Another mark: the thread stops at system calls, or single-steps.
        const CALLS = 1 << 5;
        /// A state: the thread ran, or was picked, while the gate was closed. It goes no further than user mode
        /// while the gate is closed (`sched::stop_machine`). Only [`super::leave`] removes this.
        const GATE = 1 << 6;
    }
}

/// Runs, or waits in a run queue.
pub const RUNNABLE: u32 = 0;
/// Sleeps; the CPU that changes this to runnable puts the thread into a run queue.
pub const SLEEPING: u32 = 1;
/// Never runs again.
pub const DEAD: u32 = 2;

/// A thread.
#[repr(C)]
pub struct Thread {
    /// Bits of [`Work`]; first, because the page-fault path tests it.
    work: AtomicU32,
    /// `RUNNABLE`, `SLEEPING` or `DEAD`.
    pub state: AtomicU32,
    /// Whether a CPU uses this thread's stack; that CPU clears it once it uses another stack.
    pub on_cpu: AtomicBool,
    /// The CPU that runs it, ran it last, or has it in its queue.
    pub cpu: AtomicU32,
    /// Whether the thread runs while all other threads wait (`sched::stop_machine`): it is in the memory core, or
    /// stops the machine.
    pub passes: AtomicBool,
    /// CPUs it may run on.
    pub affinity: AtomicU64,
    id: AtomicU32,
    /// Whether it runs user code, in its process's address space.
    pub is_user: bool,
    /// Its process; none for kernel threads and dead threads.
    process: UnsafeCell<Option<Shared<Process>>>,
    /// The process's address space, which the CPU uses while the thread runs.
    pub space: Cell<*const UserSpace>,
    /// The resources that it has used.
    pub usage: ThreadUsage,
    /// If it leaves its CPU: the CPU to queue it on once its stack is free.
    pub leaves_for: Cell<Option<u32>>,
    /// The stack pointer where it left its stack.
    pub context: UnsafeCell<u64>,
    /// The next in the run queue.
    pub next: AtomicPtr<Thread>,
    /// Its entry in the bucket that it sleeps in.
    pub waiter: Waiter,
    /// Its entry in the list of timed sleepers.
    pub timer: Timer,
    pub signals: SpinLock<ThreadSignals>,
    /// The address of the last page fault that was not resolved.
    pub fault_address: Cell<u64>,
    /// How many processes had been killed for their memory, and had given it back, when this thread last
    /// found none.
    pub without_memory: Cell<u64>,
    /// The registers that user mode reaches its thread's own data by.
    pub bases: Cell<context::UserBases>,
    /// Cleared, and its futex woken, when the thread ends; 0 for none.
    pub clear_child_tid: Cell<u64>,
    /// Where its number is written before it runs; 0 for nowhere.
    pub set_child_tid: Cell<u64>,
    /// The signal that its tracer resumes it with; written under the family lock while it is stopped.
    pub given: AtomicU32,
    /// Whether it has stopped as a tracee: other threads take the process's signals if they can.
    pub halted: AtomicBool,
    /// The rest of an interrupted wait.
    pub rest: Cell<Rest>,
    /// The head of its list of robust futexes; 0 for none.
    pub robust_list: Cell<u64>,
    pub name: Cell<[u8; 16]>,
    /// `PR_SET_NO_NEW_PRIVS`, for it and its children: no program regains what it gave up.
    pub no_new_privileges: Cell<bool>,
    /// Where its memory comes from, as `set_mempolicy` set it; without effect.
    pub memory_policy: Cell<Policy>,
    /// The function that runs before user mode.
    entry: Cell<Option<fn(&'static Thread)>>,
    pub fpu: UnsafeCell<fpu::Area>,
    /// Where the FPU state in the registers belongs while a guest's is there (`kvm`); null for `fpu`.
    pub guest_fpu: Cell<*mut fpu::Area>,
}

// SAFETY: The module's rule: cells are the running CPU's, and a thread runs on one CPU at a time,
// handed over through a run queue's lock and `on_cpu`.
unsafe impl Sync for Thread {}

impl Thread {
    /// A new thread that runs `entry` and then, if that returns, user mode from `frame`.
    ///
    /// # Errors
    /// As `stacks::allocate`.
    pub fn new(
        id: u32,
        is_user: bool,
        entry: fn(&'static Thread),
        frame: &TrapFrame,
    ) -> Result<&'static Thread, Errno> {
        let slot = stacks::allocate()?;
        // SAFETY: The slot is ours, mapped, page-aligned and large enough. Only stale pointers of waiters
        // lead to it, and those read `state` only after they have seen the thread in a queue. Its stack is
        // unused.
        let thread = unsafe {
            slot.write(Thread {
                work: AtomicU32::new(0),
                state: AtomicU32::new(RUNNABLE),
                on_cpu: AtomicBool::new(false),
                cpu: AtomicU32::new(crate::arch::percpu::cpu_number()),
                passes: AtomicBool::new(false),
                affinity: AtomicU64::new(u64::MAX),
                id: AtomicU32::new(id),
                is_user,
                process: UnsafeCell::new(None),
                space: Cell::new(core::ptr::null()),
                usage: ThreadUsage::new(),
                leaves_for: Cell::new(None),
                context: UnsafeCell::new(0),
                next: AtomicPtr::new(core::ptr::null_mut()),
                waiter: Waiter::new(),
                timer: Timer::new(),
                signals: SpinLock::new(ThreadSignals::new()),
                fault_address: Cell::new(0),
                without_memory: Cell::new(0),
                bases: Cell::new(context::UserBases::default()),
                clear_child_tid: Cell::new(0),
                set_child_tid: Cell::new(0),
                given: AtomicU32::new(0),
                halted: AtomicBool::new(false),
                rest: Cell::new(Rest::Nothing),
                robust_list: Cell::new(0),
                name: Cell::new([0; 16]),
                no_new_privileges: Cell::new(false),
                memory_policy: Cell::new(Policy::DEFAULT),
                entry: Cell::new(Some(entry)),
                fpu: UnsafeCell::new(fpu::Area::initial()),
                guest_fpu: Cell::new(core::ptr::null_mut()),
            });
            let thread: &'static Thread = &*slot;
            *thread.frame() = *frame;
            *thread.context.get() = context::prepare(thread.frame() as u64);
            thread
        };
        Ok(thread)
    }

    /// The number that user mode knows it by; 0 for idle threads.
    #[inline]
    pub fn id(&self) -> u32 {
        self.id.load(Ordering::Relaxed)
    }

    /// Gives it another number: `exec` makes its caller the process's first thread.
    pub fn set_id(&self, id: u32) {
        self.id.store(id, Ordering::Relaxed);
    }

    /// Makes it a process's thread, before it runs.
    pub fn set_process(&self, process: Shared<Process>) {
        let space = process.space();
        // The process keeps the space as long as this thread runs.
        let pointer = space
            .as_ref()
            .map_or(core::ptr::null(), |space| &raw const **space);
        self.space.set(pointer);
        // SAFETY: The thread does not run yet, so no other thread reads this.
        unsafe { *self.process.get() = Some(process) };
    }

    /// Its process.
    ///
    /// # Panics
    /// If it is a kernel thread.
    #[inline]
    pub fn process(&self) -> &Process {
        // SAFETY: Written before the thread runs and when it has ended, when no other thread can find it.
        unsafe { (*self.process.get()).as_deref() }.expect("a process's thread")
    }

    /// Its process's number; 0 if it has none, or none any more. Only for the CPU that runs it.
    pub fn process_id(&self) -> u32 {
        // SAFETY: As above.
        unsafe { (*self.process.get()).as_deref() }.map_or(0, |process| process.id)
    }

    /// A reference to its process.
    ///
    /// # Panics
    /// As [`Thread::process`].
    pub fn process_reference(&self) -> Shared<Process> {
        // SAFETY: As above.
        unsafe { (*self.process.get()).clone() }.expect("a process's thread")
    }

    /// Drops the reference to its process. The thread has ended, or never ran.
    pub fn forget_process(&self) {
        self.space.set(core::ptr::null());
        // SAFETY: The thread calls this last, or never runs; no other thread can find it any more.
        drop(unsafe { (*self.process.get()).take() });
    }

    /// The user registers of the thread, which are saved here when it is in the kernel.
    pub fn frame(&self) -> *mut TrapFrame {
        (stacks::top(self) - FRAME_SIZE as u64) as *mut TrapFrame
    }

    /// Takes the function that a new thread runs first.
    pub fn take_entry(&self) -> Option<fn(&'static Thread)> {
        self.entry.take()
    }

    /// Whether it is running or runnable.
    pub fn runs(&self) -> bool {
        self.state.load(Ordering::Relaxed) == RUNNABLE
    }

    /// Whether anything may have to be done before user mode; always, if it is traced.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.work.load(Ordering::Relaxed) != 0
    }

    /// Whether it is traced.
    #[inline]
    pub fn is_traced(&self) -> bool {
        self.work().contains(Work::TRACED)
    }

    /// Whether it stops at system calls.
    #[inline]
    pub fn stops_at_calls(&self) -> bool {
        self.work.load(Ordering::Relaxed) & Work::CALLS.bits() != 0
    }

    /// The pending work.
    pub fn work(&self) -> Work {
        Work::from_bits_truncate(self.work.load(Ordering::Acquire))
    }

    /// Adds work. The thread's CPU may have to be interrupted (`sched::kick`).
    pub fn add_work(&self, work: Work) {
        self.work.fetch_or(work.bits(), Ordering::AcqRel);
    }

    /// Removes work that is done, or about to be.
    pub fn remove_work(&self, work: Work) {
        self.work.fetch_and(!work.bits(), Ordering::AcqRel);
    }

    /// Whether a sleep must end although what it waits for has not happened.
    pub fn is_interrupted(&self) -> bool {
        self.work().intersects(Work::SIGNAL | Work::EXIT)
    }

    /// Where the FPU state in the registers belongs.
    #[inline]
    pub fn fpu_in_use(&self) -> *mut fpu::Area {
        match self.guest_fpu.get() {
            guest if guest.is_null() => self.fpu.get(),
            guest => guest,
        }
    }

    /// A pointer for queues.
    pub fn as_mut_ptr(&self) -> *mut Thread {
        core::ptr::from_ref(self).cast_mut()
    }
}
