//! Accesses to ports: each leaves to the program (`KVM_EXIT_IO`), and is completed when the program runs the vCPU
//! again.
//!
//! As on Linux an `out` is over only then, too. If the program has moved the guest elsewhere meanwhile, nothing
//! is left to complete.

use super::area::PORT_DATA;
use super::exits::Next;
use super::memory::GuestMemory;
use super::state::{State, register};
use super::vcpu::Vcpu;
use super::{uapi, walk};
use crate::errno::Errno;

/// An access that the program carries out.
#[derive(Clone, Copy)]
pub struct Access {
    is_in: bool,
    is_string: bool,
    repeats: bool,
    size: u8,
    /// Of string accesses, in this exit.
    count: u32,
    /// Where the instruction is, and the next one.
    at: u64,
    next: u64,
}

/// Bytes of data of an exit with several accesses.
const MOST: u64 = 1024;

/// The direction flag.
const DOWN: u64 = 1 << 10;

/// A port was accessed.
///
/// # Errors
/// `EFAULT`: the program's memory is not there.
pub fn exit(state: &mut State, memory: &GuestMemory, vcpu: &Vcpu) -> Result<Next, Errno> {
    let area = &vcpu.area;
    let (info, next) = (state.control().exit_info_1, state.control().exit_info_2);
    let size = (info >> 4 & 7) as u8;
    let mut access = Access {
        is_in: info & 1 != 0,
        is_string: info & 4 != 0,
        repeats: info & 8 != 0,
        size,
        count: 1,
        at: state.linear_rip(),
        next,
    };
    let port = info >> 16 & 0xffff;
    if access.is_string {
        if access.repeats {
            let left = state.register(register::RCX) & address_mask(state);
            if left == 0 {
                state.go_on_at(next);
                return Ok(Next::Enter);
            }
            let memory_at = state.register(match access.is_in {
                true => register::RDI,
                false => register::RSI,
            });
            let in_page = match state.save().rflags & DOWN {
                0 => 4096 - memory_at % 4096,
                _ => memory_at % 4096 + u64::from(size),
            };
            let most = in_page.min(MOST) / u64::from(size);
            access.count = left.min(most.max(1)) as u32;
        }
        if !access.is_in {
            let mut data = [0; MOST as usize];
            let data = &mut data[..access.count as usize * usize::from(size)];
            if let Err(refused) = string(state, memory, &access, access.count, data, None) {
                refused.deliver(state)?;
                return Ok(Next::Enter);
            }
            area.copy_in(PORT_DATA, data);
        }
    } else if !access.is_in {
        area.write(PORT_DATA, state.save().rax as u32);
    }
    area.write::<u64>(super::area::at::DETAILS, {
        u64::from(!access.is_in) | u64::from(size) << 8 | port << 16 | u64::from(access.count) << 32
    });
    area.write(super::area::at::DETAILS + 8, PORT_DATA as u64);
    area.write(super::area::at::EXIT_REASON, uapi::exit::IO);
    state.pending = super::state::Pending::Port(access);
    Ok(Next::Leave)
}

/// The bits of addresses that the present code uses.
fn address_mask(state: &mut State) -> u64 {
    match (state.is_long(), state.save().cs.attributes >> 10 & 1) {
        (true, _) => u64::MAX,
        (false, 1) => 0xffff_ffff,
        (false, _) => 0xffff,
    }
}

/// Carries out the memory side of string accesses, stores of `writer` or loads, and advances the registers.
fn string(
    state: &mut State,
    memory: &GuestMemory,
    access: &Access,
    count: u32,
    data: &mut [u8],
    writer: Option<&Vcpu>,
) -> Result<(), walk::Refused> {
    let mask = address_mask(state);
    let (number, base) = match (access.is_in, state.is_long()) {
        (true, true) => (register::RDI, 0),
        (false, true) => (register::RSI, 0),
        (true, false) => (register::RDI, state.save().es.base),
        (false, false) => (register::RSI, state.save().ds.base),
    };
    let down = state.save().rflags & DOWN != 0;
    let size = usize::from(access.size);
    for item in data.chunks_mut(size).take(count as usize) {
        let offset = state.register(number) & mask;
        let linear = base.wrapping_add(offset);
        match writer {
            Some(vcpu) => walk::write(state, memory, linear, item, vcpu.ring())?,
            None => walk::read(state, memory, linear, item)?,
        }
        let step = match down {
            true => (size as u64).wrapping_neg(),
            false => size as u64,
        };
        advance(state, number, step, mask);
        if access.repeats {
            advance(state, register::RCX, u64::MAX, mask);
        }
    }
    Ok(())
}

fn advance(state: &mut State, number: usize, by: u64, mask: u64) {
    let old = state.register(number);
    let new = old.wrapping_add(by) & mask;
    // As for all operands: 32-bit results clear the upper half, 16-bit ones keep it.
    let kept = if mask == 0xffff { old & !mask } else { 0 };
    state.set_register(number, kept | new);
}

/// The program has carried out an access.
///
/// # Errors
/// `EFAULT`.
pub fn complete(
    access: Access,
    state: &mut State,
    memory: &GuestMemory,
    vcpu: &Vcpu,
) -> Result<(), Errno> {
    let area = &vcpu.area;
    if state.linear_rip() != access.at {
        return Ok(());
    }
    if access.is_string && access.is_in {
        let mut data = [0; MOST as usize];
        let data = &mut data[..access.count as usize * usize::from(access.size)];
        area.copy_out(PORT_DATA, data);
        // The program may have changed how much is wanted.
        let left = state.register(register::RCX) & address_mask(state);
        let count = match access.repeats {
            true => left.min(u64::from(access.count)) as u32,
            false => 1,
        };
        if let Err(refused) = string(state, memory, &access, count, data, Some(vcpu)) {
            return refused.deliver(state);
        }
    } else if access.is_in {
        let value: u32 = area.read(PORT_DATA);
        let rax = state.save().rax;
        state.save().rax = match access.size {
            1 => rax & !0xff | u64::from(value & 0xff),
            2 => rax & !0xffff | u64::from(value & 0xffff),
            _ => u64::from(value),
        };
    }
    let mask = address_mask(state);
    if !access.repeats || state.register(register::RCX) & mask == 0 {
        state.go_on_at(access.next);
    }
    Ok(())
}
