//! The fixed names of `/proc`.

use super::super::huge_pages::Setting;
use super::system::System;
use super::{Current, Entry};

/// A name and its entry.
pub type Row = (&'static str, Entry);

/// Looks up a name in a table.
pub fn find(table: &[Row], name: &[u8]) -> Option<Entry> {
    let row = table.iter().find(|(other, _)| other.as_bytes() == name);
    row.map(|&(_, entry)| entry)
}

/// A directory with fixed content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Folder {
    Sys,
    Fs,
    Kernel,
    KernelRandom,
    Memory,
}

/// `/proc`.
pub const ROOT: &[Row] = &[
    ("cmdline", Entry::Fixed("\n")),
    ("cpuinfo", Entry::System(System::CpuInfo)),
    ("filesystems", Entry::Fixed("nodev\tproc\nnodev\ttmpfs\n")),
    ("interrupts", Entry::System(System::Interrupts)),
    ("loadavg", Entry::System(System::LoadAverage)),
    ("meminfo", Entry::System(System::MemInfo)),
    ("mounts", Entry::Current(Current::Mounts)),
    ("self", Entry::Current(Current::Process)),
    ("stat", Entry::System(System::Stat)),
    ("swaps", Entry::System(System::Swaps)),
    ("sys", Entry::Folder(Folder::Sys)),
    ("thread-self", Entry::Current(Current::Thread)),
    ("uptime", Entry::System(System::Uptime)),
    ("version", Entry::System(System::Version)),
    ("vmstat", Entry::System(System::VmStat)),
];

const SYS: &[Row] = &[
    ("fs", Entry::Folder(Folder::Fs)),
    ("kernel", Entry::Folder(Folder::Kernel)),
    ("vm", Entry::Folder(Folder::Memory)),
];

const FS: &[Row] = &[
    ("nr_open", Entry::Fixed("4096\n")),
    ("pipe-max-size", Entry::Fixed("1048576\n")),
];

const KERNEL: &[Row] = &[
    ("cap_last_cap", Entry::Fixed("40\n")),
    ("hostname", Entry::Fixed("faultless\n")),
    ("ngroups_max", Entry::Fixed("65536\n")),
    ("osrelease", Entry::System(System::Release)),
    ("ostype", Entry::Fixed("Linux\n")),
    ("pid_max", Entry::Fixed("4194304\n")),
    ("random", Entry::Folder(Folder::KernelRandom)),
    ("randomize_va_space", Entry::Fixed("0\n")),
    ("version", Entry::Fixed("#1 SMP\n")),
];

const RANDOM: &[Row] = &[
    ("boot_id", Entry::System(System::BootId)),
    ("entropy_avail", Entry::Fixed("256\n")),
    ("poolsize", Entry::Fixed("256\n")),
    ("uuid", Entry::System(System::Uuid)),
];

/// Linux's defaults. Nothing is read ahead from swap, or swapped out by itself, and the pool of huge pages is empty.
const MEMORY: &[Row] = &[
    ("max_map_count", Entry::Fixed("65530\n")),
    ("mmap_min_addr", Entry::Fixed("65536\n")),
    ("nr_hugepages", Entry::System(System::Huge(Setting::Pool))),
    ("overcommit_memory", Entry::Fixed("0\n")),
    ("overcommit_ratio", Entry::Fixed("50\n")),
    ("page-cluster", Entry::System(System::PageCluster)),
    ("swappiness", Entry::Fixed("0\n")),
];

impl Folder {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sys => "sys",
            Self::Fs => "fs",
            Self::Kernel => "kernel",
            Self::KernelRandom => "random",
            Self::Memory => "vm",
        }
    }

    pub fn entries(self) -> &'static [Row] {
        match self {
            Self::Sys => SYS,
            Self::Fs => FS,
            Self::Kernel => KERNEL,
            Self::KernelRandom => RANDOM,
            Self::Memory => MEMORY,
        }
    }

    /// The parent directory, unless that is `/proc`.
    pub fn parent(self) -> Option<Self> {
        match self {
            Self::Sys => None,
            Self::KernelRandom => Some(Self::Kernel),
            _ => Some(Self::Sys),
        }
    }
}
