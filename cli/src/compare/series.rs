//! The Linux kernels to compare with, and the settings with which each performs best.

use clap::ValueEnum;

/// A series of Linux kernels that Debian 12 has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Series {
    /// Faults take the mmap lock.
    #[value(name = "6.1")]
    V6_1,
    /// Faults take a lock of their mapping.
    #[value(name = "6.12")]
    V6_12,
}

/// The command line of every series.
///
/// The first group makes Linux as fast as possible: protection and accounting are off.
///
/// The kernel's own use of `rep stosb` is off, because an emulator counts each byte of it as an instruction.
/// Clearing a page takes 4096 instructions with it, and 512 without. So this is the better choice for Linux
/// here, in instructions and in time. Programs still see the processor as it is.
///
/// Its use of `cmpxchg16b` is off, because QEMU 7.2 leaves garbage in the flags after it, the trap flag
/// included. An interrupt at that moment saves and restores the garbage, and Linux occasionally dies of a
/// double fault. Without `cmpxchg16b`, each allocation and release of a small object costs Linux about 13
/// more instructions.
///
/// Linux uses four of the emulator's five levels of page tables, as our kernel does. With five, all work on tables
/// costs one level more, and addresses from 2^47 on are answered differently.
const SETTINGS: &[&str] = &[
    "mitigations=off",
    "transparent_hugepage=never",
    "init_on_alloc=0",
    "init_on_free=0",
    "randomize_kstack_offset=off",
    "hardened_usercopy=off",
    "cgroup_disable=memory",
    "psi=0",
    "audit=0",
    "lsm=",
    "nowatchdog",
    "preempt=none",
    "clearcpuid=erms,fsrm,cx16",
    "no5lvl",
    // The clock without a system call.
    "tsc=reliable",
    // On a busy host the emulated timer can be too late for the test of it at boot, and Linux panics.
    "no_timer_check",
    // As in our kernel: the same addresses in each run.
    "nokaslr",
    "norandmaps",
    // For its messages if it cannot run the program; otherwise it is silent.
    "console=ttyS0",
    "loglevel=3",
    "panic=-1",
];

/// What its first process writes before the program starts (`workloads/linux/init.c`).
const WRITTEN: &[&str] = &["/sys/kernel/mm/lru_gen/enabled=0"];

impl Series {
    /// Its name in tables and files.
    pub const fn peer(self) -> &'static str {
        match self {
            Series::V6_1 => "linux-6.1",
            Series::V6_12 => "linux-6.12",
        }
    }

    /// The name under which `./x` knows its modules.
    pub const fn modules(self) -> &'static str {
        match self {
            Series::V6_1 => "linux-6.1-modules",
            Series::V6_12 => "linux-6.12-modules",
        }
    }

    /// The name of its folder.
    pub fn folder(self) -> &'static str {
        self.peer().trim_start_matches("linux-")
    }

    /// Its command line.
    pub fn command_line(self) -> String {
        SETTINGS.join(" ")
    }

    /// All settings, for tables and files.
    pub fn settings(self) -> Vec<&'static str> {
        SETTINGS.iter().chain(WRITTEN).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Series;
    use clap::ValueEnum as _;

    #[test]
    fn a_series_is_chosen_by_its_number() {
        assert_eq!(Series::from_str("6.12", false), Ok(Series::V6_12));
        assert!(Series::from_str("6.2", false).is_err());
        for &series in Series::value_variants() {
            assert_eq!(Series::from_str(series.folder(), false), Ok(series));
        }
    }

    #[test]
    fn huge_pages_are_off() {
        assert!(
            Series::V6_1
                .command_line()
                .contains("transparent_hugepage=never")
        );
    }
}
