//! CPU numbers and sets of them.

use crate::atomic::{AtomicU64, Ordering};

/// How many CPUs a machine can have.
pub const MAX_CPUS: usize = 256;

const WORDS: usize = MAX_CPUS / 64;

/// The number of a CPU, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cpu(pub u32);

impl Cpu {
    /// The number as an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of CPUs that several CPUs change at once: those that run an address space.
///
/// Written when a CPU takes up or leaves an address space, never by a fault.
#[derive(Debug)]
pub struct CpuSet([AtomicU64; WORDS]);

impl Default for CpuSet {
    fn default() -> Self {
        Self::new()
    }
}

impl CpuSet {
    /// The empty set.
    pub fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// The set of one CPU.
    pub fn of(cpu: Cpu) -> Self {
        let mut set = Self::new();
        set.0[cpu.index() / 64] = AtomicU64::new(1 << (cpu.0 % 64));
        set
    }

    /// Adds a CPU. A full barrier: what the CPU loads through the address space
    /// afterwards is either seen by a flush that reads the set, or already new.
    pub fn insert(&self, cpu: Cpu) {
        // SeqCst pairs with the flusher, which changes entries, fences, then reads the set.
        self.0[cpu.index() / 64].fetch_or(1 << (cpu.0 % 64), Ordering::SeqCst);
        crate::fence_after_rmw();
    }

    /// Takes a CPU out, after it has dropped its translations.
    pub fn remove(&self, cpu: Cpu) {
        self.0[cpu.index() / 64].fetch_and(!(1 << (cpu.0 % 64)), Ordering::SeqCst);
    }

    /// Whether a CPU is in the set.
    pub fn contains(&self, cpu: Cpu) -> bool {
        self.0[cpu.index() / 64].load(Ordering::Acquire) & (1 << (cpu.0 % 64)) != 0
    }

    /// Whether the set has no member but, perhaps, `cpu`.
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

    /// A set of those members whose bits are set in `numbers`: only the first 64 can be.
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

    /// The members, each word read once. Acquire: pairs with [`CpuSet::remove`],
    /// so that what a CPU did as a member is done once it is missed here.
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
