//! Every figure. To add one, add a row and a function.

use super::Better::{Higher, Lower};
use super::Group::{Kernel, KernelPair, Record, Soft};
use super::{Bench, before, growth, kernel, record, soft};

/// The figures, in the order in which they are taken.
pub const BENCHES: &[Bench] = &[
    Bench {
        name: "fault_over_limit_ns",
        unit: "ns",
        better: Lower,
        group: Soft,
        about: "a fault, beyond zeroing the same frames and storing an entry; one mapping",
        take: soft::fault_over_limit,
    },
    Bench {
        name: "fault_over_limit_100k_ns",
        unit: "ns",
        better: Lower,
        group: Soft,
        about: "the same among 100,000 mappings, in random order",
        take: soft::fault_over_limit_100k,
    },
    Bench {
        name: "find_100k_ns",
        unit: "ns",
        better: Lower,
        group: Soft,
        about: "the lookup alone, among 100,000 mappings, in random order",
        take: soft::find_100k,
    },
    Bench {
        name: "unmap_100k_ns",
        unit: "ns",
        better: Lower,
        group: Soft,
        about: "munmap of a page that is there, among 100,000 mappings, in random order",
        take: soft::unmap_100k,
    },
    Bench {
        name: "protect_100k_ns",
        unit: "ns",
        better: Lower,
        group: Soft,
        about: "mprotect of a page that is there, among 100,000 mappings, in random order",
        take: soft::protect_100k,
    },
    Bench {
        name: "mmap_1gib_vs_1mib",
        unit: "ratio",
        better: Lower,
        group: Soft,
        about: "mmap of 1 GiB, untouched: time against 1 MiB",
        take: soft::mmap_1gib_vs_1mib,
    },
    Bench {
        name: "host_load_4m_ns",
        unit: "ns",
        better: Lower,
        group: Soft,
        about: "the host: a load among 4 MiB; as slow as memory if other programs use the cache",
        take: soft::load_4m,
    },
    Bench {
        name: "speculative_vs_classic_1t",
        unit: "ratio",
        better: Lower,
        group: Soft,
        about: "one thread: time under speculative, against classic",
        take: soft::speculative_vs_classic_1t,
    },
    Bench {
        name: "one_mapping_vs_two_spaces_classic",
        unit: "ratio",
        better: Higher,
        group: Soft,
        about: "two threads' faults in one mapping, against two address spaces; classic",
        take: soft::one_mapping_vs_two_spaces_classic,
    },
    Bench {
        name: "one_mapping_vs_two_spaces_vma_lock",
        unit: "ratio",
        better: Higher,
        group: Soft,
        about: "the same under vma-lock",
        take: soft::one_mapping_vs_two_spaces_vma_lock,
    },
    Bench {
        name: "one_mapping_vs_two_spaces_speculative",
        unit: "ratio",
        better: Higher,
        group: Soft,
        about: "the same under speculative",
        take: soft::one_mapping_vs_two_spaces_speculative,
    },
    Bench {
        name: "churn_all_cpus_classic",
        unit: "ratio",
        better: Higher,
        group: Soft,
        about: "a thread on each CPU, at most 16, maps, touches and unmaps 16 pages in one address space: speed against one thread; classic",
        take: soft::churn_all_cpus_classic,
    },
    Bench {
        name: "churn_all_cpus_vma_lock",
        unit: "ratio",
        better: Higher,
        group: Soft,
        about: "the same under vma-lock",
        take: soft::churn_all_cpus_vma_lock,
    },
    Bench {
        name: "churn_all_cpus_speculative",
        unit: "ratio",
        better: Higher,
        group: Soft,
        about: "the same under speculative",
        take: soft::churn_all_cpus_speculative,
    },
    Bench {
        name: "munmap_exclusive_us_80mb",
        unit: "µs",
        better: Lower,
        group: Soft,
        about: "munmap of 80 MB, all touched: the time for which no other writer may change that range",
        take: soft::exclusive_80mb,
    },
    Bench {
        name: "munmap_exclusive_us_800mb",
        unit: "µs",
        better: Lower,
        group: Soft,
        about: "the same of 800 MB",
        take: soft::exclusive_800mb,
    },
    Bench {
        name: "munmap_exclusive_us_8gb",
        unit: "µs",
        better: Lower,
        group: Soft,
        about: "the same of 8 GB, of which every page is the zero page",
        take: soft::exclusive_8gb,
    },
    Bench {
        name: "munmap_exclusive_us_80gb",
        unit: "µs",
        better: Lower,
        group: Soft,
        about: "the same of 80 GB, likewise",
        take: soft::exclusive_80gb,
    },
    Bench {
        name: "munmap_exclusive_us_80gb_downgraded",
        unit: "µs",
        better: Lower,
        group: Soft,
        about: "the same under classic: the time for which the mmap lock is held exclusively",
        take: soft::exclusive_80gb_downgraded,
    },
    Bench {
        name: "munmap_exclusive_us_80gb_held",
        unit: "µs",
        better: Lower,
        group: Soft,
        about: "the same, the mmap lock being held throughout",
        take: soft::exclusive_80gb_held,
    },
    Bench {
        name: "reclaim_stall_p99_fault",
        unit: "ratio",
        better: Lower,
        group: Soft,
        about: "99th percentile of a fault while another CPU writes through 1.5 times the memory, against while it writes fresh pages",
        take: soft::reclaim_stall_p99_fault,
    },
    Bench {
        name: "munmap_disjoint_waits",
        unit: "waits",
        better: Lower,
        group: Soft,
        about: "beside a munmap of 400 MB: operations on other ranges that waited",
        take: soft::disjoint_waits,
    },
    Bench {
        name: "munmap_stall_p99_mmap",
        unit: "ratio",
        better: Lower,
        group: Soft,
        about: "beside it: 99th percentile of mmap and munmap elsewhere, against beside a munmap of another space",
        take: soft::stall_p99_mmap,
    },
    Bench {
        name: "munmap_stall_p99_mprotect",
        unit: "ratio",
        better: Lower,
        group: Soft,
        about: "the same of mprotect, there and back",
        take: soft::stall_p99_mprotect,
    },
    Bench {
        name: "munmap_stall_p99_fault",
        unit: "ratio",
        better: Lower,
        group: Soft,
        about: "the same of a fault and a discard",
        take: soft::stall_p99_fault,
    },
    Bench {
        name: "munmap_stall_p99_fork",
        unit: "ratio",
        better: Lower,
        group: Soft,
        about: "the same of a fork",
        take: soft::stall_p99_fork,
    },
    Bench {
        name: "mmap_fixed_ns",
        unit: "ns",
        better: Lower,
        group: Soft,
        about: "mmap of a page at a free place that is named",
        take: soft::mmap_fixed,
    },
    Bench {
        name: "mmap_anywhere_ns",
        unit: "ns",
        better: Lower,
        group: Soft,
        about: "mmap of a page where there is room",
        take: soft::mmap_anywhere,
    },
    Bench {
        name: "munmap_1_ns",
        unit: "ns",
        better: Lower,
        group: Soft,
        about: "munmap of a mapping of one page that is there",
        take: soft::munmap_1,
    },
    Bench {
        name: "munmap_16_ns",
        unit: "ns",
        better: Lower,
        group: Soft,
        about: "the same of 16 pages",
        take: soft::munmap_16,
    },
    Bench {
        name: "munmap_small_vs_before",
        unit: "ratio",
        better: Lower,
        group: Soft,
        about: "a small munmap, against the same before ranges were locked; 1 page or 16, the worse",
        take: before::munmap_small_vs_before,
    },
    Bench {
        name: "mmap_churn_one_vs_two_spaces",
        unit: "ratio",
        better: Higher,
        group: Soft,
        about: "two threads that map, touch and unmap 16 pages: speed in one address space, against in two",
        take: soft::mmap_churn_one_vs_two_spaces,
    },
    Bench {
        name: "soft_flush_page_ns",
        unit: "ns",
        better: Lower,
        group: Soft,
        about: "a page more in a TLB flush of up to 128 pages",
        take: soft::flush_page,
    },
    Bench {
        name: "soft_flush_pass_ns",
        unit: "ns",
        better: Lower,
        group: Soft,
        about: "a TLB flush of more pages: one pass over the TLB",
        take: soft::flush_pass,
    },
    Bench {
        name: "soft_flush_refill_ns",
        unit: "ns",
        better: Lower,
        group: Soft,
        about: "what it costs to walk again for all that the TLB held",
        take: soft::flush_refill,
    },
    Bench {
        name: "shared_lines_disjoint_mmap",
        unit: "lines",
        better: Lower,
        group: Record,
        about: "lines that two CPUs both write, each mapping, touching and unmapping its own range",
        take: record::shared_lines_disjoint_mmap,
    },
    Bench {
        name: "shared_lines_per_fault",
        unit: "lines",
        better: Lower,
        group: Record,
        about: "lines written by a fault and by one more than 8 pages away in the same mapping",
        take: record::shared_lines_per_fault,
    },
    Bench {
        name: "shared_lines_amortised",
        unit: "lines",
        better: Lower,
        group: Record,
        about: "the same for what faults do in batches, per fault",
        take: record::shared_lines_amortised,
    },
    Bench {
        name: "kernel_instructions_per_fault",
        unit: "instructions",
        better: Lower,
        group: Kernel,
        about: "guest instructions per fault of page_fault1; 1 CPU",
        take: kernel::instructions_per_fault,
    },
    Bench {
        name: "kernel_instructions_per_record",
        unit: "instructions",
        better: Lower,
        group: Kernel,
        about: "guest instructions per record of ebizzy -mTRp; 1 CPU",
        take: kernel::instructions_per_record,
    },
    Bench {
        name: "growth",
        unit: "ratio",
        better: Lower,
        group: Kernel,
        about: "guest instructions of a call with 256 MiB and 10,000 mappings, against a page; the worst",
        take: growth::growth,
    },
    Bench {
        name: "tracing_off_vs_compiled_out",
        unit: "ratio",
        better: Lower,
        group: KernelPair,
        about: "guest instructions with events off, against a kernel without; page_fault1, ebizzy",
        take: kernel::tracing_off_vs_compiled_out,
    },
    Bench {
        name: "kernel_share_speculative_2_cpus",
        unit: "ratio",
        better: Higher,
        group: Kernel,
        about: "share of faults resolved speculatively, ebizzy -mTRp -t 8, 2 CPUs",
        take: kernel::share_speculative_2_cpus,
    },
    Bench {
        name: "kernel_share_speculative_4_cpus",
        unit: "ratio",
        better: Higher,
        group: Kernel,
        about: "the same with 4 CPUs",
        take: kernel::share_speculative_4_cpus,
    },
];

/// The figure of that name.
pub fn find(name: &str) -> Option<&'static Bench> {
    BENCHES.iter().find(|bench| bench.name == name)
}

#[cfg(test)]
mod tests {
    use super::{BENCHES, find};

    #[test]
    fn every_name_is_found_once() {
        for bench in BENCHES {
            assert_eq!(
                BENCHES
                    .iter()
                    .filter(|other| other.name == bench.name)
                    .count(),
                1
            );
            assert!(find(bench.name).is_some());
        }
        assert!(find("no_such_figure").is_none());
    }
}
