//! Event counters: one copy per CPU, written only by that CPU.
//!
//! A fault counts once, however often it is retried. Under the speculative policy `faults = spf + (the
//! fallback reasons)`. `spf_vma_access` is not in this sum, because an access that is not allowed gets a
//! signal without the lock.

use faultless_sync::atomic::Local;

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Counter {
            $($(#[$doc])* $variant,)*
        }

        impl Counter {
            /// Every counter, in display order.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant,)*];

            /// Returns the user-visible name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Counter::$variant => $name,)*
                }
            }
        }
    };
}

counters! {
    /// Page faults, each counted once: by a program, by the kernel on a
    /// program's memory, or by POPULATE.
    Faults = "faults",
    /// Faults resolved, or answered with a signal, without any lock on the mapping.
    Spf = "spf",
    /// Fell back: the entry stayed claimed by another fault.
    SpfPteLock = "pagefault:spf_pte_lock",
    /// Fell back: the mapping was changing, or changed before validation.
    SpfVmaChanged = "pagefault:spf_vma_changed",
    /// Fell back: the reverse map was not ready. Never, by design.
    SpfVmaNoanon = "pagefault:spf_vma_noanon",
    /// Fell back: this kind of mapping cannot be resolved speculatively.
    SpfVmaNotsup = "pagefault:spf_vma_notsup",
    /// The access is not allowed; answered with a signal, not a fallback.
    SpfVmaAccess = "pagefault:spf_vma_access",
    /// Fell back: the table was unlinked, or became or stopped being a huge entry.
    SpfPmdChanged = "pagefault:spf_pmd_changed",
    /// Speculative tries that were withdrawn and retried.
    SpfRetry = "spf_retry",
    /// Faults resolved under the lock of their mapping (policy `vma-lock`).
    VmaLockSuccess = "vma_lock_success",
    /// Faults that did not get the lock of their mapping and took the mmap lock.
    VmaLockAbort = "vma_lock_abort",
    /// Faults on a read that were resolved as one on a write, because the instruction also stores.
    RmwFaults = "pgfault_rmw",
    /// Faults that waited for I/O and were then resolved.
    MajorFaults = "pgmajfault",
    /// Faults answered with SIGSEGV: no mapping is there, or it does not allow the access. Linux
    /// does not count them at all.
    FaultsRefused = "faults_refused",
    /// Faults that the mapping allows and that found no page: a guard, a file's end, an I/O error, no memory.
    /// Linux counts them as `pgfault`, and for no thread.
    FaultsFailed = "faults_failed",
    /// Read faults that mapped the shared zero page.
    ZeroPageMaps = "zero_page_maps",
    /// Shared pages that a write copied.
    Copies = "pgcopy",
    /// Write faults that reused the page in place.
    Reuses = "pgreuse",
    /// Pages that `MADV_FREE` made lazily freed.
    LazyFree = "pglazyfree",
    /// Lazily freed pages that were reclaimed because memory was short.
    LazyFreed = "pglazyfreed",
    /// Pages that were read from a swap device.
    SwapIn = "pswpin",
    /// Pages that were mapped because a page before them was read from a slow swap device.
    SwapRa = "swap_ra",
    /// Pages that were written to a swap device.
    SwapOut = "pswpout",
    /// Pages that reclaim in the background has looked at.
    ScanBackground = "pgscan_kswapd",
    /// Pages that a fault without memory has looked at.
    ScanDirect = "pgscan_direct",
    /// Pages whose frames reclaim in the background has freed.
    StealBackground = "pgsteal_kswapd",
    /// Pages whose frames a fault without memory has freed.
    StealDirect = "pgsteal_direct",
    /// Pages that were used, and count as unused from then on.
    Deactivate = "pgdeactivate",
    /// Pages that were moved to another frame.
    Migrations = "pgmigrate_success",
    /// Flush operations that had to reach other CPUs.
    TlbRemoteFlush = "nr_tlb_remote_flush",
    /// CPUs that a flush neither interrupted nor waited for: they flush before they next use a translation of
    /// the space.
    TlbRemoteFlushDeferred = "nr_tlb_remote_flush_deferred",
    /// Flush requests received from other CPUs.
    TlbRemoteFlushReceived = "nr_tlb_remote_flush_received",
    /// Flushes of this CPU's whole TLB.
    TlbLocalFlushAll = "nr_tlb_local_flush_all",
    /// Flushes of single pages from this CPU's TLB.
    TlbLocalFlushOne = "nr_tlb_local_flush_one",
    /// Page tables allocated.
    TableAlloc = "pgtable_alloc",
    /// Page tables freed.
    TableFree = "pgtable_free",
    /// Huge pages that a fault mapped; the huge zero page is not counted.
    ThpFaultAlloc = "thp_fault_alloc",
    /// Faults that mapped a small page where a huge one was wanted, because no block of frames was free.
    ThpFaultFallback = "thp_fault_fallback",
    /// Huge pages that faults have added to shared memory.
    ThpFileAlloc = "thp_file_alloc",
    /// Faults that would have added one, and found no block of frames.
    ThpFileFallback = "thp_file_fallback",
    /// Entries that map a huge page of shared memory.
    ThpFileMapped = "thp_file_mapped",
    /// Read faults that mapped the shared huge zero page. Linux counts how often that page is made.
    ThpZeroPageMaps = "thp_zero_page_maps",
    /// Tables of small pages that were replaced by huge pages.
    ThpCollapse = "thp_collapse_alloc",
    /// Collapses for which there was no block of frames.
    ThpCollapseFailed = "thp_collapse_alloc_failed",
    /// Tables that the scan in the background left as they are: too many empty entries.
    ThpScanExceedNone = "thp_scan_exceed_none_pte",
    /// The same: too many pages are swapped out.
    ThpScanExceedSwap = "thp_scan_exceed_swap_pte",
    /// The same: too many pages are shared.
    ThpScanExceedShared = "thp_scan_exceed_share_pte",
    /// Entries of huge pages that were replaced by tables.
    ThpSplit = "thp_split_pmd",
    /// Mappings made by `mmap`, `brk` and stack growth.
    Mmap = "mmap",
    /// Unmap operations.
    Munmap = "munmap",
    /// Protection changes.
    Mprotect = "mprotect",
    /// Operations and faults that waited for a range that another operation held, or was zapping.
    RangeWaits = "range_waits",
    /// Address spaces made by fork.
    Fork = "fork",
    /// Faults of guests.
    PfTaken = "pf_taken",
    /// Faults of guests that mapped a page or restored access.
    PfFixed = "pf_fixed",
    /// Faults of guests that restored access from what the entry said.
    PfFast = "pf_fast",
    /// Faults of guests that the entry allowed already.
    PfSpurious = "pf_spurious",
    /// Switches of a CPU to another thread, or to none. Kernel only.
    ContextSwitches = "context_switches",
    /// System calls. Kernel only.
    Syscalls = "syscalls",
}

const COUNT: usize = Counter::ALL.len();

/// One CPU's counters.
#[derive(Debug)]
#[repr(align(128))]
pub struct Counters([Local; COUNT]);

impl Default for Counters {
    fn default() -> Self {
        Self([const { Local::new(0) }; COUNT])
    }
}

impl Counters {
    /// Returns counters at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds 1, on the CPU that owns the counters.
    #[inline]
    pub fn count(&self, counter: Counter) {
        self.0[counter as usize].add(1);
    }

    /// Adds `more`, on the CPU that owns the counters.
    #[inline]
    pub fn add(&self, counter: Counter, more: u64) {
        self.0[counter as usize].add(more);
    }

    /// Returns this CPU's share of a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].get()
    }
}
