//! What the kernel does when a guest leaves, by the reason.

mod debug;
mod instruction;
pub mod mmio;

use super::memory::{Fault, GuestFault, Repair};
use super::state::{State, exception, register};
use super::stats::Stat;
use super::vcpu::Vcpu;
use super::vm::Vm;
use super::{cpuid, events, interrupts, io, msr, uapi};
use crate::arch::{self, svm};
use crate::errno::{EFAULT, EINTR, Errno};
use crate::memory::Access;
use crate::process;

/// What the run loop does next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Enters the guest again.
    Enter,
    /// Returns to the program: the run area says why.
    Leave,
}

mod code {
    pub const WRITE_CR4: u64 = 0x14;
    pub const DEBUG_REGISTER: u64 = 0x20;
    pub const LAST_DEBUG_REGISTER: u64 = 0x3f;
    pub const EXCEPTION: u64 = 0x40;
    pub const LAST_EXCEPTION: u64 = 0x5f;
    pub const INTERRUPT: u64 = 0x60;
    pub const NMI: u64 = 0x61;
    pub const INIT: u64 = 0x63;
    pub const INTERRUPT_WINDOW: u64 = 0x64;
    pub const RDPMC: u64 = 0x6f;
    pub const CPUID: u64 = 0x72;
    pub const INVD: u64 = 0x76;
    pub const HLT: u64 = 0x78;
    pub const INVLPGA: u64 = 0x7a;
    pub const PORT: u64 = 0x7b;
    pub const MESSAGE: u64 = 0x7c;
    pub const SHUTDOWN: u64 = 0x7f;
    pub const VMRUN: u64 = 0x80;
    pub const VMMCALL: u64 = 0x81;
    pub const SKINIT: u64 = 0x86;
    pub const WBINVD: u64 = 0x89;
    pub const MONITOR: u64 = 0x8a;
    pub const MWAIT_ARMED: u64 = 0x8c;
    pub const XSETBV: u64 = 0x8d;
    pub const NESTED_FAULT: u64 = 0x400;
    pub const INVALID: u64 = u64::MAX;
}

/// `-KVM_ENOSYS`, the answer to a hypercall that does not exist.
const NO_SUCH_HYPERCALL: u64 = (-1000i64) as u64;

/// Handles an exit.
///
/// # Errors
/// `EFAULT`, `EINTR`: what `KVM_RUN` fails with.
#[inline]
pub fn handle(vm: &Vm, vcpu: &Vcpu, state: &mut State) -> Result<Next, Errno> {
    vcpu.stats.add(Stat::Exits);
    let code = state.control().exit_code;
    if svm::lost_state(state.save()) {
        return Ok(lost(vcpu, state));
    }
    if code == code::NESTED_FAULT {
        events::deliver_again(state);
        return nested_fault(vm, vcpu, state);
    }
    if code == code::PORT {
        vcpu.stats.add(Stat::IoExits);
        state.control().event = 0;
        return io::exit(state, &vm.memory, vcpu);
    }
    if code == code::INTERRUPT {
        events::deliver_again(state);
        vcpu.stats.add(Stat::IrqExits);
        arch::take_interrupts();
        return Ok(Next::Enter);
    }
    other(code, vm, vcpu, state)
}

/// Tells the program that the guest's state is gone, and shows it none of the kernel's.
#[cold]
fn lost(vcpu: &Vcpu, state: &mut State) -> Next {
    log::error!("the processor has lost the state of a guest");
    state.reset();
    let details = [u64::from(uapi::INTERNAL_UNEXPECTED)];
    vcpu.area.leave(uapi::exit::INTERNAL_ERROR, &details);
    Next::Leave
}

#[inline]
fn nested_fault(vm: &Vm, vcpu: &Vcpu, state: &mut State) -> Result<Next, Errno> {
    const WRITE: u64 = 2;
    const FETCH: u64 = 16;
    let (error, address) = (state.control().exit_info_1, state.control().exit_info_2);
    let access = match error & (WRITE | FETCH) {
        0 => Access::Read,
        FETCH => Access::Execute,
        _ => Access::Write,
    };
    let stats = &vcpu.stats;
    stats.add(Stat::PfTaken);
    let fault = GuestFault {
        address,
        access,
        vcpu: vcpu.id,
        error_code: error as u8,
        ring: vcpu.ring(),
    };
    match vm.memory.fault_of_vcpu(&fault) {
        Fault::Resolved(repair) => {
            match repair {
                Repair::Fast => {
                    stats.add(Stat::PfFast);
                    stats.add(Stat::PfFixed);
                }
                Repair::Spurious => {
                    stats.add(Stat::PfFast);
                    stats.add(Stat::PfSpurious);
                }
                Repair::Mapped => stats.add(Stat::PfFixed),
            }
            Ok(Next::Enter)
        }
        Fault::Mmio => {
            stats.add(Stat::PfEmulate);
            stats.add(Stat::InsnEmulation);
            stats.add(Stat::MmioExits);
            mmio::exit(vm, vcpu, state, address)
        }
        Fault::OutOfMemory => {
            // A process is killed, perhaps this one; if not, the access is tried again.
            process::oom::fault_found_none();
            Ok(Next::Enter)
        }
        Fault::Interrupted => {
            vcpu.stats.add(Stat::SignalExits);
            vcpu.area.leave(uapi::exit::INTR, &[]);
            Err(EINTR)
        }
        Fault::Refused => Err(EFAULT),
        Fault::RingFull => {
            vcpu.area.leave(uapi::exit::DIRTY_RING_FULL, &[]);
            Ok(Next::Leave)
        }
    }
}

#[cold]
fn other(code: u64, vm: &Vm, vcpu: &Vcpu, state: &mut State) -> Result<Next, Errno> {
    let area = &vcpu.area;
    events::deliver_again(state);
    match code {
        code::EXCEPTION..=code::LAST_EXCEPTION => {
            // The guest's own: it takes it as if it had not left.
            let vector = (code - code::EXCEPTION) as u8;
            let has_error = matches!(vector, 8 | 10..=14 | 17 | 21 | 29 | 30);
            let error = state.control().exit_info_1 as u32;
            state.inject(vector, has_error.then_some(error));
        }
        code::DEBUG_REGISTER..=code::LAST_DEBUG_REGISTER => {
            if !debug::exit(vm, state) {
                return Ok(cannot_emulate(vm, vcpu, state, &[]));
            }
        }
        code::NMI | code::INIT => {}
        // The instruction is carried out when the guest is entered again.
        code::WRITE_CR4 => state.show_xcr0(),
        code::INTERRUPT_WINDOW => interrupts::close_window(state),
        code::CPUID => cpuid::emulate(state),
        code::MESSAGE => msr::exit(vm, state),
        code::HLT => {
            vcpu.stats.add(Stat::HaltExits);
            state.skip(1);
            if vm.has_irqchip() {
                // The interrupt that it waits for would be the kernel's.
                state.mp_state = uapi::mp_state::HALTED;
                return Ok(Next::Enter);
            }
            area.leave(uapi::exit::HLT, &[]);
            return Ok(Next::Leave);
        }
        code::INVD | code::WBINVD => state.skip(2),
        code::MONITOR..=code::MWAIT_ARMED => state.skip(3),
        code::XSETBV => msr::set_components(state),
        code::VMMCALL => {
            vcpu.stats.add(Stat::Hypercalls);
            state.set_register(register::RAX, NO_SUCH_HYPERCALL);
            state.skip(3);
        }
        code::RDPMC => state.inject(exception::PROTECTION, Some(0)),
        code::VMRUN..=code::SKINIT | code::INVLPGA => state.inject(exception::UNDEFINED, None),
        code::SHUTDOWN => {
            // The state of a CPU that shut down is undefined: begin again.
            state.reset();
            area.leave(uapi::exit::SHUTDOWN, &[]);
            return Ok(Next::Leave);
        }
        code::INVALID => {
            let cpu = u64::from(arch::percpu::cpu_number());
            area.leave(uapi::exit::FAIL_ENTRY, &[code, cpu]);
            return Ok(Next::Leave);
        }
        _ => {
            // Three words of data: the reason, and what came with it.
            let details = [
                u64::from(uapi::INTERNAL_UNEXPECTED) | 3 << 32,
                code,
                state.control().exit_info_1,
                state.control().exit_info_2,
            ];
            area.leave(uapi::exit::INTERNAL_ERROR, &details);
            return Ok(Next::Leave);
        }
    }
    Ok(Next::Enter)
}

/// Leaves to the program with an instruction that the kernel cannot carry out: `bytes` of it, if they could be read.
/// A program that runs a guest's user mode is told only if it asked for it; else the guest has the problem.
fn cannot_emulate(vm: &Vm, vcpu: &Vcpu, state: &mut State, bytes: &[u8]) -> Next {
    vcpu.stats.add(Stat::InsnEmulationFail);
    const HAS_BYTES: u64 = 1;
    const NO_OPERATION: u8 = 0x90;
    if !vm.tells_failures() {
        state.inject(exception::UNDEFINED, None);
        if state.save().cpl != 0 {
            return Next::Enter;
        }
    }
    // Flags; length and bytes; the reason and what came with it.
    let mut details = [0u64; 9];
    let mut count = 1;
    if !bytes.is_empty() {
        let mut place = [NO_OPERATION; 16];
        place[0] = bytes.len() as u8;
        place[1..=bytes.len()].copy_from_slice(bytes);
        let (low, high) = place.split_at(8);
        details[1] = HAS_BYTES;
        details[2] = u64::from_le_bytes(low.try_into().unwrap_or_default());
        details[3] = u64::from_le_bytes(high.try_into().unwrap_or_default());
        count += 2;
    }
    let control = state.control();
    let info = [
        control.exit_code & 0xffff_ffff,
        control.exit_info_1,
        control.exit_info_2,
        u64::from(control.exit_interrupt),
        u64::from(control.exit_interrupt_error),
    ];
    details[1 + count..][..info.len()].copy_from_slice(&info);
    count += info.len();
    details[0] = u64::from(uapi::INTERNAL_EMULATION) | (count as u64) << 32;
    vcpu.area
        .leave(uapi::exit::INTERNAL_ERROR, &details[..=count]);
    Next::Leave
}
