//! The per-CPU lines of page counts, and their sum.
//!
//! *Writes*: this CPU's line of the space; [`RssCounters::forget_peak`] writes the line of every CPU.

use core::ptr::NonNull;

use faultless_frames::NoMemory;
use faultless_paging::{Frame, PAGE_SIZE};
use faultless_sync::atomic::Local;
use faultless_sync::{Cpu, MAX_CPUS, Mutant, mutant};

use super::{KINDS, RssDelta, RssKind};
use crate::base::machine::Machine;
use crate::base::memory::Memory;

/// Pages that a CPU may count away before it records the peak again. Small unmaps are spared the sum.
pub(super) const SLACK: u64 = 64;

/// The counts of one CPU.
#[derive(Default)]
#[repr(C, align(64))]
struct RssLine {
    counts: [Local; KINDS],
    /// Pages counted away since this CPU last recorded the peak.
    unnoted: Local,
    /// The most pages in memory that this CPU has seen.
    peak: Local,
    /// In a frame's first line: the frame's number, unless it is the space's own frame.
    frame: Local,
}

const _: () = assert!(size_of::<RssLine>() == 64);

/// Lines that fit into a frame.
const LINES: usize = PAGE_SIZE as usize / size_of::<RssLine>();

/// Frames that the lines of the most CPUs need.
const GROUPS: usize = MAX_CPUS.div_ceil(LINES);

/// The counts of an address space.
#[derive(Clone, Copy)]
pub(crate) struct RssCounters {
    /// The lines of each group of [`LINES`] CPUs.
    lines: [NonNull<RssLine>; GROUPS],
    cpus: usize,
}

// SAFETY: the lines are shared through words that each have one writer at a time, and any readers.
unsafe impl Send for RssCounters {}
// SAFETY: as above.
unsafe impl Sync for RssCounters {}

impl RssCounters {
    /// Creates counts of zero, behind the first `used` bytes of a space's own frame if they fit there.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub(crate) fn new<M: Machine>(
        memory: &Memory<M>,
        body: Frame,
        used: usize,
    ) -> Result<Self, NoMemory> {
        let cpus = memory.cpus().len();
        let mut counters = Self {
            lines: [NonNull::dangling(); GROUPS],
            cpus: 0,
        };
        let start = used.next_multiple_of(size_of::<RssLine>());
        if start + cpus * size_of::<RssLine>() <= PAGE_SIZE as usize {
            // SAFETY: inside the frame.
            let tail = unsafe { memory.machine().pointer(body).byte_add(start) };
            counters.append(tail.cast(), cpus, 0);
            return Ok(counters);
        }
        while counters.cpus < cpus {
            let frame = memory
                .take_space_frame()
                .inspect_err(|_| counters.free(memory))?;
            let lines = memory.machine().pointer(frame).cast();
            counters.append(lines, LINES.min(cpus - counters.cpus), frame.0);
        }
        Ok(counters)
    }

    /// Adds lines for the next `count` CPUs.
    fn append(&mut self, lines: NonNull<RssLine>, count: usize, frame: u64) {
        for number in 0..count {
            // SAFETY: the caller's memory for so many lines, aligned to a line.
            unsafe { lines.add(number).write(RssLine::default()) };
        }
        // SAFETY: written above.
        unsafe { lines.as_ref() }.frame.set(frame);
        self.lines[self.cpus / LINES] = lines;
        self.cpus += count;
    }

    /// Iterates over the frames that hold only lines.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame> {
        let firsts = (0..self.cpus).step_by(LINES);
        let numbers = firsts.map(|cpu| self.line(cpu).frame.get());
        numbers.filter(|&number| number != 0).map(Frame)
    }

    /// Frees these frames: the last use.
    pub(crate) fn free<M: Machine>(&self, memory: &Memory<M>) {
        // Each line is read before its frame is freed.
        self.frames()
            .for_each(|frame| memory.give_space_frame(frame));
    }

    #[inline]
    fn line(&self, cpu: usize) -> &RssLine {
        debug_assert!(cpu < self.cpus, "a CPU without a line");
        // SAFETY: each CPU has a line, which lives as long as the space.
        unsafe { self.lines[cpu / LINES].add(cpu % LINES).as_ref() }
    }

    fn all(&self) -> impl Iterator<Item = &RssLine> {
        (0..self.cpus).map(|cpu| self.line(cpu))
    }

    /// Counts a page or a table that was added, on this CPU.
    #[inline]
    pub(crate) fn came(&self, cpu: Cpu, kind: RssKind) {
        self.line(cpu.index()).counts[kind as usize].add(1);
    }

    /// Counts that a page of this kind was replaced by a copy, which is anonymous.
    #[inline]
    pub(crate) fn copied(&self, cpu: Cpu, from: RssKind) {
        if from != RssKind::Anonymous {
            self.came(cpu, RssKind::Anonymous);
            self.gone_one(cpu, from);
        }
    }

    /// Counts pages and tables that were added.
    pub(crate) fn came_all(&self, cpu: Cpu, pages: &RssDelta) {
        let line = self.line(cpu.index());
        for (count, &more) in line.counts.iter().zip(&pages.0) {
            if more != 0 {
                count.add(more);
            }
        }
    }

    /// Counts pages and tables that were removed.
    #[inline]
    pub(crate) fn gone(&self, cpu: Cpu, pages: &RssDelta) {
        let line = self.line(cpu.index());
        let resident = pages.resident();
        let unnoted = line.unnoted.get() + resident;
        if resident != 0 && unnoted <= SLACK {
            line.unnoted.set(unnoted);
        } else if resident != 0 {
            self.note_peak(cpu);
        }
        for (count, &less) in line.counts.iter().zip(&pages.0) {
            if less != 0 && !mutant(Mutant::GoneNotCounted) {
                count.add(less.wrapping_neg());
            }
        }
    }

    /// Counts one page or table that was removed.
    #[inline]
    pub(crate) fn gone_one(&self, cpu: Cpu, kind: RssKind) {
        let mut one = RssDelta::default();
        one.add(Some(kind));
        self.gone(cpu, &one);
    }

    /// Returns the sum. It may be off by operations in progress on other CPUs.
    pub(crate) fn sum(&self) -> RssDelta {
        let mut sum = RssDelta::default();
        for line in self.all() {
            for (sum, count) in sum.0.iter_mut().zip(&line.counts) {
                *sum = sum.wrapping_add(count.get());
            }
        }
        // Lines are read one after the other, and may not fit together.
        sum.0 = sum.0.map(|n| n.cast_signed().max(0).cast_unsigned());
        sum
    }

    /// Records the present number of pages as a peak, on this CPU.
    pub(crate) fn note_peak(&self, cpu: Cpu) {
        let line = self.line(cpu.index());
        let now = self.sum().resident();
        if line.peak.get() < now {
            line.peak.set(now);
        }
        line.unnoted.set(0);
    }

    /// Returns the highest peak recorded.
    pub(crate) fn peak(&self) -> u64 {
        self.all().map(|line| line.peak.get()).max().unwrap_or(0)
    }

    /// Forgets the peak. A peak that another CPU records meanwhile may be lost or may outlast this, as on
    /// Linux.
    pub(crate) fn forget_peak(&self) {
        self.all().for_each(|line| line.peak.set(0));
    }
}
