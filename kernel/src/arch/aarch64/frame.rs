//! The saved state of user code, as every entry path lays it out on the kernel stack.
//!
//! The entry code saves the registers that the calling convention lets Rust clobber. The others are still in
//! the CPU then; only the slow path, which needs them all, saves them below. So a fast path has a
//! `FastFrame`, and the slow path turns the same memory into a `TrapFrame`.

/// All user registers.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct TrapFrame {
    /// x19 to x29.
    pub kept: [u64; 11],
    padding: u64,
    pub fast: FastFrame,
}

/// The registers that a call may clobber, and the state of the CPU.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct FastFrame {
    /// x0 to x18.
    pub x: [u64; 19],
    /// x30, the link register.
    pub link: u64,
    pub pc: u64,
    pub pstate: u64,
    pub sp: u64,
    /// The exception's syndrome (ESR_EL1).
    pub error: u64,
    /// Which entry made the frame: `VECTOR_SYSCALL`, `VECTOR_NONE`, or the number of an interrupt.
    pub vector: u64,
    /// The number of the system call.
    pub number: u64,
    /// The first argument of the system call, whose register then has the result.
    pub first: u64,
    padding: u64,
}

/// Marks a frame that a system call made.
pub const VECTOR_SYSCALL: u64 = 0x1000;
/// The same, after the call was restarted or its frame replaced: it is not restarted again.
pub const VECTOR_NONE: u64 = 0x1001;

/// The size of a frame with all registers.
pub const FRAME_SIZE: usize = size_of::<TrapFrame>();

const _: () = assert!(FRAME_SIZE == 320 && size_of::<FastFrame>() == 224);

/// The size of an instruction.
const INSTRUCTION: u64 = 4;

impl TrapFrame {
    /// The state in which a program begins.
    pub fn entry(ip: u64, sp: u64) -> Self {
        Self {
            fast: FastFrame {
                vector: VECTOR_NONE,
                pc: ip,
                sp,
                ..FastFrame::default()
            },
            ..Self::default()
        }
    }

    /// The general registers x0 to x30.
    pub fn general(&self) -> [u64; 31] {
        let mut all = [0; 31];
        all[..19].copy_from_slice(&self.fast.x);
        all[19..30].copy_from_slice(&self.kept);
        all[30] = self.fast.link;
        all
    }

    /// Sets the general registers.
    pub fn set_general(&mut self, all: &[u64; 31]) {
        self.fast.x.copy_from_slice(&all[..19]);
        self.kept.copy_from_slice(&all[19..30]);
        self.fast.link = all[30];
    }

    /// The user's stack pointer.
    pub fn stack_pointer(&self) -> u64 {
        self.fast.sp
    }

    /// Sets the user's stack pointer.
    pub fn set_stack_pointer(&mut self, sp: u64) {
        self.fast.sp = sp;
    }

    /// The address of the next user instruction.
    pub fn instruction_pointer(&self) -> u64 {
        self.fast.pc
    }

    /// Turns the copy of a parent's registers into those of its child.
    pub fn begin_child(&mut self) {
        self.fast.set_result(0);
        self.fast.forget_call();
    }

    /// Goes back onto the instruction of the system call, which user mode then executes again.
    pub fn repeat_call(&mut self) {
        self.fast.x[0] = self.fast.first;
        self.fast.pc = self.fast.pc.wrapping_sub(INSTRUCTION);
    }

    /// The same, but the call is to be this one.
    pub fn repeat_as(&mut self, number: u32) {
        self.repeat_call();
        self.fast.x[8] = number.into();
    }
}

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
        self.number as u32
    }

    /// Makes the frame that of this system call.
    pub fn set_call(&mut self, number: u32) {
        (self.vector, self.number) = (VECTOR_SYSCALL, number.into());
    }

    /// The arguments of the system call.
    #[inline]
    pub fn arguments(&self) -> [u64; 6] {
        let [a, b, c, d, e, f, ..] = self.x;
        [a, b, c, d, e, f]
    }

    /// Those of `clone`: flags, stack, parent's word, child's word, thread pointer.
    pub fn clone_arguments(&self) -> [u64; 5] {
        let [flags, stack, parent, tls, child, _] = self.arguments();
        [flags, stack, parent, child, tls]
    }

    /// The register of the system call's result.
    #[inline]
    pub fn result(&self) -> u64 {
        self.x[0]
    }

    /// Sets the result.
    #[inline]
    pub fn set_result(&mut self, value: u64) {
        self.x[0] = value;
    }

    /// A tracer sees the first argument where the result will be, until the call is made.
    pub fn set_no_result(&mut self, _value: u64) {}
}
