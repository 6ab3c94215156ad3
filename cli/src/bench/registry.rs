//! Every figure there is. To add one, add a row and a function.

use super::Better::{Higher, Lower};
use super::Group::{Kernel, KernelPair, Record, Soft};
use super::{Bench, kernel, record, soft};

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
        about: "the host: a load among 4 MiB; as slow as memory where others use its cache",
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
