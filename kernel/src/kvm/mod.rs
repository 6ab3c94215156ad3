//! `/dev/kvm`: virtual machines for programs, with Linux's interface, on SVM with nested paging.
//!
//! A program opens the device, makes a VM, gives it parts of its own memory (*slots*), makes vCPUs, and runs each
//! in a thread of its own (`KVM_RUN`). A guest runs until it needs the program or the kernel: a *vCPU's run loop*
//! (`run`) enters it (`arch::svm`) and handles what made it leave (`exits`).
//!
//! Invariants:
//! - A vCPU's state is reached under its `turn` only; one thread at a time runs it.
//! - The kernel runs with the program's FPU state in memory and the guest's in the registers while a thread is in
//!   the run loop; a thread switch in between saves it as the guest's (`Thread::guest_fpu`).
//! - A guest is entered after the last look at the thread's work, with interrupts held back: no kick is missed.
//! - Guest memory is `faultless_tdp`'s; all of it is behind `memory`.
//!
//! Reading order: `device`, `vm`, `vcpu`, `run`, `exits`; then `flush`, `memory`.

pub mod area;
pub mod attributes;
pub mod cpuid;
pub mod device;
pub mod events;
pub mod exits;
pub mod extensions;
pub mod flush;
pub mod fpu;
pub mod interrupts;
pub mod io;
pub mod memory;
pub mod msr;
pub mod parameters;
pub mod pre_fault;
pub mod registers;
pub mod ring;
pub mod run;
pub mod state;
pub mod stats;
pub mod sync_regs;
pub mod system_registers;
pub mod uapi;
pub mod vcpu;
pub mod vm;
pub mod walk;

use core::fmt;

use crate::arch::svm;
use crate::errno::{Answer, ENOTTY};
use crate::shared::Shared;

/// What a descriptor of KVM has open.
pub enum Handle {
    Vm(Shared<vm::Vm>),
    Vcpu(vcpu::Open),
    Stats(stats::Of),
}

impl Handle {
    /// A request on the descriptor.
    ///
    /// # Errors
    /// Those of Linux.
    pub fn ioctl(&self, request: u32, at: u64) -> Answer {
        match self {
            Self::Vm(vm) => vm::Vm::ioctl(vm, request, at),
            Self::Vcpu(open) => open.ioctl(request, at),
            Self::Stats(_) => Err(ENOTTY),
        }
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vm(_) => write!(f, "kvm-vm"),
            Self::Vcpu(open) => write!(f, "kvm-vcpu:{}", open.vcpu.id),
            Self::Stats(stats::Of::Vm(_)) => write!(f, "kvm-vm-stats"),
            Self::Stats(stats::Of::Vcpu(open)) => write!(f, "kvm-vcpu-stats:{}", open.vcpu.id),
        }
    }
}

/// Whether the machine can run guests.
pub fn is_there() -> bool {
    svm::is_there()
}
