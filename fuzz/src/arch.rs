//! The architectures of the kernels that programs run on.

/// An architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    AArch64,
}

impl Arch {
    /// The end of user memory, with four levels of page tables.
    pub const fn user_end(self) -> u64 {
        match self {
            Arch::X86_64 => 0x7fff_ffff_f000,
            Arch::AArch64 => 1 << 48,
        }
    }
}
