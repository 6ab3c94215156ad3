//! Services of the host: memory, futexes, `membarrier`, and thread names.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use faultless_trace::Switch;

/// Reserves anonymous memory of the host, which is backed when it is touched and never freed.
pub fn reserve(bytes: usize) -> std::io::Result<NonNull<u8>> {
    // SAFETY: a new anonymous mapping; no existing memory is touched.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    // Small host pages: the cost of a frame must not depend on what the host happens to have merged. The host
    // may refuse the advice.
    // SAFETY: the range was mapped just now.
    unsafe { libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) };
    NonNull::new(at.cast()).ok_or_else(|| std::io::Error::other("memory at address 0"))
}

/// Sleeps while the word holds `expected`, at most 100 ms.
pub fn futex_wait(word: *const u32, expected: u32) {
    let timeout = libc::timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    // SAFETY: the word is a live atomic; the kernel only compares it.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            &timeout,
        );
    }
}

/// Wakes up to `count` sleepers.
pub fn futex_wake(word: *const u32, count: u32) {
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    // SAFETY: the word is a live atomic, used as an address only.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            count,
        );
    }
}

/// Whether [`barrier_everywhere`] is available: the host's kernel can make
/// every running thread of the process execute a full barrier.
pub fn has_membarrier() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        // SAFETY: no memory is passed.
        unsafe {
            libc::syscall(
                libc::SYS_membarrier,
                libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
                0,
                0,
            ) == 0
        }
    })
}

/// Executes a full barrier on every thread of the process, wherever it is.
pub fn barrier_everywhere() {
    // SAFETY: no memory is passed.
    unsafe {
        libc::syscall(
            libc::SYS_membarrier,
            libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED,
            0,
            0,
        )
    };
}

/// The process id that is reported for all threads.
const PROCESS: u32 = 100;

/// Returns the calling thread for a tracer. Threads are numbered in the order of their first call.
pub fn this_thread() -> Switch {
    static NEXT: AtomicU32 = AtomicU32::new(PROCESS);
    thread_local! {
        static NUMBER: Cell<u32> = const { Cell::new(0) };
    }
    if NUMBER.get() == 0 {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    let mut name = [0; 16];
    let thread = std::thread::current();
    let known = thread.name().unwrap_or("thread").as_bytes();
    // The last byte stays 0.
    let length = known.len().min(15);
    name[..length].copy_from_slice(&known[..length]);
    Switch {
        process: PROCESS,
        thread: NUMBER.get(),
        name,
    }
}
