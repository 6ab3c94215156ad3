//! What the kernel does when a guest leaves, by the reason.

pub mod mmio;

use super::area::Area;
use super::memory::{Fault, GuestMemory};
use super::state::{State, exception, register};
use super::vcpu::Vcpu;
use super::{cpuid, events, io, msr, uapi};
use crate::arch;
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
pub fn handle(vcpu: &Vcpu, state: &mut State, memory: &GuestMemory) -> Result<Next, Errno> {
    let code = state.control().exit_code;
    if code == code::NESTED_FAULT {
        events::deliver_again(state);
        return nested_fault(vcpu, state, memory);
    }
    if code == code::PORT {
        state.control().event = 0;
        return io::exit(state, memory, &vcpu.area);
    }
    if code == code::INTERRUPT {
        events::deliver_again(state);
        arch::take_interrupts();
        return Ok(Next::Enter);
    }
    other(code, vcpu, state)
}

#[inline]
fn nested_fault(vcpu: &Vcpu, state: &mut State, memory: &GuestMemory) -> Result<Next, Errno> {
    const WRITE: u64 = 2;
    const FETCH: u64 = 16;
    let (error, address) = (state.control().exit_info_1, state.control().exit_info_2);
    let access = match error & (WRITE | FETCH) {
        0 => Access::Read,
        FETCH => Access::Execute,
        _ => Access::Write,
    };
    match memory.fault(address, access) {
        Fault::Resolved => Ok(Next::Enter),
        Fault::Mmio => mmio::exit(state, memory, &vcpu.area, address),
        Fault::OutOfMemory => {
            // A process is killed, perhaps this one; if not, the access is tried again.
            process::oom::fault_found_none();
            Ok(Next::Enter)
        }
        Fault::Interrupted => {
            vcpu.area.leave(uapi::exit::INTR, &[]);
            Err(EINTR)
        }
        Fault::Refused => Err(EFAULT),
    }
}

#[cold]
fn other(code: u64, vcpu: &Vcpu, state: &mut State) -> Result<Next, Errno> {
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
        code::NMI | code::INIT | code::INTERRUPT_WINDOW => {}
        code::CPUID => cpuid::emulate(state),
        code::MESSAGE => msr::exit(state),
        code::HLT => {
            state.skip(1);
            area.leave(uapi::exit::HLT, &[]);
            return Ok(Next::Leave);
        }
        code::INVD | code::WBINVD => state.skip(2),
        code::MONITOR..=code::MWAIT_ARMED => state.skip(3),
        code::XSETBV => msr::set_components(state),
        code::VMMCALL => {
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
            area.leave(uapi::exit::INTERNAL_ERROR, &[]);
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

/// Leaves to the program with an instruction that the kernel cannot carry out.
fn cannot_emulate(area: &Area, bytes: &[u8]) -> Next {
    const HAS_BYTES: u64 = 1;
    let mut details = [0u64; 5];
    details[0] = u64::from(uapi::INTERNAL_EMULATION) | 4 << 32;
    details[1] = HAS_BYTES;
    let mut tail = [0u8; 16];
    tail[0] = bytes.len() as u8;
    tail[1..=bytes.len()].copy_from_slice(bytes);
    let (low, high) = tail.split_at(8);
    details[2] = u64::from_le_bytes(low.try_into().unwrap_or_default());
    details[3] = u64::from_le_bytes(high.try_into().unwrap_or_default());
    area.leave(uapi::exit::INTERNAL_ERROR, &details);
    Next::Leave
}
