//! Runs one program: in a child, which makes threads and children of its own as the program demands.
//!
//! Each process keeps the answers of its operations. In its last turn it writes them, and its final
//! state, into a pipe. The pipe reaches its end when all processes have ended.

use std::cell::UnsafeCell;
use std::fmt::{self, Write as _};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use super::files::Files;
use super::limits::give_up_locking;
use super::output::Output;
use super::process::OnLinux;
use super::seal::seal;
use super::threads;
use super::turns::{Pipes, pass, wait};
use crate::address::Scene;
use crate::conclude::conclude;
use crate::line::Line;
use crate::memory::Limited;
use crate::op::Actor;
use crate::program::{MOST_OPS, MOST_THREADS, Program};
use crate::schedule::{actor, turn};

/// Milliseconds without output after which a program counts as hung.
const PATIENCE: i32 = 60_000;
/// The status of a program that hung.
const HUNG: i32 = -1;

/// The answers of a process's operations.
struct Lines([UnsafeCell<Line>; MOST_OPS]);

// SAFETY: each line is written by one thread, the actor of its operation, and read after a later turn
// has begun.
unsafe impl Sync for Lines {}

static LINES: Lines = Lines([const { UnsafeCell::new(Line::new()) }; MOST_OPS]);

/// What every thread of a program's processes uses.
struct Shared {
    program: *const Program,
    heap: u64,
    pipes: Pipes,
    files: Files,
    /// The descriptor to which records are written.
    record: i32,
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());
/// The number of this process.
static PROCESS: AtomicU8 = AtomicU8::new(0);
/// The number of children that this process has made.
static CHILDREN: AtomicU64 = AtomicU64::new(0);

/// Runs a program to its end.
pub fn run(program: &Program, heap: u64, output: &mut Output) -> io::Result<()> {
    let record = pipe()?;
    let mut pipes = Pipes::default();
    let is_alone = !program.ops.iter().any(|op| op.forks().is_some());
    for (process, threads) in (0..).zip(&mut pipes.0) {
        for (thread, pair) in (0..).zip(threads) {
            let there =
                program.has_process(process) && program.has_thread(Actor { process, thread });
            // A single process receives no message from others.
            if !is_alone && there {
                *pair = pipe()?;
            }
        }
    }
    let files = if program.has_files() {
        Files::make()?
    } else {
        Files::NONE
    };
    // SAFETY: the executor has one thread; the child never returns from here.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        let mut shared = Shared {
            program,
            heap,
            pipes,
            files,
            record: record[1],
        };
        begin(&mut shared, record[0]);
    }
    for descriptor in pipes
        .0
        .into_iter()
        .flatten()
        .flatten()
        .filter(|&number| number > 2)
    {
        close(descriptor);
    }
    files.close();
    close(record[1]);
    // SAFETY: a number of a process; the child does the same, whichever runs first.
    unsafe { libc::setpgid(child, child) };
    let in_time = gather(record[0], output)?;
    close(record[0]);
    if !in_time {
        // SAFETY: the group is this program's.
        unsafe { libc::kill(-child, libc::SIGKILL) };
    }
    let mut status = 0;
    // SAFETY: waits for a child of ours.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    output.end(if in_time { status } else { HUNG })
}

/// Forwards the record until every writer has closed the pipe; returns whether that happens in time.
fn gather(from: i32, output: &mut Output) -> io::Result<bool> {
    let mut buffer = [0u8; 8192];
    loop {
        let mut asked = libc::pollfd {
            fd: from,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor, then a buffer of ours.
        let got = unsafe {
            if libc::poll(&raw mut asked, 1, PATIENCE) == 0 {
                return Ok(false);
            }
            libc::read(from, buffer.as_mut_ptr().cast(), buffer.len())
        };
        match got {
            0 => return Ok(true),
            1.. => output.piece(&buffer[..got as usize])?,
            _ => return Err(io::Error::last_os_error()),
        }
    }
}

/// Runs the first process of a program.
fn begin(shared: &mut Shared, read_end: i32) -> ! {
    close(read_end);
    // SAFETY: a group of its own, so that all of it can be killed together.
    unsafe { libc::setpgid(0, 0) };
    // SAFETY: the executor's program, which stays.
    let program = unsafe { &*shared.program };
    if program.scene == Scene::Huge {
        // SAFETY: a setting of this process, which some kernels do not have.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 0, 0, 0, 0) };
    }
    if program.scene == Scene::Sealed {
        seal(&program.scene.window(shared.heap));
    }
    if program.limits(Limited::Locked) {
        give_up_locking();
    }
    SHARED.store(shared, Ordering::Release);
    be(Actor::default(), 0)
}

/// Starts the other threads of a process and acts as its first, from an operation on.
fn be(me: Actor, from: usize) -> ! {
    PROCESS.store(me.process, Ordering::Relaxed);
    CHILDREN.store(0, Ordering::Relaxed);
    // SAFETY: set before, and never changed or freed.
    let shared = unsafe { &*SHARED.load(Ordering::Acquire) };
    // SAFETY: as above.
    let program = unsafe { &*shared.program };
    for thread in 1..MOST_THREADS as u8 {
        let actor = Actor {
            process: me.process,
            thread,
        };
        if program.has_thread(actor) && threads::start(me.process, thread, other).is_err() {
            end(98);
        }
    }
    act(shared, program, me, from);
    for _ in 0..CHILDREN.load(Ordering::Relaxed) {
        // SAFETY: waits for any child of ours.
        unsafe { libc::waitpid(-1, ptr::null_mut(), 0) };
    }
    end(0)
}

/// Runs another thread.
extern "C" fn other(thread: *mut libc::c_void) -> *mut libc::c_void {
    let me = Actor {
        process: PROCESS.load(Ordering::Relaxed),
        thread: thread.addr() as u8,
    };
    // SAFETY: as in `be`.
    let shared = unsafe { &*SHARED.load(Ordering::Acquire) };
    // SAFETY: as in `be`.
    act(shared, unsafe { &*shared.program }, me, 0);
    // The process ends with its first thread.
    loop {
        // SAFETY: waits.
        unsafe { libc::pause() };
    }
}

/// Runs an actor's operations from one on, each in its turn.
fn act(shared: &Shared, program: &Program, me: Actor, from: usize) {
    let mut on = OnLinux::new(shared.heap, program.scene, me.process != 0, shared.files);
    let mut waited_for = None;
    let mut number = from;
    while let Some(actor) = actor(program, number) {
        let this = number;
        number += 1;
        if actor != me {
            continue;
        }
        let turn = turn(program, this);
        if waited_for != Some(turn.start) {
            wait(program, &shared.pipes, me, turn);
            waited_for = Some(turn.start);
        }
        match program.ops.get(this) {
            None => report(shared, program, me, &mut on),
            Some(op) => {
                // SAFETY: this operation is the caller's.
                let line = unsafe { &mut *LINES.0[this].get() };
                line.clear();
                match op.forks() {
                    Some(child) => fork(child, this, line),
                    None => op.run(&mut on, line),
                }
            }
        }
        let mut rest = this + 1..turn.end;
        if !rest.any(|number| program.ops.get(number).is_some_and(|op| op.actor == me)) {
            pass(program, &shared.pipes, me, turn);
        }
    }
}

/// Makes a process, which continues behind this operation.
fn fork(child: u8, number: usize, line: &mut Line) {
    // SAFETY: the child continues with the calling thread alone, and starts its others itself.
    match unsafe { libc::fork() } {
        0 => be(
            Actor {
                process: child,
                thread: 0,
            },
            number + 1,
        ),
        ..0 => {
            // Other processes would wait for the child.
            end(97)
        }
        _ => {
            CHILDREN.fetch_add(1, Ordering::Relaxed);
            let _ = line.write_str("forked");
        }
    }
}

/// Writes the answers of this process's operations, and its present state.
fn report(shared: &Shared, program: &Program, me: Actor, on: &mut OnLinux) {
    let mut out = Writer {
        to: shared.record,
        bytes: [0; 4096],
        length: 0,
    };
    // SAFETY: the turns of this process' operations are over.
    let line = |number: usize| unsafe { *LINES.0[number].get() };
    let _ = conclude(program, me.process, &line, on, &mut out);
    out.flush();
}

/// Buffered output to a pipe.
struct Writer {
    to: i32,
    bytes: [u8; 4096],
    length: usize,
}

impl Writer {
    fn flush(&mut self) {
        let mut rest = &self.bytes[..self.length];
        while !rest.is_empty() {
            // SAFETY: bytes of ours.
            let done = unsafe { libc::write(self.to, rest.as_ptr().cast(), rest.len()) };
            if done <= 0 {
                end(96);
            }
            rest = &rest[done as usize..];
        }
        self.length = 0;
    }
}

impl fmt::Write for Writer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.length == self.bytes.len() {
                self.flush();
            }
            self.bytes[self.length] = byte;
            self.length += 1;
        }
        Ok(())
    }
}

fn pipe() -> io::Result<[i32; 2]> {
    let mut ends = [0; 2];
    // SAFETY: room for two numbers.
    match unsafe { libc::pipe(ends.as_mut_ptr()) } {
        0 => Ok(ends),
        _ => Err(io::Error::last_os_error()),
    }
}

fn close(descriptor: i32) {
    // SAFETY: a descriptor of ours that is not used any more.
    unsafe { libc::close(descriptor) };
}

fn end(status: i32) -> ! {
    // SAFETY: ends the process with all its threads.
    unsafe { libc::_exit(status) }
}
