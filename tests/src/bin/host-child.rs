//! Runs scripts of memory operations on the host's kernel, from standard input.
//!
//! `host-child WINDOW [sealed]`. Allocates from a static array only, so that
//! only the scripts map memory.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use faultless_tests::script::{Family, Limit, Memory, Op, PAGE, Remap, Signal, Window, run};

const HEAP: usize = 64 << 20;

/// Allocates from a static array; a script's allocations are freed when it ends.
struct Bump {
    heap: UnsafeCell<[u8; HEAP]>,
    used: AtomicUsize,
}

// SAFETY: the program has one thread.
unsafe impl Sync for Bump {}

#[global_allocator]
static HEAP_OF_OURS: Bump = Bump {
    heap: UnsafeCell::new([0; HEAP]),
    used: AtomicUsize::new(0),
};

// SAFETY: pieces do not overlap, are aligned, and lie in the array.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let base = self.heap.get() as usize;
        let used = self.used.load(Ordering::Relaxed);
        let start = (base + used).next_multiple_of(layout.align()) - base;
        if start + layout.size() > HEAP {
            return std::ptr::null_mut();
        }
        self.used.store(start + layout.size(), Ordering::Relaxed);
        // SAFETY: inside the array.
        unsafe { self.heap.get().cast::<u8>().add(start) }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

static TRAPPED: AtomicI32 = AtomicI32::new(0);
static TRAPPED_AT: AtomicU64 = AtomicU64::new(0);

/// Bytes of `mov rax, [rdi]` and `mov [rdi], rax`.
#[cfg(target_arch = "x86_64")]
const PROBES: [[u8; 3]; 2] = [[0x48, 0x8b, 0x07], [0x48, 0x89, 0x07]];
/// Bytes of `ldr x0, [x1]` and `str x0, [x1]`.
#[cfg(target_arch = "aarch64")]
const PROBES: [[u8; 4]; 2] = [[0x20, 0x00, 0x40, 0xf9], [0x20, 0x00, 0x00, 0xf9]];

/// Skips a probe at the program counter. Returns whether there is one.
///
/// # Safety
/// The context is that of a signal handler.
unsafe fn skip_probe(context: &mut libc::ucontext_t) -> bool {
    #[cfg(target_arch = "x86_64")]
    let at = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    #[cfg(target_arch = "aarch64")]
    let at = &mut context.uc_mcontext.pc;
    let probe = *at as usize as *const u8;
    *at += if cfg!(target_arch = "x86_64") { 3 } else { 4 };
    // SAFETY: the program counter points to code.
    let code = unsafe { std::slice::from_raw_parts(probe, PROBES[0].len()) };
    PROBES.iter().any(|probe| code == probe)
}

/// Notes the signal and continues behind the probe that received it.
extern "C" fn on_signal(number: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo and ucontext.
    unsafe {
        if !skip_probe(&mut *context.cast::<libc::ucontext_t>()) {
            libc::_exit(3);
        }
        let code = if number == libc::SIGSEGV {
            (*info).si_code
        } else {
            1000 + number
        };
        TRAPPED.store(code, Ordering::Relaxed);
        TRAPPED_AT.store((*info).si_addr() as u64, Ordering::Relaxed);
    }
}

/// Executes one of the two probes, and returns the loaded value.
fn probe(address: u64, store: Option<u64>) -> Result<u64, Signal> {
    TRAPPED.store(0, Ordering::Relaxed);
    let mut value = store.unwrap_or(0);
    // SAFETY: a script's window holds nothing of the program's; a fault is
    // skipped by the handler.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        match store {
            None => std::arch::asm!(
                "mov rax, [rdi]", in("rdi") address, inout("rax") value, options(nostack)
            ),
            Some(_) => std::arch::asm!(
                "mov [rdi], rax", in("rdi") address, in("rax") value, options(nostack)
            ),
        }
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        match store {
            None => std::arch::asm!(
                "ldr x0, [x1]", in("x1") address, inout("x0") value, options(nostack)
            ),
            Some(_) => std::arch::asm!(
                "str x0, [x1]", in("x1") address, in("x0") value, options(nostack)
            ),
        }
    }
    match TRAPPED.load(Ordering::Relaxed) {
        0 => Ok(value),
        code => Err((code, TRAPPED_AT.load(Ordering::Relaxed))),
    }
}

struct OnHost {
    brk: u64,
    /// Whether a limit applies to mappings. `limited`: whether one applies to mappings or to locked memory.
    limits_maps: bool,
    limited: bool,
}

impl OnHost {
    /// Whether nothing is mapped from `start` to `end`, and whether adjacent mappings there have the same
    /// protection, which the kernel does not merge after an `mmap` has failed at a limit.
    fn look(&mut self, start: u64, end: u64) -> (bool, bool) {
        let (mut is_vacant, mut has_joints, mut last) = (true, false, (0, 0));
        self.maps(&mut |at, stop, prot| {
            if at < end && start < stop {
                is_vacant = false;
                has_joints |= last == (at, prot);
                last = (stop, prot);
            }
        });
        (is_vacant, has_joints)
    }
}

fn call(number: i64, a: u64, b: u64, c: u64, flags: u64) -> Result<u64, i32> {
    // SAFETY: scripts stay in their window, which holds nothing of the program's.
    let result = unsafe { libc::syscall(number, a, b, c, flags, -1i64, 0) };
    if result == -1 {
        Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    } else {
        Ok(result as u64)
    }
}

impl Memory for OnHost {
    fn mmap(&mut self, address: u64, length: u64, prot: u32, flags: u32) -> Result<u64, i32> {
        call(libc::SYS_mmap, address, length, prot.into(), flags.into())
    }
    fn munmap(&mut self, address: u64, length: u64) -> Result<(), i32> {
        call(libc::SYS_munmap, address, length, 0, 0).map(drop)
    }
    fn mprotect(&mut self, address: u64, length: u64, prot: u32) -> Option<Result<(), i32>> {
        let end = address.saturating_add(length);
        if self.limits_maps && self.look(address, end).1 {
            return None;
        }
        Some(call(libc::SYS_mprotect, address, length, prot.into(), 0).map(drop))
    }
    fn madvise(&mut self, address: u64, length: u64, advice: i32) -> Result<(), i32> {
        call(libc::SYS_madvise, address, length, advice as u64, 0).map(drop)
    }
    fn mremap(&mut self, call: Remap) -> Option<Result<u64, i32>> {
        let end = call.old.saturating_add(call.old_length);
        let mut is_one = false;
        self.maps(&mut |start, stop, _| {
            is_one |= (start..stop).contains(&call.old) && end.next_multiple_of(PAGE) <= stop;
        });
        // Linux checks the source sooner or later, depending on the version, and compares lengths
        // in bytes (6.12) or in whole pages (6.17).
        let dont_unmap = call.flags & libc::MREMAP_DONTUNMAP as u32 != 0;
        let is_unclear = dont_unmap && call.old_length != call.length;
        // 6.12 checks limits after it unmaps the target, 6.17 before.
        let fixed = call.flags & libc::MREMAP_FIXED as u32 != 0;
        let (is_vacant, _) = self.look(call.to, call.to.saturating_add(call.length));
        let is_unclear = is_unclear || self.limited && fixed && !is_vacant;
        if !is_one || call.old_length == 0 || is_unclear {
            return None;
        }
        let Remap {
            old,
            old_length,
            length,
            flags,
            to,
        } = call;
        // SAFETY: as for `call`.
        let at = unsafe { libc::syscall(libc::SYS_mremap, old, old_length, length, flags, to) };
        Some(if at == -1 {
            Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
        } else {
            Ok(at as u64)
        })
    }
    fn mincore(&mut self, address: u64, length: u64) -> Result<Vec<u8>, i32> {
        // For greater lengths the call fails anyway.
        let mut there = vec![0; length.div_ceil(PAGE).min(1 << 20) as usize];
        let to = there.as_mut_ptr() as u64;
        call(libc::SYS_mincore, address, length, to, 0)?;
        Ok(there)
    }
    fn mseal(&mut self, address: u64, length: u64) -> Result<(), i32> {
        call(libc::SYS_mseal, address, length, 0, 0).map(drop)
    }
    fn brk(&mut self, address: u64) -> u64 {
        call(libc::SYS_brk, address, 0, 0, 0).unwrap_or(0)
    }
    fn mlock(&mut self, address: u64, length: u64, flags: u32) -> Result<(), i32> {
        call(libc::SYS_mlock2, address, length, flags.into(), 0).map(drop)
    }
    fn munlock(&mut self, address: u64, length: u64) -> Result<(), i32> {
        call(libc::SYS_munlock, address, length, 0, 0).map(drop)
    }
    fn mlockall(&mut self, flags: u32) -> Result<(), i32> {
        call(libc::SYS_mlockall, flags.into(), 0, 0, 0).map(drop)
    }
    fn munlockall(&mut self) {
        let _ = call(libc::SYS_munlockall, 0, 0, 0, 0);
    }
    fn limit(&mut self, limit: Limit) {
        let [mapped, data, ..] = self.totals();
        let (which, pages) = match limit {
            Limit::Mapped(more) => (libc::RLIMIT_AS, mapped.saturating_add(more)),
            Limit::Data(more) => (libc::RLIMIT_DATA, data.saturating_add(more)),
            Limit::Stack(pages) => (libc::RLIMIT_STACK, pages),
            Limit::Locked(pages) => (libc::RLIMIT_MEMLOCK, pages),
        };
        self.limits_maps |= matches!(limit, Limit::Mapped(_) | Limit::Data(_));
        self.limited |= !matches!(limit, Limit::Stack(_));
        // SAFETY: reads into, and writes from, a structure of ours.
        unsafe {
            let mut both: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(which, &raw mut both);
            both.rlim_cur = pages.saturating_mul(PAGE).min(both.rlim_max);
            libc::setrlimit(which, &raw const both);
        }
    }
    fn totals(&mut self) -> [u64; 4] {
        let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        ["VmSize:", "VmData:", "VmStk:", "VmLck:"].map(|name| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            number.unwrap_or(0) * 1024 / PAGE
        })
    }
    fn load(&mut self, address: u64) -> Result<u64, Signal> {
        probe(address, None)
    }
    fn store(&mut self, address: u64, value: u64) -> Result<(), Signal> {
        probe(address, Some(value)).map(drop)
    }
    fn maps(&mut self, show: &mut dyn FnMut(u64, u64, u32)) {
        let text = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(range), Some(prot)) = (words.next(), words.next()) else {
                continue;
            };
            let Some((start, end)) = range.split_once('-') else {
                continue;
            };
            let bit = |letter, bit| if prot.contains(letter) { bit } else { 0 };
            let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
            show(
                number(start),
                number(end),
                bit('r', 1) | bit('w', 2) | bit('x', 4),
            );
        }
    }

    /// The child's lines go to the same standard output, each written as a whole.
    fn fork(&mut self, family: &Family<'_>, answer: &mut dyn FnMut(String)) {
        let mut pipe = [0; 2];
        // SAFETY: the program has one thread; the child runs its script, in memory
        // of its own, and ends without returning from here.
        let child = unsafe {
            libc::pipe(pipe.as_mut_ptr());
            libc::fork()
        };
        if child == 0 {
            // SAFETY: as above.
            unsafe { libc::close(pipe[1]) };
            wait_for(pipe[0]);
            run(self, family.window, family.child, answer);
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        family.run(self, answer, |_, answer| {
            let mut status = -1;
            // SAFETY: descriptors and a process of ours. The child starts at the pipe's end.
            unsafe {
                libc::close(pipe[1]);
                libc::close(pipe[0]);
                libc::waitpid(child, &mut status, 0);
            }
            if status != 0 {
                answer(format!("the child ended with {status}"));
            }
        });
    }
}

/// Waits for the other end of a pipe: for a byte, or for the close.
fn wait_for(pipe: i32) {
    let mut byte = 0u8;
    // SAFETY: reads into a byte of ours.
    unsafe { libc::read(pipe, (&raw mut byte).cast(), 1) };
}

/// Maps all free memory below the stack but the window.
fn seal(on: &mut OnHost, window: &Window) {
    let mut used = vec![(window.start, window.end)];
    on.maps(&mut |start, end, _| used.push((start, end)));
    used.sort_unstable();
    // The main thread's stack is on top; leave it room to grow.
    let stack = std::ptr::from_ref(&used) as u64 - (16 << 20);
    let mut at = 1 << 16;
    for (start, end) in used {
        let start = start.min(stack);
        if start > at {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let _ = on.mmap(
                at,
                start - at,
                0,
                (flags | libc::MAP_FIXED_NOREPLACE) as u32,
            );
        }
        at = at.max(end);
    }
}

/// Gives up the capability to lock more memory than the limit, and raises the limit as far as possible. Returns
/// the limit.
fn limit_locks() -> u64 {
    const CAP_IPC_LOCK: u32 = 14;
    // Version 3: two words each of the effective, permitted and inheritable sets.
    let header: [u32; 2] = [0x2008_0522, 0];
    let mut rights = [[0u32; 3]; 2];
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: structures of ours.
    unsafe {
        libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit);
        libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit);
        libc::syscall(libc::SYS_capget, header.as_ptr(), rights.as_mut_ptr());
        rights[0][0] &= !(1 << CAP_IPC_LOCK);
        libc::syscall(libc::SYS_capset, header.as_ptr(), rights.as_ptr());
    }
    limit.rlim_cur
}

/// Grows the stack now, so that it does not grow while a script runs.
#[inline(never)]
fn grow_stack() {
    std::hint::black_box([0u8; 1 << 20]);
}

fn main() {
    grow_stack();
    let mut arguments = std::env::args().skip(1);
    let window = arguments.next().and_then(|text| Window::parse(&text));
    let Some(window) = window else {
        std::process::exit(2);
    };
    // SAFETY: a handler that touches only statics and its context; a prctl
    // about this process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
    }
    let mut on = OnHost {
        brk: 0,
        limits_maps: false,
        limited: false,
    };
    on.brk = on.brk(0);
    if arguments.next().is_some() {
        seal(&mut on, &window);
    }
    // SAFETY: plain numbers from the C library.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) } as u64;
    let mut out = std::io::stdout().lock();
    let locks = limit_locks();
    let _ = writeln!(out, "{:x} {pages:x} {locks:x}", on.brk);
    let mut input = std::io::stdin().lock();
    let mut script = Vec::with_capacity(1024);
    let mut line = String::with_capacity(1024);
    let mut start = None;
    while input.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        // From here on no allocation outlives its script.
        let start = *start.get_or_insert_with(|| HEAP_OF_OURS.used.load(Ordering::Relaxed));
        let op = Op::parse(&line);
        line.clear();
        if let Some(op) = op {
            script.push(op);
            continue;
        }
        let none = u64::MAX;
        for limit in [
            Limit::Mapped(none),
            Limit::Data(none),
            Limit::Stack(2048),
            Limit::Locked(none),
        ] {
            on.limit(limit);
        }
        (on.limits_maps, on.limited) = (false, false);
        on.munlockall();
        let _ = on.munmap(window.start, window.end - window.start);
        let first = on.brk;
        on.brk(first);
        run(&mut on, &window, &script, &mut |line| {
            let _ = writeln!(out, "{line}");
        });
        let _ = writeln!(out, "end");
        let _ = out.flush();
        script.clear();
        HEAP_OF_OURS.used.store(start, Ordering::Relaxed);
    }
    const { assert!(PAGE == 4096) };
}
