//! The suite: every packaged workload that measures something, with a name for each form of it.

use std::ffi::OsString;

use crate::huge::Huge;
use crate::size::Size;
use crate::swap::{Swap, SwapDevice};

/// A program to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its name in tables and files.
    pub name: String,
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// The fewest CPUs with which its figure means anything.
    pub from_cpus: u32,
    /// The swap of its machines.
    pub swap: Option<Swap>,
    /// The memory of its machines, where that is part of what is measured.
    pub memory: Option<Size>,
    /// Where they use huge pages, if it does not matter what the user says.
    pub huge: Option<Huge>,
}

/// A workload of the suite.
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// The command line, in which these are filled in:
    ///
    /// * `{cpus}` and `{seconds}`.
    /// * `{processes}`: a process for each CPU; empty with one CPU.
    /// * `{samples}`: `seconds` samples of a second; with one CPU, of a quarter of a second. There nothing
    ///   disturbs a sample, and an emulated second is long.
    line: &'static str,
    /// What one operation is.
    pub about: &'static str,
    /// The fewest CPUs with which its figure means anything.
    pub from_cpus: u32,
}

/// The least memory of the machines that run the suite: the largest workload has a process of
/// 1 GiB, or files of 128 MiB for each of four tasks, and copies.
pub const MEMORY: Size = Size::mebi(3072);

/// The size of the swap of the workloads that measure it.
const SWAP: Size = Size::mebi(512);

/// The memory of machines in which it is to be short.
const SHORT: Size = Size::mebi(256);

/// The suite, in the order in which it is run.
pub const SUITE: &[Entry] = &[
    Entry {
        name: "page_fault1_threads",
        line: "page_fault1 -t {cpus} {samples}",
        about: "a page of a fresh mapping is written to; threads",
        from_cpus: 1,
    },
    Entry {
        name: "page_fault1_huge",
        line: "page_fault1 -t {cpus} {samples}",
        about: "the same; threads, with huge pages",
        from_cpus: 1,
    },
    Entry {
        name: "page_fault1_processes",
        line: "page_fault1 -P -t {cpus} {samples}",
        about: "the same; processes",
        from_cpus: 1,
    },
    Entry {
        name: "page_fault2_threads",
        line: "page_fault2 -t {cpus} {samples}",
        about: "a page of a file mapped private is written to; threads",
        from_cpus: 1,
    },
    Entry {
        name: "page_fault2_processes",
        line: "page_fault2 -P -t {cpus} {samples}",
        about: "the same; processes",
        from_cpus: 1,
    },
    Entry {
        name: "page_fault3_threads",
        line: "page_fault3 -t {cpus} {samples}",
        about: "a page of a file mapped shared is written to; threads",
        from_cpus: 1,
    },
    Entry {
        name: "page_fault3_processes",
        line: "page_fault3 -P -t {cpus} {samples}",
        about: "the same; processes",
        from_cpus: 1,
    },
    Entry {
        name: "ebizzy_compat",
        line: "ebizzy -mTRp -t {cpus} -S {seconds}",
        about: "a page is mapped, touched and unmapped, among split mappings",
        from_cpus: 1,
    },
    Entry {
        name: "ebizzy_true_random",
        line: "ebizzy -mTp --true-random -t {cpus} -S {seconds}",
        about: "the same with 1 to 128 pages",
        from_cpus: 1,
    },
    Entry {
        name: "mmap1",
        line: "mmap1 -t {cpus} {samples}",
        about: "128 MiB are mapped and unmapped, untouched",
        from_cpus: 1,
    },
    Entry {
        name: "mmap2_shared",
        line: "mmap2 -t {cpus} {samples}",
        about: "128 MiB of a file are mapped shared and unmapped, untouched",
        from_cpus: 1,
    },
    Entry {
        name: "mmap2_private",
        line: "mmap2 -p -t {cpus} {samples}",
        about: "the same; private",
        from_cpus: 1,
    },
    Entry {
        name: "mremap1",
        line: "mremap1 -t {cpus} {samples}",
        about: "64 MiB, all written, are moved; both places begin with a page table",
        from_cpus: 1,
    },
    Entry {
        name: "mremap1_uneven",
        line: "mremap1 -u -t {cpus} {samples}",
        about: "the same; the target begins one page past a page table",
        from_cpus: 1,
    },
    Entry {
        name: "malloc1",
        line: "malloc1 -t {cpus} {samples}",
        about: "the same by malloc and free (musl: mmap and munmap)",
        from_cpus: 1,
    },
    Entry {
        name: "malloc1_huge",
        line: "malloc1 -t {cpus} {samples}",
        about: "the same, with huge pages",
        from_cpus: 1,
    },
    Entry {
        name: "brk1",
        line: "brk1 {processes} {samples}",
        about: "the break is moved by a page",
        from_cpus: 1,
    },
    Entry {
        name: "brk1_touched",
        line: "brk1 -w {processes} {samples}",
        about: "the same; the page is written to between up and down",
        from_cpus: 1,
    },
    Entry {
        name: "thread_storm",
        line: "thread_storm -t {cpus} {samples}",
        about: "a thread is started and ends, 8 at once",
        from_cpus: 1,
    },
    Entry {
        name: "fork_small",
        line: "fork1 -t {cpus} {samples}",
        about: "fork, exit, wait; a small parent",
        from_cpus: 1,
    },
    Entry {
        name: "fork_large",
        line: "fork1 -b 64M -t {cpus} {samples}",
        about: "the same; the parent has 64 MiB",
        from_cpus: 1,
    },
    Entry {
        name: "fork_large_written",
        line: "fork1 -b 64M -w 256 -t {cpus} {samples}",
        about: "the same; the child writes to 256 pages",
        from_cpus: 1,
    },
    Entry {
        name: "fork_1g",
        line: "fork1 -b 1G -t {cpus} {samples}",
        about: "fork, exit, wait; the parent has 1 GiB",
        from_cpus: 1,
    },
    Entry {
        name: "fork_1g_huge",
        line: "fork1 -b 1G -t {cpus} {samples}",
        about: "the same, with huge pages",
        from_cpus: 1,
    },
    Entry {
        name: "fork_1000_mappings",
        line: "fork1 -n 1000 -t {cpus} {samples}",
        about: "the same; the parent has 1,000 mappings of a page",
        from_cpus: 1,
    },
    Entry {
        name: "fork_stall",
        line: "fork_stall -b 1G",
        about: "the longest access of another thread during a fork of 1 GiB",
        from_cpus: 2,
    },
    Entry {
        name: "exec_small",
        line: "exec1 -t {cpus} {samples}",
        about: "fork, execve, exit, wait; a small parent",
        from_cpus: 1,
    },
    Entry {
        name: "exec_large",
        line: "exec1 -b 64M -t {cpus} {samples}",
        about: "the same; the parent has 64 MiB",
        from_cpus: 1,
    },
    Entry {
        name: "exec_vfork",
        line: "exec1 -v -b 64M -t {cpus} {samples}",
        about: "vfork, execve, exit, wait; the parent has 64 MiB",
        from_cpus: 1,
    },
    Entry {
        name: "pipe1",
        line: "pipe1 -t {cpus} {samples}",
        about: "512 bytes are written to a pipe and read, without a wait",
        from_cpus: 1,
    },
    Entry {
        name: "context_switch_threads",
        line: "context_switch1 -t {cpus} {samples}",
        about: "a byte to another thread and back",
        from_cpus: 1,
    },
    Entry {
        name: "context_switch_processes",
        line: "context_switch1 -P -t {cpus} {samples}",
        about: "a byte to another process and back",
        from_cpus: 1,
    },
    Entry {
        name: "uffd_missing",
        line: "uffd_missing -t {cpus} {samples}",
        about: "a page that another thread brings by a userfaultfd is read",
        from_cpus: 1,
    },
    Entry {
        name: "uffd_wp",
        line: "uffd_wp -t {cpus} {samples}",
        about: "a page of which another thread ends the protection, by a userfaultfd, is written to",
        from_cpus: 1,
    },
    Entry {
        name: "forceswap_1",
        line: "forceswap 1 5000 1",
        about: "a page is paged out to zram, read and written; one at a time",
        from_cpus: 1,
    },
    Entry {
        name: "forceswap_64",
        line: "forceswap 1 100 64",
        about: "the same; 64 at a time",
        from_cpus: 1,
    },
    Entry {
        name: "forceswap_ram_1",
        line: "forceswap 1 5000 1",
        about: "the same with a RAM disk; one at a time",
        from_cpus: 1,
    },
    Entry {
        name: "forceswap_ram_64",
        line: "forceswap 1 100 64",
        about: "the same; 64 at a time",
        from_cpus: 1,
    },
    Entry {
        name: "overcommitted_random",
        line: "overcommit 384 20000",
        about: "random writes to 384 MiB with 256 MiB of memory; for each that faults",
        from_cpus: 1,
    },
];

impl Entry {
    /// The swap of its machines, if it measures that.
    pub fn swap(&self) -> Option<Swap> {
        let device = match self.name.contains("_ram_") {
            false => SwapDevice::Zram,
            true => SwapDevice::Ram,
        };
        let program = self.line.split(' ').next();
        let is_measured = matches!(program, Some("forceswap" | "overcommit"));
        is_measured.then_some(Swap { size: SWAP, device })
    }

    /// Where its machines use huge pages: only those that measure them have any.
    fn huge(&self) -> Huge {
        match self.name.ends_with("_huge") {
            true => Huge::Always,
            false => Huge::Never,
        }
    }

    /// The memory of its machines, if they are to have less than it uses.
    fn memory(&self) -> Option<Size> {
        self.line.starts_with("overcommit ").then_some(SHORT)
    }

    /// The job on a machine with `cpus` CPUs.
    pub fn job(&self, cpus: u32, seconds: u32) -> Job {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let cpus_text = cpus.to_string();
        let fill = |word: &str| match word {
            "{cpus}" => vec![cpus_text.clone()],
            "{seconds}" => vec![seconds.to_string()],
            "{samples}" if cpus == 1 => words(&["-s", &seconds.to_string(), "-m", "250"]),
            "{samples}" => words(&["-s", &seconds.to_string()]),
            "{processes}" if cpus == 1 => Vec::new(),
            "{processes}" => words(&["-P", "-t", &cpus_text]),
            word => vec![word.to_owned()],
        };
        Job {
            name: self.name.to_owned(),
            program: self
                .line
                .split(' ')
                .flat_map(fill)
                .map(Into::into)
                .collect(),
            from_cpus: self.from_cpus,
            swap: self.swap(),
            memory: self.memory(),
            huge: Some(self.huge()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SUITE;
    use crate::paths;

    #[test]
    fn every_entry_is_a_packaged_workload_with_a_name_of_its_own() {
        let packaged = paths::packaged();
        for entry in SUITE {
            let job = entry.job(3, 7);
            let program = job.program[0].to_str().unwrap();
            assert!(packaged.iter().any(|name| name == program), "{program}");
            assert!(job.program.iter().all(|word| !word.is_empty()));
            let same = SUITE.iter().filter(|other| other.name == entry.name);
            assert_eq!(same.count(), 1, "{}", entry.name);
        }
    }

    #[test]
    fn what_swaps_has_swap() {
        let swapping = SUITE.iter().filter(|entry| entry.swap().is_some());
        let names: Vec<_> = swapping.map(|entry| entry.name).collect();
        let expected = [
            "forceswap_1",
            "forceswap_64",
            "forceswap_ram_1",
            "forceswap_ram_64",
            "overcommitted_random",
        ];
        assert_eq!(names, expected);
        assert!(SUITE[0].job(1, 1).swap.is_none());
    }

    #[test]
    fn the_machine_is_filled_in() {
        let job = SUITE[0].job(3, 7);
        assert_eq!(job.program, ["page_fault1", "-t", "3", "-s", "7"]);
        let brk = SUITE.iter().find(|entry| entry.name == "brk1").unwrap();
        assert_eq!(brk.job(1, 1).program, ["brk1", "-s", "1", "-m", "250"]);
        assert_eq!(brk.job(2, 1).program, ["brk1", "-P", "-t", "2", "-s", "1"]);
    }
}
