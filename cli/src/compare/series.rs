//! The Linux kernels to compare with, and the settings with which each performs best.

use clap::ValueEnum;

use crate::arch::Arch;

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
    // As in our kernel: the same addresses in each run.
    "nokaslr",
    "norandmaps",
    // It is silent, unless it cannot run the program.
    "loglevel=3",
    "panic=-1",
];

/// What is added on x86-64.
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
const ON_X86_64: &[&str] = &[
    "clearcpuid=erms,fsrm,cx16",
    "no5lvl",
    // The clock without a system call.
    "tsc=reliable",
    // On a busy host the emulated timer can be too late for the test of it at boot, and Linux panics.
    "no_timer_check",
    "console=ttyS0",
];

/// What is added on AArch64: four levels of page tables there, too (`arm64.nolva`; Linux 6.1 has no others).
const ON_AARCH64: &[&str] = &["arm64.nolva", "console=ttyAMA0"];

const fn of_arch(arch: Arch) -> &'static [&'static str] {
    match arch {
        Arch::X86_64 => ON_X86_64,
        Arch::AArch64 => ON_AARCH64,
    }
}

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

    /// The name of its folder, without the suffix of the architecture.
    pub fn folder(self) -> &'static str {
        self.peer().trim_start_matches("linux-")
    }

    /// Its command line.
    pub fn command_line(self, arch: Arch) -> String {
        [SETTINGS, of_arch(arch)].concat().join(" ")
    }

    /// All settings, for tables and files.
    pub fn settings(self, arch: Arch) -> Vec<&'static str> {
        [SETTINGS, of_arch(arch), WRITTEN].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::{Arch, Series};
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
    fn settings_are_of_the_architecture() {
        let line = |arch| Series::V6_1.command_line(arch);
        for arch in [Arch::X86_64, Arch::AArch64] {
            assert!(line(arch).contains("transparent_hugepage=never"));
        }
        assert!(line(Arch::X86_64).contains("console=ttyS0"));
        assert!(line(Arch::AArch64).contains("console=ttyAMA0"));
    }
}
