//! Runs programs on the kernel below it.
//!
//! `faultless-executor FILE digest|detail [swap]`: FILE holds encoded programs. Each runs in a child
//! process, which starts with no mappings in the programs' part of the address space. The record of a
//! program is text; for each program a line with its hash is printed, or the whole text.
//!
//! Nothing is allocated while a program runs: the program's memory must not depend on a library's
//! allocations.

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
mod swap;
mod threads;
mod turns;

use std::io;

use crate::address::{PAGE, Scene};
use crate::memory::MOST_LOCKED;
use crate::program::{MOST_OPS, Program};
use input::Input;
use output::Output;
pub use output::{SWAPPED_IN, hash_of};

/// What is printed for each program.
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

/// The limits of stacks and of locked memory, in bytes, the same on every system.
const LIMITS: [(u32, u64); 3] = [
    (libc::RLIMIT_STACK, 8 << 20),
    (libc::RLIMIT_MEMLOCK, MOST_LOCKED),
    (libc::RLIMIT_CORE, 0),
];

/// Runs every program of a file, in order. With `swaps` programs may end the use of the system's swap device.
///
/// # Errors
/// When the file cannot be read, or processes or pipes cannot be made.
pub fn run(file: &str, mode: Mode, swaps: bool) -> io::Result<()> {
    let mut input = Input::open(file)?;
    let mut output = Output::new(mode);
    probe::install();
    prepare();
    let mut program = Program {
        scene: Scene::Open,
        ops: Vec::with_capacity(MOST_OPS),
    };
    let heap = begin_heap();
    let mut swapped_in = None;
    if swaps {
        swap::find()?;
        swapped_in = swap::swapped_in();
    }
    while input.next(&mut program)? {
        family::run(&program, heap, &mut output)?;
        swap::begin_again()?;
    }
    output.finish(swapped_in.and_then(|before| Some(swap::swapped_in()? - before)))
}

/// Sets up the same environment on every system.
fn prepare() {
    for (resource, most) in LIMITS {
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: a limit of this process. Without the right to raise the hard limit the call fails.
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

/// Moves the end of the heap up to the end of its page, where programs begin.
fn begin_heap() -> u64 {
    // SAFETY: reads the end of the heap, and then raises it.
    unsafe {
        let end = (libc::syscall(libc::SYS_brk, 0) as u64).next_multiple_of(PAGE);
        libc::syscall(libc::SYS_brk, end) as u64
    }
}
