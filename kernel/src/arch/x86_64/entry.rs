//! All kernel entry and exit paths, in assembly.
//!
//! Invariants:
//! - Interrupts are off from the first instruction in here until the return to user mode (or, for the idle
//!   loop, until its own `sti`).
//! - GS is swapped exactly on the user boundary.
//! - The direction flag is clear and user accesses are forbidden (`clac`) before Rust runs.
//! - User frames begin at the top of the thread's stack, so a thread's saved registers are found there.
//!
//! On each crossing of the user boundary the CPU publishes whether it uses user memory (`from_user`,
//! `to_user`). The shootdown interrupt does not: it completes before anything else happens.
//!
//! The page-fault and system-call paths save nine registers and return directly unless their handler says
//! otherwise. All other paths save all registers and leave through `leave_full`.

use core::arch::global_asm;

use super::percpu::{CURRENT, FLUSH_DONE, FLUSH_REQUESTED, KERNEL_STACK, SCRATCH, USES_USER};
use super::{gdt, trap};

/// For an interrupt in kernel mode: skips a `hlt` that is the next instruction. The parameter is the offset
/// of the frame's `rip`. The shadow of `sti` closes the window before `hlt`, but not under every hypervisor:
/// QEMU's emulated SVM forgets the shadow when the guest exits and is entered again between the two.
macro_rules! skip_halt {
    ($rip:literal) => {
        concat!(
            "lea rax, [rip + halt_instruction]\ncmp [rsp + ",
            $rip,
            "], rax\njne 77f\n\
             inc qword ptr [rsp + ",
            $rip,
            "]\n77:\n"
        )
    };
}

/// `clac`, or a `nop` on a CPU without SMAP: `features::patch_smap` patches the listed sites.
macro_rules! clac {
    () => {
        ".pushsection .smap_sites, \"a\", @progbits\n.quad 661f, 0\n.popsection\n661: .byte 0x0f, 0x1f, 0x00\n"
    };
}
/// `stac`, likewise.
macro_rules! stac {
    () => {
        ".pushsection .smap_sites, \"a\", @progbits\n.quad 661f, 1\n.popsection\n661: .byte 0x0f, 0x1f, 0x00\n"
    };
}
pub(super) use {clac, stac};

macro_rules! save_fast {
    () => {
        "push rax\npush rcx\npush rdx\npush rsi\npush rdi\npush r8\npush r9\npush r10\npush r11\n"
    };
}
macro_rules! restore_fast {
    () => {
        "pop r11\npop r10\npop r9\npop r8\npop rdi\npop rsi\npop rdx\npop rcx\npop rax\n"
    };
}
macro_rules! save_rest {
    () => {
        "push rbx\npush rbp\npush r12\npush r13\npush r14\npush r15\n"
    };
}
macro_rules! restore_rest {
    () => {
        "pop r15\npop r14\npop r13\npop r12\npop rbp\npop rbx\n"
    };
}

/// From user mode: the CPU does not use user memory for now, so flushes can be deferred (`tlb`). A CPU that
/// sees this may give the program's page to another program immediately, so the program's stores must be in
/// memory before. Ordinary stores are in order. Non-temporal ones need a fence, which an interrupt is and
/// `syscall` is not.
macro_rules! from_user {
    () => {
        "swapgs\nsfence\nmov dword ptr gs:[{uses_user}], 0\n"
    };
}
/// To user mode, while all registers are still saved: the CPU uses user memory from here on. Requests from
/// before the exchange became visible are flushed now; later ones interrupt.
macro_rules! to_user {
    () => {
        "88: mov eax, 1\nxchg gs:[{uses_user}], eax\nmov rax, gs:[{flush_requested}]\n\
         cmp rax, gs:[{flush_done}]\nje 89f\ncall {poll_before_user}\njmp 88b\n89:\n"
    };
}

global_asm!(
    ".text",
    // Page faults.
    ".global page_fault_entry",
    ".balign 64",
    "page_fault_entry:",
    "push 14",
    save_fast!(),
    "cld",
    clac!(),
    "mov rdi, cr2",
    "mov rsi, [rsp + 80]",
    "test byte ptr [rsp + 96], 3",
    "jz 2f",
    from_user!(),
    "call {user_page_fault}",
    "test eax, eax",
    "jnz 1f",
    // A fault may have slept or napped, and have missed the interrupt that announced work.
    "mov rax, gs:[{current}]",
    "cmp dword ptr [rax], 0",
    "jne 4f",
    to_user!(),
    restore_fast!(),
    "add rsp, 16",
    "swapgs",
    "iretq",
    "1:",
    save_rest!(),
    "mov rdi, rsp",
    "mov esi, eax",
    "call {user_page_fault_slow}",
    "jmp leave_full",
    "4:",
    save_rest!(),
    "mov rdi, rsp",
    "call {leave}",
    "jmp leave_full",
    // In kernel mode: an access to user memory, or a bug.
    "2:",
    "mov rdx, rsp",
    "call {kernel_page_fault}",
    "test eax, eax",
    "jnz 3f",
    restore_fast!(),
    "add rsp, 16",
    "iretq",
    "3:",
    save_rest!(),
    "mov rdi, rsp",
    "call {trap_from_kernel}",
    "ud2",
    // System calls.
    ".global syscall_entry",
    ".balign 64",
    "syscall_entry:",
    from_user!(),
    "mov gs:[{scratch}], rsp",
    "mov rsp, gs:[{kernel_stack}]",
    "push {user_data}",
    "push qword ptr gs:[{scratch}]",
    "push r11",
    "push {user_code}",
    "push rcx",
    "push rax",
    "push 0x100",
    save_fast!(),
    "mov rdi, rsp",
    "call {syscall}",
    "mov [rsp + 64], rax",
    "test edx, edx",
    "jnz 1f",
    to_user!(),
    restore_fast!(),
    "mov rcx, [rsp + 16]",
    "mov r11, [rsp + 32]",
    "mov rsp, [rsp + 40]",
    "swapgs",
    "sysretq",
    "1:",
    save_rest!(),
    "mov rdi, rsp",
    "mov esi, edx",
    "call {syscall_slow}",
    // Returns to user mode with all registers from the frame.
    ".global leave_full",
    "leave_full:",
    to_user!(),
    restore_rest!(),
    restore_fast!(),
    "add rsp, 16",
    "swapgs",
    "iretq",
    // A new thread's first instructions: the switch returned here.
    ".global thread_begin",
    "thread_begin:",
    "call {thread_begin_rust}",
    "jmp leave_full",
    // All other exceptions and interrupts.
    "trap_common:",
    save_fast!(),
    save_rest!(),
    "cld",
    clac!(),
    "mov rdi, rsp",
    "test byte ptr [rsp + 144], 3",
    "jz 1f",
    from_user!(),
    "call {trap_from_user}",
    "jmp leave_full",
    "1:",
    skip_halt!(136),
    "call {trap_from_kernel}",
    restore_rest!(),
    restore_fast!(),
    "add rsp, 16",
    "iretq",
    // A shootdown: answered without a check of the thread's work.
    ".global flush_entry",
    "flush_entry:",
    "push 0",
    "push 0",
    save_fast!(),
    "cld",
    clac!(),
    "test byte ptr [rsp + 96], 3",
    "jz 1f",
    "swapgs",
    "call {flush_interrupt}",
    restore_fast!(),
    "add rsp, 16",
    "swapgs",
    "iretq",
    "1:",
    skip_halt!(88),
    "call {flush_interrupt}",
    restore_fast!(),
    "add rsp, 16",
    "iretq",
    // Halts until the next interrupt, which `sti` lets in from `hlt` on.
    ".global wait_for_interrupt",
    "wait_for_interrupt:",
    "sti",
    "halt_instruction:",
    "hlt",
    "cli",
    "ret",
    // Never returns, so it saves nothing; the CPU has aligned its own stack as a call would.
    ".global nmi_entry",
    "nmi_entry:",
    "cld",
    "jmp {nmi}",
    // A debug exception can hit the first instruction of syscall_entry (after `mov ss`), with the
    // user's GS and stack: hence a stack of its own, and from kernel mode it is ignored.
    ".global debug_entry",
    "debug_entry:",
    "test byte ptr [rsp + 8], 3",
    "jz 1f",
    "swapgs",
    "push rax",
    "mov rax, rsp",
    "mov rsp, gs:[{kernel_stack}]",
    "push qword ptr [rax + 40]",
    "push qword ptr [rax + 32]",
    "push qword ptr [rax + 24]",
    "push qword ptr [rax + 16]",
    "push qword ptr [rax + 8]",
    "push 0",
    "push 1",
    "mov rax, [rax]",
    "swapgs",
    "jmp trap_common",
    "1:",
    "iretq",
    // One stub for each vector, 16 bytes apart; some exceptions push an error code themselves.
    ".global trap_stubs",
    ".balign 16",
    "trap_stubs:",
    ".set vector, 0",
    ".rept 256",
    ".balign 16",
    ".if (vector == 8) || (vector >= 10 && vector <= 14) || (vector == 17) || (vector == 21) || (vector == 29) || (vector == 30)",
    ".else",
    "push 0",
    ".endif",
    "push vector",
    "jmp trap_common",
    ".set vector, vector + 1",
    ".endr",
    user_page_fault = sym trap::user_page_fault,
    user_page_fault_slow = sym trap::user_page_fault_slow,
    kernel_page_fault = sym trap::kernel_page_fault,
    trap_from_user = sym trap::trap_from_user,
    trap_from_kernel = sym trap::trap_from_kernel,
    flush_interrupt = sym super::tlb::flush_interrupt,
    nmi = sym super::power::nmi,
    syscall = sym crate::syscall::syscall,
    syscall_slow = sym crate::syscall::syscall_slow,
    thread_begin_rust = sym crate::sched::thread_begin,
    leave = sym crate::sched::leave,
    poll_before_user = sym super::shootdown::poll_before_user,
    uses_user = const USES_USER,
    flush_requested = const FLUSH_REQUESTED,
    flush_done = const FLUSH_DONE,
    current = const CURRENT,
    scratch = const SCRATCH,
    kernel_stack = const KERNEL_STACK,
    user_data = const gdt::USER_DATA as u32,
    user_code = const gdt::USER_CODE as u32,
);

unsafe extern "C" {
    pub fn page_fault_entry();
    pub fn syscall_entry();
    pub fn flush_entry();
    pub fn nmi_entry();
    pub fn debug_entry();
    pub fn thread_begin();
    /// Halts with interrupts on until one came, then turns them off again.
    pub safe fn wait_for_interrupt();
    static trap_stubs: u8;
}

/// The address of a vector's stub.
pub fn stub(vector: u8) -> u64 {
    &raw const trap_stubs as u64 + 16 * u64::from(vector)
}

/// Points SYSCALL to its entry on this CPU.
pub fn enable_syscall() {
    use super::msr;
    msr::write(
        msr::STAR,
        u64::from(gdt::KERNEL_CODE) << 32 | u64::from(gdt::USER_DATA - 8) << 48,
    );
    msr::write(msr::LSTAR, syscall_entry as *const () as u64);
    // Trap, interrupt, direction, I/O privilege, nested task, resume, alignment check, id.
    msr::write(msr::FMASK, 0x25_7700 | 1 << 14);
}
