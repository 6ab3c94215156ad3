//! The process: its address space, its threads, and how it ends.
//!
//! There is one. It ends when its last thread does: the last one to end alone, or all of them after
//! `exit_group`, a fatal signal or memory exhausted. The first reason given is the one reported.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::arch::percpu::{self, PerCpu};
use crate::arch::{paging, uaccess};
use crate::errno::{ENOMEM, Errno};
use crate::memory::{self, Cpu, Space};
use crate::report::{self, End};
use crate::sched;
use crate::sched::thread::{DEAD, Thread, Work};
use crate::signal::send;
use crate::sync::SpinLock;
use crate::{arch, futex};

/// The process's number, and its first thread's.
pub const ID: u32 = 100;

static SPACE: AtomicPtr<Space> = AtomicPtr::new(core::ptr::null_mut());
static THREADS: SpinLock<Vec<&'static Thread>> = SpinLock::new(Vec::new());
static NEXT_ID: AtomicU32 = AtomicU32::new(ID);
/// Threads that have not called `exit`.
static STAYING: AtomicU32 = AtomicU32::new(0);
/// All threads are to end.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Why: an exit status, or `SIGNALLED` and a signal.
static REASON: AtomicU64 = AtomicU64::new(0);
const SIGNALLED: u64 = 1 << 32;
/// Killed because a fault found no memory.
static OUT_OF_MEMORY: AtomicBool = AtomicBool::new(false);

/// The address space that user threads run in.
///
/// # Panics
/// Before `exec` has made it; no user thread runs then.
#[inline]
pub fn space() -> &'static Space {
    // SAFETY: Set once before the first user thread, and used until the last has ended.
    unsafe { SPACE.load(Ordering::Relaxed).as_ref() }.expect("the process has an address space")
}

/// Gives the process its address space.
pub fn set_space(space: &'static mut Space) {
    SPACE.store(space, Ordering::Release);
}

/// This CPU is about to run in the process's address space.
#[inline]
pub fn enter_space(number: u32, cpu: &PerCpu) {
    let root = memory::root_of(space());
    if cpu.root.load(Ordering::Relaxed) != root {
        space().cpus().insert(Cpu(number));
        cpu.root.store(root, Ordering::Relaxed);
        paging::load_root(root);
    }
}

/// This CPU does not run in the process's address space any more.
pub fn leave_space(number: u32, cpu: &PerCpu) {
    if cpu.root.load(Ordering::Relaxed) != 0 {
        cpu.root.store(0, Ordering::Relaxed);
        paging::load_root(paging::kernel_root());
        space().cpus().remove(Cpu(number));
    }
}

/// The number for a new thread.
pub fn new_id() -> u32 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// Counts a thread among the process's, before it runs.
///
/// # Errors
/// `ENOMEM`.
pub fn add(thread: &'static Thread) -> Result<(), Errno> {
    let mut threads = THREADS.lock();
    threads.try_reserve(1).map_err(|_| ENOMEM)?;
    threads.push(thread);
    drop(threads);
    // Before it runs, and its maker stays meanwhile: the count is 0 only after the last `exit`.
    STAYING.fetch_add(1, Ordering::Relaxed);
    if ENDING.load(Ordering::SeqCst) {
        thread.add_work(Work::EXIT);
    }
    Ok(())
}

/// Does something with each thread, under the list's lock.
pub fn for_each_thread(f: &mut dyn FnMut(&'static Thread)) {
    THREADS.lock().iter().for_each(|thread| f(thread));
}

/// Does something with the thread of this number, under the list's lock.
pub fn with_thread<R>(id: u32, f: impl FnOnce(&'static Thread) -> R) -> Option<R> {
    THREADS
        .lock()
        .iter()
        .find(|thread| thread.id == id)
        .map(|thread| f(thread))
}

/// Ends all threads. They notice on their way to user mode, and sleeping ones are woken.
fn end_all(reason: u64) {
    if ENDING.swap(true, Ordering::SeqCst) {
        return;
    }
    REASON.store(reason, Ordering::Release);
    for_each_thread(&mut |thread| sched::interrupt(thread, Work::EXIT));
}

/// `exit_group`.
pub fn exit(status: i32) {
    end_all(u64::from(status as u32 & 0xff));
}

/// Ends the process by a signal.
pub fn kill(signal: u32) {
    end_all(SIGNALLED | u64::from(signal));
}

/// Ends the process because a fault found no memory.
pub fn kill_out_of_memory() {
    OUT_OF_MEMORY.store(true, Ordering::Release);
    kill(linux_raw_sys::general::SIGKILL);
}

/// Ends the current thread alone (`exit`); the last one's status is the process's.
pub fn exit_alone(status: i32) -> ! {
    // One count decides who is last, so that of several at once exactly one is. It alone has a
    // status to leave, and nobody reads that before it has ended too.
    if STAYING.fetch_sub(1, Ordering::Relaxed) == 1 {
        exit(status);
    }
    exit_thread(sched::current())
}

/// Ends the current thread.
pub fn exit_thread(thread: &'static Thread) -> ! {
    let ending = ENDING.load(Ordering::SeqCst);
    if !ending {
        crate::syscall::thread::release_robust_list(thread);
        let address = thread.clear_child_tid.get();
        if address != 0 && uaccess::write(address, &0u32).is_ok() {
            futex::wake(address, 1, u32::MAX);
        }
    }
    let mut threads = THREADS.lock();
    threads.retain(|other| !core::ptr::eq(*other, thread));
    let last = threads.is_empty();
    drop(threads);
    if last {
        finish();
    }
    if !ending {
        let blocked = thread.signals.lock().blocked;
        send::hand_on(!blocked);
    }
    thread.state.store(DEAD, Ordering::Relaxed);
    sched::block();
    unreachable!("a dead thread runs");
}

/// The last thread has ended: gives all memory back and reports.
fn finish() -> ! {
    let cpu = percpu::cpu_number();
    leave_space(cpu, percpu::this());
    // The other threads' CPUs leave the space on their own; only then may it go.
    while space().cpus().iter().next().is_some() {
        arch::relax();
    }
    // SAFETY: Set by `set_space` from a leaked allocation; no thread is left that could use it.
    let space = unsafe { SPACE.swap(core::ptr::null_mut(), Ordering::AcqRel).read() };
    memory::destroy(space);
    let reason = REASON.load(Ordering::Acquire);
    let error = OUT_OF_MEMORY
        .load(Ordering::Acquire)
        .then_some("out of memory: the program was killed");
    if let Some(error) = error {
        log::error!("{error}");
    }
    let end = match reason & SIGNALLED {
        0 => End::Exit(reason as i32),
        _ => End::Signal(reason as u32),
    };
    match error {
        Some(error) => report::finish(end, Some(format_args!("{error}"))),
        None => report::finish(end, None),
    }
}
