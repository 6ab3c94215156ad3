//! A CPU's tracer: what it records, and into which memory.
//!
//! A tracer is off and has no memory until a run asks for it. The run's setup gives each CPU's tracer its
//! memory once and then turns it on. From then on, only the CPU writes what it records.
//!
//! *Writes*: the number of tracers that are on, when one is turned on or off; every event reads it. The rest
//! of a tracer is read only while some tracer is on.

use core::ptr::null_mut;
use core::slice;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use faultless_sync::atomic::Local;

use crate::detour::Detours;
use crate::event::Event;
use crate::kind::Mask;
use crate::latency::Latencies;
use crate::ring::Ring;

/// The number of tracers that are on, over all machines. Events check it first, because a static needs no
/// lookup.
static ON: AtomicU64 = AtomicU64::new(0);

/// One CPU's recorder of events and latencies.
#[derive(Debug)]
pub struct Tracer {
    on: AtomicU64,
    /// The memory's first word, and the number of its words. Latency tables come first.
    memory: AtomicPtr<Local>,
    length: AtomicU64,
}

impl Default for Tracer {
    fn default() -> Self {
        Self::new()
    }
}

impl Tracer {
    /// Returns a tracer that is off and has no memory.
    pub const fn new() -> Self {
        Self {
            on: AtomicU64::new(0),
            memory: AtomicPtr::new(null_mut()),
            length: AtomicU64::new(0),
        }
    }

    /// Returns the number of words that a CPU needs to record latencies and this many events.
    pub const fn words(events: usize) -> usize {
        let ring = match events {
            0 => 0,
            _ => crate::HEADER + events * crate::WORDS,
        };
        Latencies::WORDS + ring
    }

    /// Gives the tracer its memory, all zero, and turns it on for what `mask` contains. Called once, before
    /// the CPU has anything to record. Latency tables come first, then the ring.
    pub fn begin(&self, memory: &'static [Local], mask: Mask) {
        self.memory
            .store(memory.as_ptr().cast_mut(), Ordering::Relaxed);
        self.length.store(memory.len() as u64, Ordering::Relaxed);
        // Release: pairs with the acquire in `mask`. A CPU that sees the tracer on sees the memory.
        if self.on.swap(mask.bits(), Ordering::Release) == 0 && mask != Mask::NONE {
            ON.fetch_add(1, Ordering::Relaxed);
            Detours::add();
        }
    }

    /// Stops recording; what was recorded stays.
    pub fn end(&self) {
        if self.on.swap(0, Ordering::Relaxed) != 0 {
            ON.fetch_sub(1, Ordering::Relaxed);
            Detours::remove();
        }
    }

    /// Whether any tracer may be on: the only branch on the path of untraced operations.
    #[inline(always)]
    pub fn any_is_on() -> bool {
        cfg!(feature = "events") && ON.load(Ordering::Relaxed) != 0
    }

    /// Whether anything is recorded.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        cfg!(feature = "events") && self.on.load(Ordering::Relaxed) != 0
    }

    /// Returns what is recorded.
    pub fn mask(&self) -> Mask {
        Mask::from_bits(self.on.load(Ordering::Acquire))
    }

    /// Records an event if its kind is enabled, on the tracer's CPU.
    #[cold]
    pub fn record(&self, event: Event) {
        let mask = self.mask();
        if mask.has_latencies() {
            self.latencies().note(&event);
        }
        if mask.has(event.kind) {
            self.ring().put(event);
        }
    }

    /// Returns the ring of events, which has no room if the tracer has no memory.
    pub fn ring(&self) -> Ring {
        Ring::new(self.memory().get(Latencies::WORDS..).unwrap_or(&[]))
    }

    /// Returns the latency tables.
    pub fn latencies(&self) -> Latencies {
        Latencies::new(self.memory())
    }

    fn memory(&self) -> &'static [Local] {
        let start = self.memory.load(Ordering::Relaxed);
        if start.is_null() {
            return &[];
        }
        // SAFETY: `begin` stored the parts of one static slice, and nothing stores others.
        unsafe { slice::from_raw_parts(start, self.length.load(Ordering::Relaxed) as usize) }
    }
}
