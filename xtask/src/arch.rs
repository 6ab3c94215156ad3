//! The architectures that kernels and programs are built for.

/// An architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    AArch64,
}

impl Arch {
    /// The end of the names of what is built for it, and of what the command asks for.
    pub const fn suffix(self) -> &'static str {
        match self {
            Arch::X86_64 => "",
            Arch::AArch64 => "-aarch64",
        }
    }

    /// Splits the name of something that the command asks for.
    pub fn split(name: &str) -> (&str, Self) {
        match name.strip_suffix(Arch::AArch64.suffix()) {
            Some(name) => (name, Arch::AArch64),
            None => (name, Arch::X86_64),
        }
    }

    /// The target of the kernel.
    pub const fn bare_metal(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64-unknown-none",
            Arch::AArch64 => "aarch64-unknown-none-softfloat",
        }
    }

    /// The target of Linux's programs, with the C library of Debian.
    pub const fn linux(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64-unknown-linux-gnu",
            Arch::AArch64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// Debian's name of it.
    pub const fn debian(self) -> &'static str {
        match self {
            Arch::X86_64 => "amd64",
            Arch::AArch64 => "arm64",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Arch;

    #[test]
    fn a_name_ends_in_its_architecture() {
        assert_eq!(Arch::split("kernel"), ("kernel", Arch::X86_64));
        assert_eq!(Arch::split("kernel-aarch64"), ("kernel", Arch::AArch64));
        assert_eq!(
            Arch::split("linux-6.12-modules-aarch64"),
            ("linux-6.12-modules", Arch::AArch64)
        );
    }
}
