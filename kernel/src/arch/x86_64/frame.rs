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

impl TrapFrame {
    /// The user's stack pointer.
    pub fn stack_pointer(&self) -> u64 {
        self.fast.rsp
    }

    /// Sets the user's stack pointer.
    pub fn set_stack_pointer(&mut self, sp: u64) {
        self.fast.rsp = sp;
    }

    /// The address of the next user instruction.
    pub fn instruction_pointer(&self) -> u64 {
        self.fast.rip
    }

    /// Turns the copy of a parent's registers into those of its child.
    pub fn begin_child(&mut self) {
        self.fast.set_result(0);
        self.fast.forget_call();
    }

    /// Goes back onto the instruction of the system call, which user mode then executes again.
    pub fn repeat_call(&mut self) {
        self.fast.rax = self.fast.error;
        self.fast.rip = self.fast.rip.wrapping_sub(CALL_SIZE);
    }

    /// The same, but the call is to be this one.
    pub fn repeat_as(&mut self, number: u32) {
        self.fast.rax = number.into();
        self.fast.rip = self.fast.rip.wrapping_sub(CALL_SIZE);
    }
}

/// The size of the instruction `syscall`.
const CALL_SIZE: u64 = 2;

impl FastFrame {
    /// Whether a system call made the frame, which has not been finished yet.
    #[inline]
    pub fn is_call(&self) -> bool {
        self.vector == VECTOR_SYSCALL
    }

    /// The frame is no system call's any more.
    pub fn forget_call(&mut self) {
        self.vector = VECTOR_NONE;
    }

    /// The number of the system call.
    #[inline]
    pub fn call_number(&self) -> u32 {
        self.error as u32
    }

    /// Makes the frame that of this system call.
    pub fn set_call(&mut self, number: u32) {
        (self.vector, self.error) = (VECTOR_SYSCALL, number.into());
    }

    /// The arguments of the system call.
    #[inline]
    pub fn arguments(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    /// Those of `clone`: flags, stack, parent's word, child's word, thread pointer.
    pub fn clone_arguments(&self) -> [u64; 5] {
        let [flags, stack, parent, child, tls, _] = self.arguments();
        [flags, stack, parent, child, tls]
    }

    /// The register of the system call's result.
    #[inline]
    pub fn result(&self) -> u64 {
        self.rax
    }

    /// Sets the result.
    #[inline]
    pub fn set_result(&mut self, value: u64) {
        self.rax = value;
    }

    /// What a tracer sees as the result before the call is made.
    pub fn set_no_result(&mut self, value: u64) {
        self.rax = value;
    }
}
