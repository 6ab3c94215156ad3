//! Counters, and their changes during an operation.

use std::sync::mpsc::channel;

use faultless_mm::{Counter, HugeMode, PAGE_SIZE as PAGE, Policy, flags};
use faultless_soft::{SoftCpu, SoftMemory, SoftSpace};

const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
/// For more pages than this the soft machine flushes its whole TLB.
const SINGLE: u64 = 128;

/// Every counter, summed over all CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts(Vec<u64>);

impl Counts {
    /// The present counts.
    pub fn now(memory: &'static SoftMemory) -> Self {
        Self(Counter::ALL.iter().map(|&c| memory.total(c)).collect())
    }

    /// The difference to `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self(self.0.iter().zip(&earlier.0).map(|(a, b)| a - b).collect())
    }

    /// One counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Asserts that these counters changed as given and no other did.
    #[track_caller]
    pub fn are(&self, expected: &[(Counter, u64)], what: &str) {
        let mut all = vec![0; self.0.len()];
        for &(counter, count) in expected {
            all[counter as usize] += count;
        }
        let shown = |counts: &[u64]| {
            let named = Counter::ALL.iter().zip(counts).filter(|(_, n)| **n > 0);
            let named = named.map(|(c, n)| format!("{} {n}", c.name()));
            named.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(shown(&self.0), shown(&all), "{what}");
    }

    /// Faults that fell back from `speculative`.
    pub fn fallbacks(&self) -> u64 {
        [
            Counter::SpfPteLock,
            Counter::SpfVmaChanged,
            Counter::SpfVmaNoanon,
            Counter::SpfVmaNotsup,
            Counter::SpfPmdChanged,
        ]
        .map(|counter| self.get(counter))
        .iter()
        .sum()
    }

    /// Asserts that each fault ended in one way, if all were under `policy`.
    #[track_caller]
    pub fn add_up(&self, policy: Policy) {
        let [faults, spf] = [Counter::Faults, Counter::Spf].map(|c| self.get(c));
        let [success, abort] =
            [Counter::VmaLockSuccess, Counter::VmaLockAbort].map(|c| self.get(c));
        let fallbacks = self.fallbacks();
        let (by_speculation, by_lock) = match policy {
            Policy::Speculative => (faults, 0),
            Policy::VmaLock => (0, faults),
            Policy::Classic => (0, 0),
        };
        assert_eq!(spf + fallbacks, by_speculation, "{policy}: {self:?}");
        assert_eq!(success + abort, by_lock, "{policy}: {self:?}");
        if policy != Policy::Speculative {
            let own = [Counter::SpfVmaAccess, Counter::SpfRetry].map(|c| self.get(c));
            assert_eq!(own, [0, 0], "{policy}: {self:?}");
        }
    }
}

/// Runs `work`, and returns what it counted.
pub fn counted<R>(memory: &'static SoftMemory, work: impl FnOnce() -> R) -> (Counts, R) {
    let before = Counts::now(memory);
    let result = work();
    (Counts::now(memory).since(&before), result)
}

/// The counts of `count` faults under `policy`, if each succeeds at the first try.
pub fn faults(policy: Policy, count: u64) -> Vec<(Counter, u64)> {
    let mut counts = vec![(Counter::Faults, count)];
    match policy {
        Policy::Speculative => counts.push((Counter::Spf, count)),
        Policy::VmaLock => counts.push((Counter::VmaLockSuccess, count)),
        Policy::Classic => {}
    }
    counts
}

/// Runs `work` while CPU `other` also runs the space, but does nothing.
pub fn beside<R>(space: &SoftSpace, other: u32, work: impl FnOnce() -> R) -> R {
    let (ready, is_ready) = channel::<()>();
    let (stop, is_over) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            SoftCpu::run(space, other, |_| {
                let _ = ready.send(());
                // Returns when the sender is dropped.
                let _ = is_over.recv();
            });
        });
        let _ = is_ready.recv();
        let result = work();
        drop(stop);
        result
    })
}

/// A CPU and its expected counts under one policy, perhaps beside another CPU.
pub struct Case<'a> {
    /// CPU 0.
    pub cpu: &'a SoftCpu<'a>,
    /// The space's policy.
    pub policy: Policy,
    /// Whether no other CPU runs the space.
    pub is_alone: bool,
}

/// Counters, and how much each counts.
pub type Expected = Vec<(Counter, u64)>;

impl Case<'_> {
    /// Asserts that `work` counts `expected`, and nothing else.
    #[track_caller]
    pub fn counts<R>(&self, what: &str, expected: &[Expected], work: impl FnOnce() -> R) -> R {
        let (counts, result) = counted(self.cpu.space().memory(), work);
        let alone = if self.is_alone {
            "alone"
        } else {
            "beside another CPU"
        };
        counts.are(
            &expected.concat(),
            &format!("{what}, {}, {alone}", self.policy),
        );
        counts.add_up(self.policy);
        result
    }

    /// Faults that succeed at the first try.
    pub fn faults(&self, count: u64) -> Expected {
        faults(self.policy, count)
    }

    /// Faults that are refused.
    pub fn refused(&self, count: u64) -> Expected {
        let mut counts = faults(self.policy, count);
        counts.push((Counter::FaultsRefused, count));
        if self.policy == Policy::Speculative {
            counts.push((Counter::SpfVmaAccess, count));
        }
        counts
    }

    /// One flush of a range of `pages`, which no other CPU has loaded.
    pub fn flush(&self, pages: u64) -> Expected {
        match pages {
            0 => Vec::new(),
            1..=SINGLE => vec![(Counter::TlbLocalFlushOne, pages)],
            _ => one(Counter::TlbLocalFlushAll),
        }
    }

    /// Maps at a fixed address, over existing mappings.
    pub fn map(&self, at: u64, pages: u64, prot: u32, more: u32) {
        let fixed = ANON | flags::FIXED | more;
        assert_eq!(self.cpu.space().mmap(at, pages * PAGE, prot, fixed), Ok(at));
    }

    /// Stores into each page.
    pub fn write(&self, at: u64, pages: u64) {
        (0..pages).for_each(|page| assert_eq!(self.cpu.store(at + page * PAGE, 1), Ok(())));
    }

    /// Loads zero from each page.
    pub fn read(&self, at: u64, pages: u64) {
        (0..pages).for_each(|page| assert_eq!(self.cpu.load(at + page * PAGE), Ok(0)));
    }
}

/// Runs `test` in a new space for every policy, with and without another CPU.
pub fn cases(test: impl Fn(&Case<'_>)) {
    for &policy in Policy::ALL {
        for is_alone in [true, false] {
            let (memory, space) = crate::space(2, 64, policy);
            // What is counted are small pages, and their tables.
            memory.set_huge_mode(HugeMode::Never);
            SoftCpu::run(&space, 0, |cpu| {
                let case = Case {
                    cpu,
                    policy,
                    is_alone,
                };
                if is_alone {
                    test(&case)
                } else {
                    beside(&space, 1, || test(&case))
                }
                space.verify().unwrap();
            });
            SoftCpu::attend(memory, 0, || space.destroy());
            let tables = [Counter::TableAlloc, Counter::TableFree].map(|c| memory.total(c));
            assert_eq!(tables[0], tables[1], "tables under {policy}");
        }
    }
}

/// One count of a counter.
pub fn one(counter: Counter) -> Expected {
    vec![(counter, 1)]
}
