//! Runs programs on the kernel that it runs on.
//!
//! `faultless-executor FILE digest|detail`: FILE holds encoded programs. Each runs in a child
//! process, which starts with nothing in the programs' part of the address space. The record of a
//! program is text; of each program a line with its hash is printed, or the whole text.
//!
//! Nothing is allocated once a program runs: what it does to its memory shall not depend on what a
//! library does to it.

mod counted;
mod dirty;
mod family;
mod files;
mod input;
mod limits;
mod maps;
mod output;
mod probe;
mod process;
mod seal;
mod threads;
mod turns;

use std::io;

use crate::address::{PAGE, Scene};
use crate::memory::MOST_LOCKED;
use crate::program::{MOST_OPS, Program};
use input::Input;
use output::Output;
pub use output::hash_of;

/// What is printed of each program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A hash of its record.
    Digest,
    /// Its record.
    Detail,
}

impl Mode {
    /// Its name on the executor's command line.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Digest => "digest",
            Mode::Detail => "detail",
        }
    }
}

/// Bytes that a stack may grow to, and that may be locked, on every system alike.
const LIMITS: [(u32, u64); 3] = [
    (libc::RLIMIT_STACK, 8 << 20),
    (libc::RLIMIT_MEMLOCK, MOST_LOCKED),
    (libc::RLIMIT_CORE, 0),
];

/// Runs every program of a file, in order.
///
/// # Errors
/// When the file cannot be read, or processes or pipes cannot be made.
pub fn run(file: &str, mode: Mode) -> io::Result<()> {
    let mut input = Input::open(file)?;
    let mut output = Output::new(mode);
    probe::install();
    prepare();
    let mut program = Program {
        scene: Scene::Open,
        ops: Vec::with_capacity(MOST_OPS),
    };
    let heap = begin_heap();
    while input.next(&mut program)? {
        family::run(&program, heap, &mut output)?;
    }
    output.finish()
}

/// The same surroundings everywhere.
fn prepare() {
    for (resource, most) in LIMITS {
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: a limit of this process. Whoever may not raise the hard one has a lower one.
        unsafe { libc::setrlimit(resource, &raw const limit) };
    }
    grow_stack();
    // SAFETY: a setting of this process, which some kernels do not have.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

/// Uses more of the stack than programs need: later it may not be allowed to grow.
#[inline(never)]
fn grow_stack() {
    std::hint::black_box(&mut [0u8; 256 << 10]);
}

/// The end of the heap, moved up to a page's end: programs begin there.
fn begin_heap() -> u64 {
    // SAFETY: asks, and then takes more.
    unsafe {
        let end = (libc::syscall(libc::SYS_brk, 0) as u64).next_multiple_of(PAGE);
        libc::syscall(libc::SYS_brk, end) as u64
    }
}
