//! Devices: the content of `/dev`.

use super::copy::{fill, gather};
use super::{hpet, input, stream};
use crate::arch::random;
use crate::console;
use crate::errno::{Answer, EINVAL, EIO, ENOSPC, ENXIO, Errno};
use crate::{kvm, swap};

/// A device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Device {
    Null,
    Zero,
    Full,
    /// `/dev/random` and `/dev/urandom`, which differ only in their numbers.
    Random(u32),
    /// `/dev/tty` and `/dev/console`: standard input and standard output.
    Terminal(u32),
    /// `/dev/hpet`: the machine's timer.
    Timer,
    /// A disk: programs can only swap to it.
    Disk(swap::Kind),
    /// `/dev/userfaultfd`, which makes userfaultfds.
    Userfault,
    /// `/dev/kvm`, which makes virtual machines.
    Kvm,
}

/// Fills a buffer with random bytes.
pub fn randomise(buffer: &mut [u8]) {
    for bytes in buffer.chunks_mut(8) {
        bytes.copy_from_slice(&random::next().to_le_bytes()[..bytes.len()]);
    }
}

impl Device {
    /// All devices, with their names in `/dev`.
    pub const ALL: &'static [(&'static str, Self)] = &[
        ("null", Self::Null),
        ("zero", Self::Zero),
        ("full", Self::Full),
        ("random", Self::Random(8)),
        ("urandom", Self::Random(9)),
        ("tty", Self::Terminal(0)),
        ("console", Self::Terminal(1)),
        ("hpet", Self::Timer),
        (swap::Kind::Zram.node(), Self::Disk(swap::Kind::Zram)),
        (swap::Kind::Ram.node(), Self::Disk(swap::Kind::Ram)),
        (swap::Kind::Virtio.node(), Self::Disk(swap::Kind::Virtio)),
        ("userfaultfd", Self::Userfault),
        ("kvm", Self::Kvm),
    ];

    /// Whether it is a block device.
    pub fn is_block(self) -> bool {
        matches!(self, Self::Disk(_))
    }

    /// Its major and minor number, as on Linux.
    pub fn number(self) -> (u32, u32) {
        match self {
            Self::Null => (1, 3),
            Self::Zero => (1, 5),
            Self::Full => (1, 7),
            Self::Random(minor) => (1, minor),
            Self::Terminal(minor) => (5, minor),
            Self::Timer => (10, 228),
            Self::Disk(kind) => (kind.major(), 0),
            // As the first device with a number of the kernel's choice.
            Self::Userfault => (10, 126),
            Self::Kvm => (10, 232),
        }
    }

    /// Permissions of its node.
    pub fn permissions(self) -> u32 {
        match self {
            Self::Terminal(1) | Self::Timer | Self::Userfault | Self::Kvm => 0o600,
            Self::Disk(_) => 0o660,
            _ => 0o666,
        }
    }

    /// Whether the machine has it.
    pub fn is_there(self) -> bool {
        match self {
            Self::Timer => hpet::device().is_some(),
            Self::Disk(kind) => swap::has(kind),
            Self::Kvm => kvm::is_there(),
            _ => true,
        }
    }

    /// Checks that it can be opened this way.
    ///
    /// # Errors
    /// `EINVAL`; `ENXIO` for a disk.
    pub fn check(self, writes: bool) -> Result<(), Errno> {
        match self {
            Self::Timer if writes => Err(EINVAL),
            Self::Disk(_) => Err(ENXIO),
            _ => Ok(()),
        }
    }

    pub fn read(self, to: u64, length: u64, wait: bool) -> Answer {
        match self {
            Self::Null => Ok(0),
            Self::Zero | Self::Full => fill(to, length, |chunk| chunk.fill(0)),
            Self::Random(_) => fill(to, length, randomise),
            Self::Terminal(_) => input::read(to, length, wait),
            // No interrupt was asked for, and a disk is never open.
            Self::Timer | Self::Disk(_) => Err(EIO),
            Self::Userfault | Self::Kvm => Err(EINVAL),
        }
    }

    pub fn write(self, from: u64, length: u64) -> Answer {
        match self {
            Self::Null | Self::Zero => Ok(length),
            Self::Full => Err(ENOSPC),
            // Linux stirs in what is written; the generator here does not need it.
            Self::Random(_) => gather(from, length, |piece| Ok(piece.len())),
            Self::Terminal(_) => stream::write(console::OUTPUT, from, length),
            Self::Timer | Self::Disk(_) | Self::Userfault | Self::Kvm => Err(EINVAL),
        }
    }
}
