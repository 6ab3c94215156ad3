//! Latency histograms: one set of tables for each CPU.
//!
//! Buckets are log2-linear: one for each ns below 16, then 8 for each doubling. So a percentile is accurate
//! to 12.5 %. The longest latency is exact.

use faultless_sync::atomic::Local;

use crate::event::Event;
use crate::kind::{How, Kind};

/// Values below this have a bucket each.
const EXACT: u64 = 16;
/// Buckets for each doubling.
const STEPS: u64 = 8;
/// The largest exponent with buckets: about 18 minutes.
const LARGEST: u64 = 39;
const BUCKETS: usize = (EXACT + (LARGEST - 3) * STEPS) as usize;
/// Words of one table: the longest, the sum, and the buckets.
const WORDS: usize = 2 + BUCKETS;

/// A measured quantity: faults by outcome, and operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// A fault with this outcome.
    Fault(How),
    /// Anything else that takes time.
    Operation(Kind),
}

/// Measured operations, in the order of their tables.
const OPERATIONS: [Kind; 15] = [
    Kind::Mmap,
    Kind::Munmap,
    Kind::Mprotect,
    Kind::Madvise,
    Kind::Brk,
    Kind::Mremap,
    Kind::Fork,
    Kind::Zap,
    Kind::RangeWait,
    Kind::RangeHold,
    Kind::Flush,
    Kind::ShootdownReceived,
    Kind::SwapIn,
    Kind::PageOut,
    Kind::Reclaim,
];

impl Measure {
    /// The number of measures.
    pub const COUNT: usize = How::ALL.len() + OPERATIONS.len();

    /// Returns all measures.
    pub fn all() -> impl Iterator<Item = Measure> {
        let faults = How::ALL.iter().map(|&how| Measure::Fault(how));
        faults.chain(OPERATIONS.into_iter().map(Measure::Operation))
    }

    /// Returns the index of the table that measures an event.
    fn of(event: &Event) -> Option<usize> {
        match event.kind {
            Kind::Fault => Some(event.how() as usize),
            kind => {
                let at = OPERATIONS.iter().position(|&other| other == kind)?;
                Some(How::ALL.len() + at)
            }
        }
    }

    /// Returns the index of its table.
    fn place(self) -> usize {
        match self {
            Measure::Fault(how) => how as usize,
            Measure::Operation(kind) => {
                let at = OPERATIONS.iter().position(|&other| other == kind);
                How::ALL.len() + at.unwrap_or(0)
            }
        }
    }

    /// Returns the kind that names the part before the colon: `faults` for faults.
    pub const fn event(self) -> Kind {
        match self {
            Measure::Fault(_) => Kind::Fault,
            Measure::Operation(kind) => kind,
        }
    }
}

/// One CPU's tables, over words of memory.
#[derive(Clone, Copy, Debug)]
pub struct Latencies {
    words: &'static [Local],
}

impl Latencies {
    /// The number of words of a CPU's tables.
    pub const WORDS: usize = Measure::COUNT * WORDS;

    /// Returns tables over `words`; none if there are too few words.
    pub fn new(words: &'static [Local]) -> Self {
        let enough = words.len() >= Self::WORDS;
        Self {
            words: if enough { words } else { &[] },
        }
    }

    /// Records the duration of an event, on the tables' CPU.
    pub(crate) fn note(&self, event: &Event) {
        let Some(place) = Measure::of(event) else {
            return;
        };
        let Some(table) = self.words.chunks_exact(WORDS).nth(place) else {
            return;
        };
        let duration = event.duration();
        if duration > table[0].get() {
            table[0].set(duration);
        }
        table[1].add(duration);
        table[2 + bucket(duration)].add(1);
    }

    /// Adds this CPU's measurements to `sum`.
    pub fn add_to(&self, measure: Measure, sum: &mut Latency) {
        let Some(table) = self.words.chunks_exact(WORDS).nth(measure.place()) else {
            return;
        };
        sum.max = sum.max.max(table[0].get());
        sum.total = sum.total.saturating_add(table[1].get());
        for (bucket, count) in table[2..].iter().enumerate() {
            sum.add(bucket, count.get());
        }
    }
}

/// The latencies of one measure, added up over CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    counts: [u64; BUCKETS],
    /// The longest, in ns.
    pub max: u64,
    /// The sum, in ns.
    pub total: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            max: 0,
            total: 0,
        }
    }
}

impl Latency {
    /// Adds to a bucket; ignores one that does not exist.
    pub fn add(&mut self, bucket: usize, count: u64) {
        if let Some(sum) = self.counts.get_mut(bucket) {
            *sum = sum.saturating_add(count);
        }
    }

    /// Adds one latency, in ns.
    pub fn note(&mut self, duration: u64) {
        self.add(bucket(duration), 1);
        self.max = self.max.max(duration);
        self.total = self.total.saturating_add(duration);
    }

    /// Adds the latencies of another histogram.
    pub fn merge(&mut self, other: &Latency) {
        self.max = self.max.max(other.max);
        self.total = self.total.saturating_add(other.total);
        for (bucket, &count) in other.counts.iter().enumerate() {
            self.add(bucket, count);
        }
    }

    /// Returns the number of measurements.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the buckets that are not empty, with their counts.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let all = self.counts.iter().copied().enumerate();
        all.filter(|&(_, count)| count > 0)
    }

    /// Returns the buckets that are not empty: the smallest and the largest latency of each, and its count.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.buckets()
            .map(|(bucket, count)| (smallest(bucket), smallest(bucket + 1) - 1, count))
    }

    /// Returns a latency that `share` of the measurements do not exceed, in ns. It is the largest of its
    /// bucket, at most 12.5 % too high, and no more than the longest. Returns 0 if nothing was measured.
    pub fn percentile(&self, share: f64) -> u64 {
        let count = self.count();
        let wanted = ((count as f64 * share) as u64 + 1).min(count);
        let mut seen = 0;
        for (_, largest, count) in self.ranges() {
            seen += count;
            if seen >= wanted {
                return largest.min(self.max);
            }
        }
        0
    }
}

fn bucket(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let exponent = u64::from(value.ilog2());
    if exponent > LARGEST {
        return BUCKETS - 1;
    }
    let step = value >> (exponent - 3) & (STEPS - 1);
    (EXACT + (exponent - 4) * STEPS + step) as usize
}

/// Returns the smallest value of a bucket.
fn smallest(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < EXACT {
        return bucket;
    }
    let (exponent, step) = ((bucket - EXACT) / STEPS + 4, (bucket - EXACT) % STEPS);
    (STEPS + step) << (exponent - 3)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::boxed::Box;
    use std::vec::Vec;

    use super::{BUCKETS, Latencies, Latency, Measure, bucket, smallest};
    use crate::event::Event;
    use crate::kind::{How, Kind, Reason};
    use faultless_sync::atomic::Local;

    #[test]
    fn buckets_are_in_order_without_gaps_and_fine_enough() {
        for at in 0..BUCKETS {
            let low = smallest(at);
            assert_eq!(bucket(low), at);
            let high = smallest(at + 1) - 1;
            assert_eq!(bucket(high), at);
            assert!((high - low) * 8 <= low.max(8), "{low}..={high}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_near_and_the_maximum_is_exact() {
        let mut latency = Latency::default();
        for value in 1..=1000u64 {
            latency.note(value);
        }
        assert_eq!(latency.count(), 1000);
        for (share, exact) in [(0.5, 500.0), (0.99, 990.0), (0.1, 100.0)] {
            let near = latency.percentile(share) as f64;
            assert!(near >= exact && near <= exact * 1.13, "{share}: {near}");
        }
        assert_eq!(latency.percentile(1.0), 1000);
        assert_eq!(Latency::default().percentile(0.5), 0);
    }

    #[test]
    fn each_measure_has_a_table_of_its_own() {
        let words: Vec<Local> = (0..Latencies::WORDS).map(|_| Local::new(0)).collect();
        let tables = Latencies::new(Box::leak(words.into_boxed_slice()));
        tables.note(&Event::fault(0, 7, 0, How::Copy, true, Reason::None));
        tables.note(&Event::slice(Kind::Munmap, 0, 90, 0, 0));
        tables.note(&Event::instant(Kind::Switch, 0, 0, 0));
        for measure in Measure::all() {
            let mut latency = Latency::default();
            tables.add_to(measure, &mut latency);
            let expected = match measure {
                Measure::Fault(How::Copy) => (1, 7),
                Measure::Operation(Kind::Munmap) => (1, 90),
                _ => (0, 0),
            };
            assert_eq!((latency.count(), latency.max), expected, "{measure:?}");
        }
        assert_eq!(Measure::all().count(), Measure::COUNT);
    }

    #[test]
    fn too_little_memory_is_none() {
        let tables = Latencies::new(&[]);
        tables.note(&Event::slice(Kind::Munmap, 0, 90, 0, 0));
        let mut latency = Latency::default();
        tables.add_to(Measure::Operation(Kind::Munmap), &mut latency);
        assert_eq!(latency, Latency::default());
    }
}
