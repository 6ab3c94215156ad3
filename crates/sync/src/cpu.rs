//! CPU numbers and sets of them.

use crate::atomic::{AtomicU64, Ordering};

/// The largest number of CPUs of a machine.
pub const MAX_CPUS: usize = 256;

const WORDS: usize = MAX_CPUS / 64;

/// The number of a CPU, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cpu(pub u32);

impl Cpu {
    /// Returns the number as an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of CPUs that several CPUs change concurrently, such as those that run an address space.
///
/// Written when a CPU enters or leaves an address space, never by a fault.
#[derive(Debug)]
pub struct CpuSet([AtomicU64; WORDS]);

impl Default for CpuSet {
    fn default() -> Self {
        Self::new()
    }
}

impl CpuSet {
    /// Returns the empty set.
    pub fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Returns the set of one CPU.
    pub fn of(cpu: Cpu) -> Self {
        let mut set = Self::new();
        set.0[cpu.index() / 64] = AtomicU64::new(1 << (cpu.0 % 64));
        set
    }

    /// Adds a CPU. A full barrier: a flush that reads the set either sees the CPU, or the CPU's later loads
    /// through the address space see the new entries.
    pub fn insert(&self, cpu: Cpu) {
        // SeqCst pairs with the flusher, which changes entries, fences, then reads the set.
        self.0[cpu.index() / 64].fetch_or(1 << (cpu.0 % 64), Ordering::SeqCst);
        crate::fence_after_rmw();
    }

    /// Removes a CPU, after it has dropped its translations.
    pub fn remove(&self, cpu: Cpu) {
        self.0[cpu.index() / 64].fetch_and(!(1 << (cpu.0 % 64)), Ordering::SeqCst);
    }

    /// Whether a CPU is in the set.
    pub fn contains(&self, cpu: Cpu) -> bool {
        self.0[cpu.index() / 64].load(Ordering::Acquire) & (1 << (cpu.0 % 64)) != 0
    }

    /// Whether the set has no member except perhaps `cpu`.
    pub fn is_only(&self, cpu: Cpu) -> bool {
        self.0.iter().enumerate().all(|(i, word)| {
            let own = if i == cpu.index() / 64 {
                1 << (cpu.0 % 64)
            } else {
                0
            };
            word.load(Ordering::Acquire) & !own == 0
        })
    }

    /// Returns the members with a bit set in the mask `numbers`, which covers only the first 64 CPUs.
    pub fn low(&self, numbers: u64) -> Self {
        let mut set = Self::new();
        // Acquire as in `iter`; the new set is the caller's own.
        let members = self.0[0].load(Ordering::Acquire) & numbers;
        set.0[0] = AtomicU64::new(members);
        set
    }

    /// Whether the set has no member.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.load(Ordering::Acquire) == 0)
    }

    /// Returns the members; each word is read once. Acquire: pairs with [`CpuSet::remove`]. If a CPU has left
    /// the set, everything that it did as a member is complete.
    pub fn iter(&self) -> impl Iterator<Item = Cpu> + '_ {
        self.0.iter().enumerate().flat_map(|(i, word)| {
            let mut bits = word.load(Ordering::Acquire);
            core::iter::from_fn(move || {
                if bits == 0 {
                    return None;
                }
                let bit = bits.trailing_zeros();
                bits &= bits - 1;
                Some(Cpu(i as u32 * 64 + bit))
            })
        })
    }
}
