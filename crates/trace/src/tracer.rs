//! A CPU's tracer: whether it records, and where to.
//!
//! It is off, and has no memory, until a run asks for it. Whoever sets the run up gives
//! each CPU's tracer its memory once and then turns it on; from then on the CPU alone
//! writes what it records.
//!
//! Lines: how many tracers are on is read by every event and written when one is turned on or
//! off; the rest of a tracer is read only while some tracer is on.

use core::ptr::null_mut;
use core::slice;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use faultless_sync::atomic::Local;

use crate::event::Event;
use crate::kind::Mask;
use crate::latency::Latencies;
use crate::ring::Ring;

/// How many tracers are on, of whatever machine: what is asked first, because its place needs no
/// finding.
static ON: AtomicU64 = AtomicU64::new(0);

/// One CPU's recorder of events and latencies.
#[derive(Debug)]
pub struct Tracer {
    on: AtomicU64,
    /// The memory's first word and how many there are; tables of latencies come first.
    memory: AtomicPtr<Local>,
    length: AtomicU64,
}

impl Default for Tracer {
    fn default() -> Self {
        Self::new()
    }
}

impl Tracer {
    /// A tracer without memory, off.
    pub const fn new() -> Self {
        Self {
            on: AtomicU64::new(0),
            memory: AtomicPtr::new(null_mut()),
            length: AtomicU64::new(0),
        }
    }

    /// Words that a CPU needs to record latencies, and so many events.
    pub const fn words(events: usize) -> usize {
        let ring = match events {
            0 => 0,
            _ => crate::HEADER + events * crate::WORDS,
        };
        Latencies::WORDS + ring
    }

    /// Gives it memory, all zero, and turns it on for what `mask` says; once, before the CPU has
    /// anything to record. Tables of latencies come first, the ring behind them.
    pub fn begin(&self, memory: &'static [Local], mask: Mask) {
        self.memory
            .store(memory.as_ptr().cast_mut(), Ordering::Relaxed);
        self.length.store(memory.len() as u64, Ordering::Relaxed);
        // Release; pairs with the acquire in `mask`: who sees it on sees the memory.
        if self.on.swap(mask.bits(), Ordering::Release) == 0 && mask != Mask::NONE {
            ON.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records nothing from now on; what was recorded stays.
    pub fn end(&self) {
        if self.on.swap(0, Ordering::Relaxed) != 0 {
            ON.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether any tracer may be on: the branch that everything pays.
    #[inline(always)]
    pub fn any_is_on() -> bool {
        cfg!(feature = "events") && ON.load(Ordering::Relaxed) != 0
    }

    /// Whether anything is recorded.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        cfg!(feature = "events") && self.on.load(Ordering::Relaxed) != 0
    }

    /// What is recorded.
    pub fn mask(&self) -> Mask {
        Mask::from_bits(self.on.load(Ordering::Acquire))
    }

    /// Records an event, if its kind is wanted; on the tracer's CPU.
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

    /// Its events; room for none if it has no memory.
    pub fn ring(&self) -> Ring {
        Ring::new(self.memory().get(Latencies::WORDS..).unwrap_or(&[]))
    }

    /// Its tables of latencies.
    pub fn latencies(&self) -> Latencies {
        Latencies::new(self.memory())
    }

    fn memory(&self) -> &'static [Local] {
        let start = self.memory.load(Ordering::Relaxed);
        if start.is_null() {
            return &[];
        }
        // SAFETY: `begin` stored the parts of one static slice, and nobody stores others.
        unsafe { slice::from_raw_parts(start, self.length.load(Ordering::Relaxed) as usize) }
    }
}
