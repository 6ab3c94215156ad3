//! Waiting for turns and ending them: by a futex between threads, by a pipe between
//! processes.
//!
//! Every actor knows the whole program, so the only message is "now".

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::op::Actor;
use crate::program::{MOST_PROCESSES, MOST_THREADS, Program};
use crate::schedule::{Turn, actor};

/// The present turn, as far as this process knows.
static NOW: AtomicU32 = AtomicU32::new(0);
/// How many actors of a side-by-side turn have ended.
static ENDED: AtomicU32 = AtomicU32::new(0);

/// A pipe to each actor: several threads of a process may wait for other processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pipes(pub [[[i32; 2]; MOST_THREADS]; MOST_PROCESSES]);

impl Pipes {
    fn to(&self, actor: Actor) -> [i32; 2] {
        self.0[usize::from(actor.process)][usize::from(actor.thread)]
    }
}

/// Waits until a turn begins.
pub fn wait(program: &Program, pipes: &Pipes, me: Actor, turn: Turn) {
    let before = turn.start.checked_sub(1).and_then(|n| actor(program, n));
    let comes_from_elsewhere = before.is_some_and(|before| before.process != me.process);
    if comes_from_elsewhere && actor(program, turn.start) == Some(me) {
        let mut byte = 0u8;
        let [pipe, _] = pipes.to(me);
        // SAFETY: reads into a byte of ours. Nothing interrupts it.
        unsafe { libc::read(pipe, (&raw mut byte).cast(), 1) };
        begin(turn.start);
        return;
    }
    loop {
        let now = NOW.load(Ordering::Acquire);
        if now as usize >= turn.start {
            return;
        }
        // SAFETY: waits for a word of ours to be another one.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                NOW.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                now,
                ptr::null::<libc::timespec>(),
            )
        };
    }
}

/// Ends the caller's part of a turn; the last actor starts the next one.
pub fn pass(program: &Program, pipes: &Pipes, me: Actor, turn: Turn) {
    if turn.actors > 1 {
        if ENDED.fetch_add(1, Ordering::AcqRel) + 1 < turn.actors as u32 {
            return;
        }
        ENDED.store(0, Ordering::Relaxed);
    }
    let Some(next) = actor(program, turn.end) else {
        return;
    };
    if next.process == me.process {
        begin(turn.end);
        return;
    }
    let [_, pipe] = pipes.to(next);
    // SAFETY: writes a byte of ours.
    unsafe { libc::write(pipe, [1u8].as_ptr().cast(), 1) };
}

/// Publishes the present turn to the threads of this process.
fn begin(number: usize) {
    NOW.store(number as u32, Ordering::Release);
    // SAFETY: wakes waiters on a word of ours.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            NOW.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            i32::MAX,
        )
    };
}
