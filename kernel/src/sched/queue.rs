//! Run queues: one per CPU, first in first out, each under its own lock.
//!
//! A thread with a stack that is still in use (`on_cpu`) is only queued on the CPU that uses it, and is not
//! stolen. So no CPU ever waits for a stack. A thread that may no longer run where it waits
//! (`sched_setaffinity`) is sent elsewhere by the CPU that finds it in its queue.

use core::sync::atomic::{AtomicU32, Ordering};

use super::stop_machine;
use super::thread::Thread;
use crate::arch::percpu::MAX_CPUS;
use crate::sync::SpinLock;

struct List {
    first: *mut Thread,
    last: *mut Thread,
}

// SAFETY: Threads are static; the links are used under the lock only.
unsafe impl Send for List {}

struct Queue {
    list: SpinLock<List>,
    length: AtomicU32,
}

static QUEUES: [Queue; MAX_CPUS] = [const {
    Queue {
        list: SpinLock::new(List {
            first: core::ptr::null_mut(),
            last: core::ptr::null_mut(),
        }),
        length: AtomicU32::new(0),
    }
}; MAX_CPUS];

/// How many threads wait in a CPU's queue.
pub fn length(cpu: u32) -> u32 {
    QUEUES[cpu as usize].length.load(Ordering::Relaxed)
}

/// Puts a thread at the end of a CPU's queue; returns how many were there before. The caller looks for an idle
/// CPU afterwards (`sched::send`), unless it is about to take a thread from this queue.
pub fn push(cpu: u32, thread: &'static Thread) -> u32 {
    thread.cpu.store(cpu, Ordering::Relaxed);
    let queue = &QUEUES[cpu as usize];
    let mut list = queue.list.lock();
    thread.next.store(core::ptr::null_mut(), Ordering::Relaxed);
    if list.last.is_null() {
        list.first = thread.as_mut_ptr();
    } else {
        // SAFETY: Queued threads are alive, and the lock is held.
        unsafe {
            (*list.last)
                .next
                .store(thread.as_mut_ptr(), Ordering::Relaxed)
        };
    }
    list.last = thread.as_mut_ptr();
    queue.length.fetch_add(1, Ordering::SeqCst)
}

/// The CPUs that may run at least one thread of this CPU's queue.
pub fn allowed(cpu: u32) -> u64 {
    let list = QUEUES[cpu as usize].list.lock();
    let (mut allowed, mut at) = (0, list.first);
    // SAFETY: Queued threads are alive, and the lock is held.
    while let Some(thread) = unsafe { at.as_ref() } {
        allowed |= thread.affinity.load(Ordering::Relaxed);
        at = thread.next.load(Ordering::Relaxed);
    }
    allowed
}

/// A thread that was taken out of a queue.
enum Taken {
    /// To run; its stack is marked as in use.
    Runs(&'static Thread),
    /// It may not run where it waited.
    Strays(&'static Thread),
}

/// Takes the first thread of `from`'s queue that `cpu` may run, or has to send elsewhere.
fn take(from: u32, cpu: u32) -> Option<Taken> {
    let queue = &QUEUES[from as usize];
    if queue.length.load(Ordering::SeqCst) == 0 {
        return None;
    }
    let mut list = queue.list.lock();
    let (mut previous, mut at) = (core::ptr::null_mut::<Thread>(), list.first);
    // SAFETY: Queued threads are alive, and the lock is held.
    while let Some(thread) = unsafe { at.as_ref() } {
        let next = thread.next.load(Ordering::Relaxed);
        let own = from == cpu;
        // Acquire: pairs with the release in `sched::switched`; the stack is complete.
        let free = !thread.on_cpu.load(Ordering::Acquire);
        let allowed = thread.affinity.load(Ordering::Relaxed) & 1 << cpu != 0;
        let fits = if own {
            allowed || free
        } else {
            allowed && free
        };
        if fits && stop_machine::lets(thread) {
            // SAFETY: As above.
            match unsafe { previous.as_ref() } {
                None => list.first = next,
                Some(previous) => previous.next.store(next, Ordering::Relaxed),
            }
            if list.last == at {
                list.last = previous;
            }
            queue.length.fetch_sub(1, Ordering::Relaxed);
            if !allowed {
                return Some(Taken::Strays(thread));
            }
            thread.on_cpu.store(true, Ordering::Relaxed);
            thread.cpu.store(cpu, Ordering::Relaxed);
            return Some(Taken::Runs(thread));
        }
        (previous, at) = (at, next);
    }
    None
}

/// The next thread for a CPU: its own first, else one that waits elsewhere.
pub fn next(cpu: u32, cpus: u32) -> Option<&'static Thread> {
    while let Some(taken) = take(cpu, cpu) {
        match taken {
            Taken::Runs(thread) => return Some(thread),
            Taken::Strays(thread) => super::enqueue(thread),
        }
    }
    (1..cpus).find_map(|other| match take((cpu + other) % cpus, cpu) {
        Some(Taken::Runs(thread)) => Some(thread),
        _ => None,
    })
}
