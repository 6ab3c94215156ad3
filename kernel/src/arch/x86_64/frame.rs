//! The saved state of user code, as every entry path lays it out on the kernel stack.
//!
//! The entry code pushes the registers that the calling convention lets Rust clobber. The other six are still
//! in the CPU then; only the slow path, which needs them all, pushes them below. So a fast path has a
//! `FastFrame`, and six pushes turn the same memory into a `TrapFrame`.

/// All user registers.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct TrapFrame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub fast: FastFrame,
}

/// The registers that a call may clobber, and what the CPU pushed.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct FastFrame {
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rax: u64,
    /// The exception's number, or [`VECTOR_SYSCALL`].
    pub vector: u64,
    /// The exception's error code, or the system call's number.
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

/// Marks a frame that a system call made.
pub const VECTOR_SYSCALL: u64 = 0x100;
/// The same, after the call was restarted or its frame replaced: it is not restarted again.
pub const VECTOR_NONE: u64 = 0x101;

/// The size of a frame with all registers.
pub const FRAME_SIZE: usize = size_of::<TrapFrame>();

impl TrapFrame {
    /// The state in which a program begins.
    pub fn entry(ip: u64, sp: u64) -> Self {
        Self {
            fast: FastFrame {
                vector: VECTOR_NONE,
                rip: ip,
                cs: u64::from(super::gdt::USER_CODE),
                rflags: 0x202,
                rsp: sp,
                ss: u64::from(super::gdt::USER_DATA),
                ..FastFrame::default()
            },
            ..Self::default()
        }
    }
}
