//! Flushes of translations, on this CPU and on others (shootdowns).
//!
//! Each CPU has a mailbox: ranges under a short lock, and two counters. A CPU that requests a flush adds its
//! range, which merges with ranges that it meets, and takes the next number of `requested`. It interrupts the
//! owner unless an interrupt is on its way, and waits until `done` reaches that number. The owner empties the
//! box in its interrupt or in any wait loop (`poll`), flushes, and only then advances `done`. So a CPU that
//! waits with interrupts off still answers, and two CPUs that flush each other both proceed.
//!
//! A CPU in the kernel uses no translation of user memory until it returns to user mode or begins a user
//! access. Before either it sets `uses_user` and empties its box. A requester that finds the flag clear
//! leaves the range in the box, and neither interrupts nor waits. The exception is a flush before tables are
//! freed: hardware may walk tables at any time.
//!
//! A CPU is in the space's CPU set before it uses the root, and leaves it once it has dropped the translations: on
//! x86-64 when it leaves the space, on AArch64 when the space ends. So a CPU outside the set caches no translation of
//! the space (rule R2).

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use faultless_paging::{Flush, Requests, SpaceId};
use faultless_sync::CpuSet;
use faultless_trace::{Counter, Kind};

use super::interrupts::{self, Kind as InterruptKind};
use super::percpu;
use super::tlb::{self, MAX_SINGLE};
use crate::{memory, trace};

/// The ranges that a CPU was asked to flush, of all spaces together: a page too many is harmless. If a range
/// does not fit, all ranges together have more than `MAX_SINGLE` pages.
type Asked = Requests<(), { MAX_SINGLE as usize }>;

struct Ranges {
    asked: Asked,
    /// An interrupt is on its way to the owner.
    interrupted: bool,
}

/// Flush requests of other CPUs to this one.
pub struct Mailbox {
    requested: AtomicU64,
    done: AtomicU64,
    /// Whether the owner may be using translations of user memory. Written by the owner only.
    uses_user: AtomicU32,
    ranges: NoPoll,
}

/// Offsets for assembly.
pub const REQUESTED: usize = offset_of!(Mailbox, requested);
pub const DONE: usize = offset_of!(Mailbox, done);
pub const USES_USER: usize = offset_of!(Mailbox, uses_user);

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Requested {
    /// The owner flushes before it uses user memory again: nothing to wait for.
    Deferred,
    /// An interrupt is on its way already: wait.
    Wait,
    /// Interrupt the owner, and wait.
    Interrupt,
}

/// The mailbox's lock, which does not poll while it waits: `poll` itself takes it. It is held for a few
/// instructions, and never by a holder that waits.
struct NoPoll {
    locked: core::sync::atomic::AtomicBool,
    value: core::cell::UnsafeCell<Ranges>,
}

// SAFETY: `with` lets one CPU at a time reach the value.
unsafe impl Sync for NoPoll {}

impl NoPoll {
    fn with<R>(&self, f: impl FnOnce(&mut Ranges) -> R) -> R {
        while self.locked.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        // SAFETY: The lock is held, and `f` cannot reach it again.
        let result = f(unsafe { &mut *self.value.get() });
        self.locked.store(false, Ordering::Release);
        result
    }
}

impl Mailbox {
    pub const fn new() -> Self {
        Self {
            requested: AtomicU64::new(0),
            done: AtomicU64::new(0),
            uses_user: AtomicU32::new(0),
            ranges: NoPoll {
                locked: core::sync::atomic::AtomicBool::new(false),
                value: core::cell::UnsafeCell::new(Ranges {
                    asked: Asked::new(()),
                    interrupted: false,
                }),
            },
        }
    }

    /// Adds a range; the owner may flush it later if it `may_defer`. Returns the request's number and
    /// outcome.
    fn request(&self, start: u64, end: u64, may_defer: bool) -> (u64, Requested) {
        self.ranges.with(|ranges| {
            if start == end {
                // A barrier: nothing to flush.
            } else if end == u64::MAX {
                ranges.asked.add_everything();
            } else {
                ranges.asked.add((), start..end);
            }
            let number = self.requested.fetch_add(1, Ordering::SeqCst) + 1;
            // The increment is a full barrier. Partner: the exchange that sets the flag, after which the
            // owner reads `requested`. Either the owner sees this request, or this CPU sees the flag.
            let requested = if may_defer && self.uses_user.load(Ordering::SeqCst) == 0 {
                Requested::Deferred
            } else if ranges.interrupted {
                Requested::Wait
            } else {
                ranges.interrupted = true;
                Requested::Interrupt
            };
            (number, requested)
        })
    }

    /// Empties the box; returns the number reached and the requested ranges.
    fn take(&self) -> (u64, Asked) {
        self.ranges.with(|ranges| {
            let asked = ranges.asked;
            ranges.asked.clear();
            ranges.interrupted = false;
            (self.requested.load(Ordering::Relaxed), asked)
        })
    }
}

/// Answers what other CPUs asked of this one.
#[inline]
pub fn poll() {
    let mailbox = &percpu::this().mailbox;
    if mailbox.requested.load(Ordering::Relaxed) != mailbox.done.load(Ordering::Relaxed) {
        answer(mailbox);
    }
}

#[cold]
fn answer(mailbox: &Mailbox) {
    let start = trace::start();
    let (number, asked) = mailbox.take();
    let count = |counter| memory::count(counter, 1);
    count(Counter::TlbRemoteFlushReceived);
    if asked.is_everything() || asked.pages(()) > MAX_SINGLE {
        tlb::flush_everything();
    } else {
        asked
            .of(())
            .for_each(|range| tlb::flush_pages(range.start, range.end));
    }
    let before = mailbox.done.load(Ordering::Relaxed);
    mailbox.done.store(number, Ordering::Release);
    trace::end(Kind::ShootdownReceived, start, before, number);
}

/// Answers requests on the return to user mode; the entry code has set `uses_user` before.
pub extern "C" fn poll_before_user() {
    poll();
}

/// Runs `f`, which uses user memory, after all requested flushes.
///
/// A page fault inside `f` may sleep, and returns through [`uses_user`].
#[inline]
pub fn with_user<R>(f: impl FnOnce() -> R) -> R {
    uses_user();
    let result = f();
    percpu::this().mailbox.uses_user.store(0, Ordering::Release);
    result
}

/// From here on this CPU may use translations of user memory: sets the flag and answers requests.
#[inline]
pub fn uses_user() {
    let mailbox = &percpu::this().mailbox;
    mailbox.uses_user.swap(1, Ordering::SeqCst);
    // Partner: `request`. The load is sequentially consistent, because no weaker one is ordered after the store
    // half of the exchange.
    if mailbox.requested.load(Ordering::SeqCst) != mailbox.done.load(Ordering::Relaxed) {
        answer(mailbox);
    }
}

/// Handles the interrupt that says that there are requests in the mailbox.
pub fn interrupt() {
    interrupts::add(InterruptKind::Flush);
    poll();
}

/// Flushes a range of a space on the CPUs of a set; see `faultless_paging::Tlb`.
pub fn flush(cpus: &CpuSet, space: SpaceId, flush: Flush) {
    // The entries were changed before this; the sets that CPUs join are read after.
    tlb::order_changes();
    let this = percpu::cpu_number();
    if cpus.iter().all(|cpu| cpu.0 == this) {
        flush_here(cpus, this, space, flush);
    } else if tlb::broadcasts() {
        tlb::flush_all_cpus(space, flush);
        memory::count(Counter::TlbRemoteFlush, 1);
    } else {
        flush_everywhere(cpus, this, space, flush);
    }
}

/// Whether a CPU flushes everything rather than page by page.
fn is_large(flush: Flush) -> bool {
    flush.end == u64::MAX || flush.pages() > MAX_SINGLE
}

fn flush_here(cpus: &CpuSet, this: u32, space: SpaceId, flush: Flush) {
    if !cpus.contains(faultless_sync::Cpu(this)) {
        return;
    }
    if is_large(flush) {
        memory::count(Counter::TlbLocalFlushAll, 1);
        tlb::flush_space(space);
    } else {
        memory::count(Counter::TlbLocalFlushOne, flush.pages());
        tlb::flush_range(space, flush);
    }
}

/// When it returns, every CPU of `cpus` has passed a full barrier since the call, or passes one before it
/// uses user memory again. With `serialise` each CPU is interrupted, wherever it is, and then executes only
/// instructions fetched after the call.
pub fn barrier(cpus: impl Iterator<Item = u32>, serialise: bool) {
    fence(Ordering::SeqCst);
    let this = percpu::cpu_number();
    let mut waits = [0u64; percpu::MAX_CPUS];
    for cpu in cpus.filter(|&cpu| cpu != this) {
        let (number, requested) = percpu::of(cpu).mailbox.request(0, 0, !serialise);
        if requested != Requested::Deferred {
            waits[cpu as usize] = number;
        }
        if requested == Requested::Interrupt {
            interrupts::send(cpu, InterruptKind::Flush);
        }
    }
    await_answers(&waits);
    fence(Ordering::SeqCst);
}

/// Waits until other CPUs have answered up to these numbers of requests.
fn await_answers(waits: &[u64; percpu::MAX_CPUS]) {
    let mut turn = 0u32;
    for (cpu, &number) in waits.iter().enumerate().take(percpu::count() as usize) {
        while percpu::of(cpu as u32).mailbox.done.load(Ordering::Acquire) < number {
            turn = turn.saturating_add(1);
            relax_for(turn);
        }
    }
}

/// Out of line, because clearing its array of all CPUs takes longer than flushing a page.
#[inline(never)]
fn flush_everywhere(cpus: &CpuSet, this: u32, space: SpaceId, flush: Flush) {
    let (start, end) = match is_large(flush) {
        true => (0, u64::MAX),
        false => (flush.start, flush.end),
    };
    let mut waits = [0u64; percpu::MAX_CPUS];
    for cpu in cpus.iter().map(|cpu| cpu.0).filter(|&cpu| cpu != this) {
        let mailbox = &percpu::of(cpu).mailbox;
        let (number, requested) = mailbox.request(start, end, !flush.tables);
        match requested {
            Requested::Deferred => memory::count(Counter::TlbRemoteFlushDeferred, 1),
            Requested::Wait => waits[cpu as usize] = number,
            Requested::Interrupt => {
                waits[cpu as usize] = number;
                interrupts::send(cpu, InterruptKind::Flush);
            }
        }
        trace::instant(Kind::ShootdownSent, u64::from(cpu), number);
    }
    flush_here(cpus, this, space, flush);
    memory::count(Counter::TlbRemoteFlush, 1);
    await_answers(&waits);
}

/// Turns of spinning before a waiter halts its CPU for a moment. The retry limit of a fault is higher.
const SPIN: u32 = 256;

/// One turn of a wait by the memory core, which holds none of the kernel's own locks.
///
/// Under an emulator the CPU waited for may not be running at all, and spinning keeps it from
/// running: a long wait naps instead.
#[inline]
pub fn relax_for(turn: u32) {
    relax();
    if turn > SPIN {
        crate::sched::timer::nap();
        poll();
    }
}

/// One turn of any wait loop.
#[inline]
pub fn relax() {
    poll();
    core::hint::spin_loop();
}
