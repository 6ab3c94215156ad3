//! The Linux kernels to compare with, and the settings with which each is at its best.

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

/// What every series is told on its command line.
///
/// The first group makes Linux as fast as it can be: nothing that only protects or accounts. The
/// kernel's own use of `rep stosb` is off because an emulator counts each byte of it as an
/// instruction (page clearing then takes 4096 of them; this way 512): it is the better choice for
/// Linux here, in instructions and in time. Programs still see the processor as it is.
///
/// Its use of `cmpxchg16b` is off because QEMU 7.2 leaves rubbish in the flags after it, the trap
/// flag among it: an interrupt just then saves and restores that, and Linux dies now and then of a
/// double fault. Each allocation and release of a small object costs it about 13 instructions more
/// without.
///
/// Of the emulator's five levels of page tables it uses four, as ours does: with five, all it does
/// to tables costs a level more, and addresses from 2^47 on are answered differently.
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
    // What it says if it cannot run the program; it is silent otherwise.
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
