//! `faultless-executor FILE digest|detail [swap]`: runs programs of memory operations on the kernel below
//! it. See `faultless_fuzz::executor`.
//!
//! Allocates from a static array only, so that only the programs map memory.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use faultless_fuzz::executor::{Mode, run};

const ROOM: usize = 1 << 20;

/// Allocates from a static array, and frees nothing: every allocation is permanent.
struct Bump {
    room: UnsafeCell<[u8; ROOM]>,
    used: AtomicUsize,
}

// SAFETY: an atomic counter hands out the pieces.
unsafe impl Sync for Bump {}

#[global_allocator]
static ALLOCATOR: Bump = Bump {
    room: UnsafeCell::new([0; ROOM]),
    used: AtomicUsize::new(0),
};

// SAFETY: pieces do not overlap, are aligned, and lie in the array.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let base = self.room.get() as usize;
        let whole = layout.size() + layout.align();
        let used = self.used.fetch_add(whole, Ordering::Relaxed);
        if used + whole > ROOM {
            return std::ptr::null_mut();
        }
        let start = (base + used).next_multiple_of(layout.align()) - base;
        // SAFETY: inside the array.
        unsafe { self.room.get().cast::<u8>().add(start) }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), mode, swap) = (arguments.next(), arguments.next(), arguments.next()) else {
        return refuse("usage: faultless-executor FILE digest|detail [swap]");
    };
    let mode = match mode.as_deref() {
        Some("digest") => Mode::Digest,
        Some("detail") => Mode::Detail,
        _ => return refuse("the second argument is 'digest' or 'detail'"),
    };
    let swaps = match swap.as_deref() {
        None => false,
        Some("swap") => true,
        Some(_) => return refuse("the third argument is 'swap', or missing"),
    };
    match run(&file, mode, swaps) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&error.to_string()),
    }
}

fn refuse(why: &str) -> ExitCode {
    eprintln!("faultless-executor: {why}");
    ExitCode::FAILURE
}
