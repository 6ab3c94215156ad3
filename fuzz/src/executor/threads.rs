//! Threads on stacks of our own: a thread library would map memory for some.

use std::cell::UnsafeCell;
use std::io;
use std::ptr;

use crate::program::{MOST_PROCESSES, MOST_THREADS};

const STACK: usize = 128 << 10;

#[repr(align(4096))]
struct Stacks(UnsafeCell<[[[u8; STACK]; MOST_THREADS]; MOST_PROCESSES]>);

// SAFETY: each stack is one thread's.
unsafe impl Sync for Stacks {}

/// A stack for each thread of each process: a child continues on the stack of the thread that forked.
static STACKS: Stacks = Stacks(UnsafeCell::new(
    [[[0; STACK]; MOST_THREADS]; MOST_PROCESSES],
));

/// Starts a thread of the present process, which never ends by itself.
pub fn start(
    process: u8,
    thread: u8,
    run: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
) -> io::Result<()> {
    // SAFETY: the attributes are initialised before they are used; the stack is this thread's alone.
    let error = unsafe {
        let stacks = STACKS.0.get().cast::<[u8; STACK]>();
        let stack = stacks.add(usize::from(process) * MOST_THREADS + usize::from(thread));
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setstack(&raw mut attributes, stack.cast(), STACK);
        let mut id: libc::pthread_t = std::mem::zeroed();
        let argument = ptr::without_provenance_mut(usize::from(thread));
        libc::pthread_create(&raw mut id, &raw const attributes, run, argument)
    };
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
