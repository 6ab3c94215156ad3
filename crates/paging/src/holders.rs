//! Records in a page-table entry which CPUs may hold it in their TLBs, so that a flush skips the other CPUs.
//!
//! A machine that walks its tables in software ([`crate::Tlb::marks_loads`]) can record more than that some
//! CPU has used an entry. The CPU that publishes an entry names itself in it as the *owner* and leaves the
//! accessed bit clear. Walks by the owner leave it clear. A walk by any other CPU sets it, by
//! compare-and-swap, before it uses the entry ([`Format::loaded`]). So:
//!
//! > While the accessed bit is clear, no TLB but the owner's can hold the entry.
//!
//! The idea, for hardware, is from N. Amit, "Optimizing the TLB Shootdown Algorithm with Page Access
//! Tracking", USENIX ATC 2017.
//!
//! Invariants:
//!
//! * A read-modify-write unmaps or lowers an entry, and the value that it replaces names the CPUs to flush. A
//!   later walk fails to set the bit and looks again; an earlier walk has set it.
//! * Clearing the accessed bit also clears the owner. An entry with neither names no CPU, and every CPU
//!   flushes ([`Format::unused`]).
//! * Raising an entry in place keeps both: the owner's TLB may hold the old value.
//! * A newly published entry is in no TLB (rule R2), so its owner may be any CPU.
//! * An owner is a CPU, not a thread. A CPU that leaves an address space drops its translations.
//!
//! Fault-around publishes entries that no CPU has loaded ([`Format::unloaded`]): the first CPU that walks
//! such an entry becomes its owner. Entries that lead to tables are marked like those of pages, so that
//! freeing a table finds the CPUs that may be walking it.

use faultless_sync::{Cpu, CpuSet, Mutant, mutant};

use crate::format::Format;

/// The CPUs that may hold a translation: all, or some of those with low numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holders(u64);

impl Holders {
    /// No CPU.
    pub const NONE: Self = Self(0);
    /// All CPUs that run the address space.
    pub const ALL: Self = Self(u64::MAX);

    /// Returns the union of both.
    #[inline]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the members of `cpus` that are among the holders; `None` if all CPUs are. A CPU with a number
    /// too high for a bit here is never an owner.
    #[inline]
    pub(crate) fn among(self, cpus: &CpuSet) -> Option<CpuSet> {
        (self != Self::ALL).then(|| cpus.low(self.0))
    }

    /// Whether no member of `cpus` but `cpu` is among the holders.
    #[inline]
    pub fn are_only(self, cpu: Cpu, cpus: &CpuSet) -> bool {
        let own = if cpu.0 < 64 { 1 << cpu.0 } else { 0 };
        match self.0 & !own {
            0 => true,
            _ if mutant(Mutant::FlushedHereAlone) => true,
            _ if self == Self::ALL => cpus.is_only(cpu),
            others => cpus.low(others).is_empty(),
        }
    }
}

impl Format {
    /// Returns the owner bits of a CPU; 0 if its number does not fit.
    #[inline]
    const fn owner_of(&self, cpu: Cpu) -> u64 {
        // 0 means no owner; all ones mean that no CPU has loaded the entry.
        let number = (cpu.0 as u64 + 1) << self.owner_shift();
        if cpu.0 < 62 && number & !self.owner == 0 && number != self.owner {
            number
        } else {
            0
        }
    }

    /// Returns the shift of the owner field. It does not matter for a format without one.
    #[inline]
    const fn owner_shift(&self) -> u32 {
        self.owner.trailing_zeros() % u64::BITS
    }

    /// Returns an entry that no TLB holds, owned by `cpu`. It counts as used.
    #[inline]
    pub const fn owned(&self, value: u64, cpu: Cpu) -> u64 {
        let owner = self.owner_of(cpu);
        if owner == 0 {
            value
        } else {
            (value & !(self.accessed | self.owner)) | owner
        }
    }

    /// Returns an entry that no TLB holds. It counts as used only after a walk has found it.
    #[inline]
    pub const fn unloaded(&self, value: u64) -> u64 {
        (value & !self.accessed) | self.owner
    }

    /// Returns the value that a walk by `cpu` gives a present entry before it uses it, on a machine that
    /// marks loads. The walk stores it by compare-and-swap, unless it is the same.
    #[inline]
    pub fn loaded(&self, value: u64, cpu: Cpu) -> u64 {
        let owner = self.owner_of(cpu);
        let named = value & self.owner;
        if value & self.accessed != 0 || (named != 0 && named == owner) {
            value
        } else if named != 0 && named == self.owner && owner != 0 {
            (value & !self.owner) | owner
        } else if named != 0 && mutant(Mutant::LoadNotMarked) {
            value
        } else {
            value | self.accessed
        }
    }

    /// Returns the CPUs that may hold a present entry, as far as the entry says.
    #[inline]
    pub const fn holders(&self, value: u64) -> Holders {
        let named = value & self.owner;
        if value & self.accessed != 0 || named == 0 {
            Holders::ALL
        } else if named == self.owner {
            Holders::NONE
        } else {
            Holders(1 << ((named >> self.owner_shift()) - 1))
        }
    }

    /// Whether a TLB of `cpu` may hold a present entry, as far as the entry says.
    #[inline]
    pub const fn may_be_held_by(&self, value: u64, cpu: Cpu) -> bool {
        let Holders(bits) = self.holders(value);
        bits == u64::MAX || (cpu.0 < 64 && bits >> cpu.0 & 1 != 0)
    }

    /// Returns the bits that may change while an entry keeps its meaning: hardware's bits and the owner.
    #[inline]
    pub const fn marks(&self) -> u64 {
        self.hardware() | self.owner
    }
}

#[cfg(test)]
mod tests {
    use super::Holders;
    use crate::{EntryFormat, Frame, MarkedX86_64};
    use faultless_sync::{Cpu, CpuSet};

    const FORMAT: crate::Format = MarkedX86_64::FORMAT;
    /// The number of CPUs that can be owners.
    const OWNERS: u32 = 14;

    fn leaf() -> u64 {
        FORMAT.leaf(Frame(0xf_ffff_ffff), true, true, true)
    }

    #[test]
    fn an_owner_is_named_and_counts_as_use() {
        for cpu in 0..OWNERS {
            let entry = FORMAT.owned(leaf(), Cpu(cpu));
            assert_eq!(FORMAT.holders(entry), Holders(1 << cpu));
            assert!(FORMAT.is_used(entry) && FORMAT.may_be_held_by(entry, Cpu(cpu)));
            assert_eq!(FORMAT.frame(entry), Frame(0xf_ffff_ffff));
            assert_eq!(entry & !FORMAT.marks(), leaf() & !FORMAT.marks());
            assert_eq!(FORMAT.loaded(entry, Cpu(cpu)), entry);
            let other = FORMAT.loaded(entry, Cpu((cpu + 1) % OWNERS));
            assert_eq!(other, entry | FORMAT.accessed);
            assert_eq!(FORMAT.holders(other), Holders::ALL);
        }
    }

    #[test]
    fn a_number_too_high_is_no_owner() {
        for cpu in [OWNERS, OWNERS + 1, 62, 63, 64, 127, 255] {
            assert_eq!(FORMAT.owned(leaf(), Cpu(cpu)), leaf());
            let entry = FORMAT.owned(leaf(), Cpu(0));
            assert_eq!(FORMAT.loaded(entry, Cpu(cpu)), entry | FORMAT.accessed);
            assert!(!FORMAT.may_be_held_by(entry, Cpu(cpu)));
            assert!(FORMAT.may_be_held_by(leaf(), Cpu(cpu)));
            let unloaded = FORMAT.unloaded(leaf());
            assert_eq!(
                FORMAT.holders(FORMAT.loaded(unloaded, Cpu(cpu))),
                Holders::ALL
            );
        }
    }

    #[test]
    fn an_unloaded_entry_has_no_holder() {
        let entry = FORMAT.unloaded(leaf());
        assert_eq!(FORMAT.holders(entry), Holders::NONE);
        assert!(!FORMAT.is_used(entry));
        assert_eq!(FORMAT.loaded(entry, Cpu(7)), FORMAT.owned(leaf(), Cpu(7)));
    }

    #[test]
    fn a_bit_that_software_has_cleared_says_nothing() {
        for entry in [
            leaf(),
            FORMAT.owned(leaf(), Cpu(3)),
            FORMAT.unloaded(leaf()),
        ] {
            let cleared = FORMAT.unused(entry);
            assert_eq!(FORMAT.holders(cleared), Holders::ALL);
            assert!(!FORMAT.is_used(cleared));
            assert_eq!(FORMAT.loaded(cleared, Cpu(3)), cleared | FORMAT.accessed);
        }
    }

    #[test]
    fn holders_among_a_set() {
        let cpus = CpuSet::new();
        [1, 5, 200].iter().for_each(|&cpu| cpus.insert(Cpu(cpu)));
        assert!(Holders::ALL.among(&cpus).is_none());
        let members = |holders: Holders, expected: &[Cpu]| {
            let among = holders.among(&cpus);
            among.is_some_and(|set| set.iter().eq(expected.iter().copied()))
        };
        assert!(members(Holders(0b11_0011), &[Cpu(1), Cpu(5)]));
        assert!(members(Holders::NONE, &[]));
    }
}
