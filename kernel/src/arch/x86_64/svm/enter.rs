//! The world switch: into a guest, and back.
//!
//! Interrupts are off before and after. In between the global interrupt flag holds them back until the CPU is
//! in the guest, where each makes the guest leave; it is taken only when the caller lets interrupts in. So one
//! that came after the caller's last look at its thread's work is not missed.
//!
//! `vmrun` switches the guest's RAX and RSP; `vmload` and `vmsave` the FS, GS, TR and LDTR registers and those
//! of system calls; the rest is here. FPU state is the caller's.

use core::arch::naked_asm;

use super::super::paging;
use super::Save;

unsafe extern "C" {
    /// The first instruction after a guest has left.
    static svm_left: u8;
}

/// Whether the control block of a guest that has left has the kernel's own state. QEMU 7.2 can store the state at an
/// exit twice, the second time after it has switched back, if another CPU loads x87 state; see `fpu::save`.
#[inline]
pub fn lost_state(save: &Save) -> bool {
    save.rip == &raw const svm_left as u64 && save.cr3 == paging::current_root()
}

/// Runs a guest until it leaves. `block` and `host` are physical addresses of control blocks: the guest's, and
/// that to which `vmsave` has stored this CPU's state. `registers` has the guest's in the order of their
/// numbers in `kvm_regs`: RAX, RBX, RCX, RDX, RSI, RDI, RSP, RBP, R8 to R15; RAX and RSP are not used.
///
/// # Safety
/// The block's state is one of a guest that cannot reach the kernel's memory, and no other CPU uses it. SVM is
/// on. Interrupts are off.
#[unsafe(naked)]
pub unsafe extern "C" fn enter(block: u64, host: u64, registers: *mut [u64; 16]) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rdx",
        "push rsi",
        "mov rax, rsi",
        "vmsave rax",
        "mov rax, rdi",
        "mov rbx, [rdx + 8]",
        "mov rcx, [rdx + 16]",
        "mov rsi, [rdx + 32]",
        "mov rdi, [rdx + 40]",
        "mov rbp, [rdx + 56]",
        "mov r8, [rdx + 64]",
        "mov r9, [rdx + 72]",
        "mov r10, [rdx + 80]",
        "mov r11, [rdx + 88]",
        "mov r12, [rdx + 96]",
        "mov r13, [rdx + 104]",
        "mov r14, [rdx + 112]",
        "mov r15, [rdx + 120]",
        "mov rdx, [rdx + 24]",
        "clgi",
        "sti",
        "vmload rax",
        "vmrun rax",
        ".global svm_left",
        "svm_left:",
        "vmsave rax",
        "cli",
        "mov rax, [rsp]",
        "vmload rax",
        "mov rax, [rsp + 8]",
        "mov [rax + 8], rbx",
        "mov [rax + 16], rcx",
        "mov [rax + 24], rdx",
        "mov [rax + 32], rsi",
        "mov [rax + 40], rdi",
        "mov [rax + 56], rbp",
        "mov [rax + 64], r8",
        "mov [rax + 72], r9",
        "mov [rax + 80], r10",
        "mov [rax + 88], r11",
        "mov [rax + 96], r12",
        "mov [rax + 104], r13",
        "mov [rax + 112], r14",
        "mov [rax + 120], r15",
        "stgi",
        "add rsp, 16",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "cld",
        "ret",
    )
}
