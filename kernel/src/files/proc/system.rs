//! Files of `/proc` about the whole system.

use super::super::huge_pages::Setting;
use super::own::memory::number;
use super::processes;
use super::text::Text;
use crate::arch::percpu;
use crate::arch::uaccess;
use crate::arch::{cpu, interrupts, random, time};
use crate::errno::{Answer, EINVAL, Errno};
use crate::files::source::{self, Kind};
use crate::heap;
use crate::memory::{self, Counter, machine, stacks};
use crate::swap;
use crate::syscall::identity;

/// A file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    BootId,
    CpuInfo,
    Huge(Setting),
    Interrupts,
    LoadAverage,
    MemInfo,
    PageCluster,
    Release,
    Stat,
    Swaps,
    Uptime,
    Uuid,
    Version,
    VmStat,
}

impl System {
    pub fn write(self, text: &mut Text) -> Result<(), Errno> {
        match self {
            Self::BootId => uuid(text, [0x0fa1_71e5, time::real_now() - time::now()]),
            Self::CpuInfo => cpu::describe(&mut |line| text.line(line)),
            Self::Huge(setting) => setting.write(text),
            Self::Interrupts => interrupts(text),
            Self::LoadAverage => text.line(format_args!(
                "0.00 0.00 0.00 1/{} {}",
                processes::thread_count(processes::current()),
                processes::current()
            )),
            Self::MemInfo => meminfo(text),
            Self::PageCluster => text.line(format_args!("{}", swap::cluster())),
            Self::Release => text.line(format_args!("{}", identity::RELEASE)),
            Self::Stat => stat(text),
            Self::Swaps => swaps(text),
            Self::Uptime => {
                let hundredths = time::now() / 10_000_000;
                let (seconds, rest) = (hundredths / 100, hundredths % 100);
                text.line(format_args!("{seconds}.{rest:02} 0.00"))
            }
            Self::Uuid => uuid(text, [random::next(), random::next()]),
            Self::Version => text.line(format_args!(
                "Linux version {} (faultless) #1 SMP",
                identity::RELEASE
            )),
            Self::VmStat => vmstat(text),
        }
    }
}

impl System {
    /// Returns a number that no other file of `/proc` has.
    pub fn number(self) -> u64 {
        match self {
            Self::BootId => 0,
            Self::CpuInfo => 1,
            Self::Interrupts => 2,
            Self::LoadAverage => 3,
            Self::MemInfo => 4,
            Self::PageCluster => 5,
            Self::Release => 6,
            Self::Stat => 7,
            Self::Swaps => 8,
            Self::Uptime => 9,
            Self::Uuid => 10,
            Self::Version => 11,
            Self::VmStat => 12,
            // In `/sys`.
            Self::Huge(_) => 0xff,
        }
    }

    /// Whether it is a setting, which can be written.
    pub fn is_setting(self) -> bool {
        self == Self::PageCluster || self.huge().is_some()
    }

    /// Returns the setting of huge pages, in `/sys`, if it is one.
    fn huge(self) -> Option<Setting> {
        match self {
            Self::Huge(setting) => Some(setting),
            _ => None,
        }
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// `EINVAL`, `EFAULT`.
    pub fn set(self, from: u64, length: u64) -> Answer {
        let mut text = [0; 16];
        let length = length.min(text.len() as u64);
        let text = &mut text[..length as usize];
        uaccess::read_bytes(from, text)?;
        if let Some(setting) = self.huge() {
            return setting.set(text).map(|()| length);
        }
        let number = number(text)?;
        match u32::try_from(number) {
            Ok(number) if self.is_setting() && number <= 31 => swap::set_cluster(number),
            _ => return Err(EINVAL),
        }
        Ok(length)
    }
}

fn uuid(text: &mut Text, [high, low]: [u64; 2]) -> Result<(), Errno> {
    let high = high & !0xf000 | 0x4000;
    let low = low & !(3 << 62) | 1 << 63;
    text.line(format_args!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    ))
}

fn interrupts(text: &mut Text) -> Result<(), Errno> {
    text.add(format_args!("    "))?;
    for cpu in 0..percpu::count() {
        text.add(format_args!("       CPU{cpu:<4}"))?;
    }
    text.bytes(b"\n")?;
    for kind in interrupts::ALL {
        text.add(format_args!("{:>4}:", kind.short_name()))?;
        for cpu in 0..percpu::count() {
            text.add(format_args!(" {:>10}", interrupts::count(cpu, *kind)))?;
        }
        text.line(format_args!("   {}", kind.name()))?;
    }
    Ok(())
}

fn stat(text: &mut Text) -> Result<(), Errno> {
    // Time is not accounted to user and kernel mode: all of it is shown as idle.
    let ticks = time::now() / 10_000_000;
    let count = u64::from(percpu::count());
    text.line(format_args!("cpu  0 0 0 {} 0 0 0 0 0 0", ticks * count))?;
    for cpu in 0..count {
        text.line(format_args!("cpu{cpu} 0 0 0 {ticks} 0 0 0 0 0 0"))?;
    }
    let total: u64 = (0..percpu::count())
        .flat_map(|cpu| interrupts::ALL.iter().map(move |&kind| (cpu, kind)))
        .map(|(cpu, kind)| interrupts::count(cpu, kind))
        .sum();
    text.line(format_args!("intr {total}"))?;
    let booted = (time::real_now() - time::now()) / 1_000_000_000;
    text.line(format_args!("btime {booted}"))?;
    text.line(format_args!("processes {}", processes::count()))?;
    text.line(format_args!("procs_running 1\nprocs_blocked 0"))
}

fn swaps(text: &mut Text) -> Result<(), Errno> {
    text.line(format_args!(
        "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"
    ))?;
    let mut written = Ok(());
    swap::for_each(&mut |kind, usage| {
        let [size, used] = [usage.slots, usage.used].map(|pages| pages * 4);
        // Columns of up to seven digits end in two tabs.
        let tab = |number: u64| if number < 10_000_000 { "\t" } else { "" };
        let line = format_args!(
            "/dev/{:<35}partition\t{size}\t{}{used}\t{}{}",
            kind.node(),
            tab(size),
            tab(used),
            usage.priority
        );
        written = written.and_then(|()| text.line(line));
    });
    written
}

fn vmstat(text: &mut Text) -> Result<(), Errno> {
    let (_, free) = machine::sizes();
    text.line(format_args!("nr_free_pages {}", free / 4096))?;
    text.line(format_args!("nr_shmem {}", file_pages()))?;
    let huge = machine::memory().huge_pages();
    text.line(format_args!("nr_anon_transparent_hugepages {huge}"))?;
    let (shared, mapped) = machine::memory().object_huge_pages();
    text.line(format_args!("nr_shmem_hugepages {shared}"))?;
    text.line(format_args!("nr_shmem_pmdmapped {mapped}"))?;
    text.line(format_args!("heap_bytes {}", heap::sizes().used))?;
    // As Linux counts: without accesses that no mapping allows.
    let refused = memory::total(Counter::FaultsRefused);
    let faults = memory::total(Counter::Faults).saturating_sub(refused);
    text.line(format_args!("pgfault {faults}"))?;
    for (name, counter) in [
        ("pgmajfault", Counter::MajorFaults),
        ("pswpin", Counter::SwapIn),
        ("swap_ra", Counter::SwapRa),
        ("pswpout", Counter::SwapOut),
        ("pgdeactivate", Counter::Deactivate),
        ("pgsteal_kswapd", Counter::StealBackground),
        ("pgsteal_direct", Counter::StealDirect),
        ("pgscan_kswapd", Counter::ScanBackground),
        ("pgscan_direct", Counter::ScanDirect),
        ("speculative_pgfault", Counter::Spf),
        ("pgreuse", Counter::Reuses),
        ("pglazyfree", Counter::LazyFree),
        ("pglazyfreed", Counter::LazyFreed),
        ("pgmigrate_success", Counter::Migrations),
        ("thp_fault_alloc", Counter::ThpFaultAlloc),
        ("thp_fault_fallback", Counter::ThpFaultFallback),
        ("thp_file_alloc", Counter::ThpFileAlloc),
        ("thp_file_fallback", Counter::ThpFileFallback),
        ("thp_file_mapped", Counter::ThpFileMapped),
        ("thp_zero_page_maps", Counter::ThpZeroPageMaps),
        ("thp_collapse_alloc", Counter::ThpCollapse),
        ("thp_collapse_alloc_failed", Counter::ThpCollapseFailed),
        ("thp_scan_exceed_none_pte", Counter::ThpScanExceedNone),
        ("thp_scan_exceed_swap_pte", Counter::ThpScanExceedSwap),
        ("thp_scan_exceed_share_pte", Counter::ThpScanExceedShared),
        ("thp_split_pmd", Counter::ThpSplit),
        ("nr_tlb_remote_flush", Counter::TlbRemoteFlush),
        (
            "nr_tlb_remote_flush_deferred",
            Counter::TlbRemoteFlushDeferred,
        ),
        (
            "nr_tlb_remote_flush_received",
            Counter::TlbRemoteFlushReceived,
        ),
        ("nr_tlb_local_flush_all", Counter::TlbLocalFlushAll),
        ("nr_tlb_local_flush_one", Counter::TlbLocalFlushOne),
    ] {
        text.line(format_args!("{name} {}", memory::total(counter)))?;
    }
    Ok(())
}

/// Pages of files and of memory with a descriptor.
fn file_pages() -> u64 {
    source::used(Kind::Tree) + source::used(Kind::Memory)
}

fn meminfo(text: &mut Text) -> Result<(), Errno> {
    let (total, free) = machine::sizes();
    let (swap_total, swap_free) = swap::sizes();
    let files = file_pages() * 4;
    let heap = heap::sizes();
    let (shared_huge, mapped_huge) = machine::memory().object_huge_pages();
    for (name, amount) in [
        ("MemTotal:", total >> 10),
        ("MemFree:", free >> 10),
        ("MemAvailable:", free >> 10),
        ("Buffers:", 0),
        ("Cached:", files),
        ("SwapCached:", 0),
        ("SwapTotal:", swap_total >> 10),
        ("SwapFree:", swap_free >> 10),
        ("Shmem:", files),
        // The memory taken by the heap, and the part in use. The heap's first piece, taken at boot, counts
        // only in the latter.
        ("Slab:", heap.taken >> 10),
        ("SUnreclaim:", heap.used.div_ceil(1024)),
        ("KernelStack:", stacks::size() >> 10),
        // Only shown: Linux's overcommit heuristic ignores it (`vm.overcommit_ratio`).
        ("CommitLimit:", (total / 2 + swap_total) / 1024),
        ("Committed_AS:", memory::committed() * 4),
        ("AnonHugePages:", machine::memory().huge_pages() * 2048),
        ("ShmemHugePages:", shared_huge * 2048),
        ("ShmemPmdMapped:", mapped_huge * 2048),
    ] {
        text.line(format_args!("{name:15} {amount:8} kB"))?;
    }
    let pool = machine::memory().pool_sizes();
    for (name, count) in [
        ("HugePages_Total:", pool.total),
        ("HugePages_Free:", pool.free),
        ("HugePages_Rsvd:", pool.reserved),
        ("HugePages_Surp:", pool.surplus),
    ] {
        text.line(format_args!("{name:18} {count:5}"))?;
    }
    for (name, amount) in [("Hugepagesize:", 2048), ("Hugetlb:", pool.total * 2048)] {
        text.line(format_args!("{name:15} {amount:8} kB"))?;
    }
    Ok(())
}
