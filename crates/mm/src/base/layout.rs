//! The layout of an address space.

/// The layout of an address space, and its limits. Byte addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The lowest address that a program may map (Linux: `vm.mmap_min_addr`).
    pub lowest: u64,
    /// The end of what a program may map (Linux: `TASK_SIZE`).
    pub end: u64,
    /// Addresses are chosen below this one, highest first.
    pub mmap_base: u64,
    /// The most bytes that a mapping which grows down may reach, until [`crate::AddressSpace::set_limits`].
    pub stack_limit: u64,
    /// Pages that one request may ask for without `MAP_NORESERVE`: the machine's memory, like Linux's
    /// heuristic overcommit.
    pub commit_pages: u64,
}

impl Layout {
    /// The layout of an x86-64 Linux process without randomisation and with an 8 MiB stack limit.
    pub const LINUX_X86_64: Layout = Layout {
        lowest: 0x1_0000,
        end: 0x7fff_ffff_f000,
        mmap_base: 0x7fff_f7ff_f000,
        stack_limit: 8 << 20,
        commit_pages: u64::MAX,
    };

    /// The same of an AArch64 process, with 48-bit addresses.
    pub const LINUX_AARCH64: Layout = Layout {
        end: 0x1_0000_0000_0000,
        mmap_base: 0xffff_f800_0000,
        ..Self::LINUX_X86_64
    };
}
