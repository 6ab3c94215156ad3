//! The architectures that programs and machines have.

use std::env;

use clap::ValueEnum;
use elf::abi;

/// An architecture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Arch {
    /// 64-bit x86.
    #[default]
    #[value(name = "x86_64", alias = "x86-64", alias = "amd64")]
    X86_64,
    /// 64-bit Arm.
    #[value(name = "aarch64", alias = "arm64")]
    AArch64,
}

impl Arch {
    /// That of an ELF file for this machine, if it is one of them.
    pub const fn of_elf(machine: u16) -> Option<Self> {
        match machine {
            abi::EM_X86_64 => Some(Arch::X86_64),
            abi::EM_AARCH64 => Some(Arch::AArch64),
            _ => None,
        }
    }

    /// That of the host, if it is one of them.
    pub fn of_host() -> Option<Self> {
        let all = [Arch::X86_64, Arch::AArch64];
        all.into_iter()
            .find(|arch| arch.name() == env::consts::ARCH)
    }

    /// Its name in options and files.
    pub const fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::AArch64 => "aarch64",
        }
    }

    /// Its name in sentences.
    pub const fn title(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86-64",
            Arch::AArch64 => "AArch64",
        }
    }

    /// Debian's name of it.
    pub const fn debian(self) -> &'static str {
        match self {
            Arch::X86_64 => "amd64",
            Arch::AArch64 => "arm64",
        }
    }

    /// The end of the names of what is built for it.
    pub const fn suffix(self) -> &'static str {
        match self {
            Arch::X86_64 => "",
            Arch::AArch64 => "-aarch64",
        }
    }

    /// The first address above the memory of programs, as Linux has it with four levels of page tables.
    pub const fn user_end(self) -> u64 {
        match self {
            Arch::X86_64 => 0x7fff_ffff_f000,
            Arch::AArch64 => 1 << 48,
        }
    }
}

impl From<Arch> for faultless_fuzz::Arch {
    fn from(arch: Arch) -> Self {
        match arch {
            Arch::X86_64 => Self::X86_64,
            Arch::AArch64 => Self::AArch64,
        }
    }
}
