//! The kinds of trace events and their details, with numbers and names.
//!
//! The kernel passes the numbers to the command that started it, so they are part of a format between two
//! programs built from one tree.

macro_rules! words {
    ($(#[$top:meta])* $Name:ident { $($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal,)* }) => {
        $(#[$top])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $Name {
            $($(#[$doc])* $variant = $number,)*
        }

        impl $Name {
            /// All values, in the order of their numbers.
            pub const ALL: &'static [$Name] = &[$($Name::$variant,)*];

            /// Returns the user-visible name.
            pub const fn name(self) -> &'static str {
                match self {
                    $($Name::$variant => $name,)*
                }
            }

            /// Returns the value with that number.
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some($Name::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

words! {
    /// The kind of an event.
    Kind {
        /// A fault, from its trap to its end; see [`How`] and [`Reason`].
        Fault = 1, "faults",
        /// A fault fell back: the entry stayed claimed.
        SpfPteLock = 2, "pagefault:spf_pte_lock",
        /// A fault fell back: the mapping changed.
        SpfVmaChanged = 3, "pagefault:spf_vma_changed",
        /// A fault fell back: the reverse map was not ready.
        SpfVmaNoanon = 4, "pagefault:spf_vma_noanon",
        /// A fault fell back: unsupported mapping.
        SpfVmaNotsup = 5, "pagefault:spf_vma_notsup",
        /// An access that is not allowed.
        SpfVmaAccess = 6, "pagefault:spf_vma_access",
        /// A fault fell back: the table changed.
        SpfPmdChanged = 7, "pagefault:spf_pmd_changed",
        /// Translations were flushed, on this CPU and others. Value: bytes, or all.
        Flush = 8, "tlb:flush",
        /// Another CPU was asked to flush. Address: that CPU; value: the number of the request there.
        ShootdownSent = 9, "tlb:shootdown_sent",
        /// This CPU flushed as other CPUs had requested. Address: the number of the last request answered
        /// before; value: of the last one answered now.
        ShootdownReceived = 10, "tlb:shootdown_received",
        /// `mmap`.
        Mmap = 11, "mm:mmap",
        /// `munmap`.
        Munmap = 12, "mm:munmap",
        /// `mprotect`.
        Mprotect = 13, "mm:mprotect",
        /// `madvise`.
        Madvise = 14, "mm:madvise",
        /// `brk`. Address: the end afterwards; value: the requested end.
        Brk = 15, "mm:brk",
        /// `mremap`. Address: the result.
        Mremap = 16, "mm:mremap",
        /// An address space was copied for a new process.
        Fork = 17, "mm:fork",
        /// A CPU switched to another thread; see [`crate::Switch`].
        Switch = 18, "sched:switch",
        /// Pages were zapped, with nothing held: the second phase of `munmap` and similar operations.
        Zap = 19, "mm:zap",
        /// An operation waited for a range that another operation held, or was zapping.
        RangeWait = 20, "mm:range_wait",
        /// A `munmap` or a similar operation excluded other changes of its range: while it detached the
        /// mappings, and again when it ended.
        RangeHold = 21, "mm:range_hold",
        /// A fault waited for a page that was swapped out.
        SwapIn = 22, "mm:swap_in",
        /// A batch of pages that have left their entries was written to swap devices. Value: bytes.
        PageOut = 23, "mm:page_out",
        /// A step of reclaim, from its look for pages to the end of its writes. Value: bytes freed.
        Reclaim = 24, "mm:reclaim",
        /// A guest's fault looked at its entry; see [`crate::FastPageFault`]. Address: the guest-physical one.
        FastPageFault = 25, "kvmmmu:fast_page_fault",
        /// A fault on a read is resolved as one on a write: the instruction also stores.
        RmwFault = 26, "pagefault:rmw",
    }
}

words! {
    /// The outcome of a fault.
    How {
        /// Unknown: the fault has not come that far.
        Unknown = 0, "unknown",
        /// A write to an empty entry: a fresh page.
        FirstTouch = 1, "first_touch",
        /// A read of an empty entry: the shared zero page.
        ZeroPage = 2, "zero_page",
        /// A write to the zero page: a fresh page in its place.
        ZeroReplaced = 3, "zero_replaced",
        /// A write to a page of this space only: written in place.
        Reuse = 4, "reuse",
        /// A write to a shared page: copied.
        Copy = 5, "copy",
        /// The page was there already.
        Spurious = 6, "spurious",
        /// The access is an error.
        Segv = 7, "segv",
        /// There was no frame.
        OutOfMemory = 8, "out_of_memory",
        /// A page of a file, or of shared memory.
        File = 9, "file",
        /// A page that had to be read in.
        Major = 10, "major",
        /// There is nothing behind the page, or it could not be read.
        Bus = 11, "bus",
    }
}

words! {
    /// The reason that a fault fell back to the mmap lock.
    Reason {
        /// The fault did not fall back.
        None = 0, "none",
        /// The entry stayed claimed by another fault.
        PteLock = 1, "pte_lock",
        /// The mapping was changing, or changed before validation.
        VmaChanged = 2, "vma_changed",
        /// The reverse map was not ready.
        VmaNoanon = 3, "vma_noanon",
        /// This kind of mapping cannot be resolved without the lock.
        VmaNotsup = 4, "vma_notsup",
        /// The table was unlinked or being freed.
        PmdChanged = 5, "pmd_changed",
    }
}

/// A set of kinds, and whether latencies are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mask(u64);

impl Mask {
    /// Nothing.
    pub const NONE: Mask = Mask(0);
    /// Only latencies. No kind has number 0.
    pub const LATENCIES: Mask = Mask(1);

    /// Returns the set of these bits: bit 0 for latencies, bit `n` for the kind of number `n`.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the bits of the set.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the set with one more kind.
    pub const fn with(self, kind: Kind) -> Self {
        Self(self.0 | 1 << kind as u8)
    }

    /// Returns the union of both.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a kind is in the set.
    pub const fn has(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    /// Whether latencies are recorded.
    pub const fn has_latencies(self) -> bool {
        self.0 & Self::LATENCIES.0 != 0
    }

    /// Whether any event is recorded.
    pub const fn has_events(self) -> bool {
        self.0 & !Self::LATENCIES.0 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::{How, Kind, Mask, Reason};

    #[test]
    fn numbers_lead_back() {
        for &kind in Kind::ALL {
            assert_eq!(Kind::from_number(kind as u8), Some(kind));
            assert!((kind as u8) > 0 && (kind as u8) < 64, "a bit of a mask");
        }
        for &how in How::ALL {
            assert_eq!(How::from_number(how as u8), Some(how));
        }
        for &reason in Reason::ALL {
            assert_eq!(Reason::from_number(reason as u8), Some(reason));
        }
        assert_eq!(Kind::from_number(0), None);
        assert_eq!(Kind::from_number(255), None);
    }

    #[test]
    fn a_mask_holds_what_was_put_in() {
        let mask = Mask::NONE.with(Kind::Fault).with(Kind::Switch);
        assert!(mask.has(Kind::Fault) && mask.has(Kind::Switch) && !mask.has(Kind::Mmap));
        assert!(mask.has_events() && !mask.has_latencies());
        assert!(!Mask::LATENCIES.has_events() && Mask::LATENCIES.has_latencies());
        assert_eq!(
            Mask::from_bits(mask.or(Mask::LATENCIES).bits()),
            mask.or(Mask::LATENCIES)
        );
    }
}
