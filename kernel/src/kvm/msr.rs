//! Model-specific registers: what `rdmsr` and `wrmsr` do in a guest, and `KVM_GET_MSRS` and `KVM_SET_MSRS`.
//!
//! Registers that are not listed do not exist: an access is a protection fault.

use super::cpuid;
use super::state::{EFER_LMA, EFER_LME, State, exception, register};
use super::system_registers::set_apic_base;
use super::vm::Vm;
use crate::arch::svm::{Clean, SVME};
use crate::arch::{fpu, time, uaccess};
use crate::errno::{Answer, E2BIG, Errno};

const TSC: u32 = 0x10;
const APIC_BASE: u32 = 0x1b;
const TSC_ADJUST: u32 = 0x3b;
const MICROCODE: u32 = 0x8b;
const PLATFORM: u32 = 0xce;
const MTRR_CAPABILITY: u32 = 0xfe;
const MISC_ENABLE: u32 = 0x1a0;
const PAT: u32 = 0x277;
const MTRR_DEFAULT: u32 = 0x2ff;
const EFER: u32 = 0xc000_0080;
const TSC_AUX: u32 = 0xc000_0103;
const SYSTEM_CONFIGURATION: u32 = 0xc001_0010;
const HARDWARE_CONFIGURATION: u32 = 0xc001_0015;
const DECODER_CONFIGURATION: u32 = 0xc001_1029;

/// LFENCE waits for all instructions before it: the bit of [`DECODER_CONFIGURATION`].
const LFENCE_WAITS: u64 = 1 << 1;

/// The registers that say what guests can have (`KVM_GET_MSR_FEATURE_INDEX_LIST`).
const FEATURES: [u32; 2] = [MICROCODE, DECODER_CONFIGURATION];
/// The version of the microcode that guests see.
const MICROCODE_VERSION: u64 = 0x0100_0065 << 32;

/// The registers that programs save and restore.
const LISTED: [u32; 19] = [
    TSC,
    APIC_BASE,
    TSC_ADJUST,
    0x174,
    0x175,
    0x176,
    MISC_ENABLE,
    PAT,
    MTRR_DEFAULT,
    EFER,
    0xc000_0081,
    0xc000_0082,
    0xc000_0083,
    0xc000_0084,
    0xc000_0100,
    0xc000_0101,
    0xc000_0102,
    TSC_AUX,
    HARDWARE_CONFIGURATION,
];

/// The place of a memory type register among those that are kept.
fn mtrr(number: u32) -> Option<usize> {
    match number {
        0x200..=0x20f => Some((number - 0x200) as usize),
        0x250 => Some(16),
        0x258 | 0x259 => Some((number - 0x258 + 17) as usize),
        0x268..=0x26f => Some((number - 0x268 + 19) as usize),
        _ => None,
    }
}

/// The part of the control block that has a register.
fn in_block(state: &mut State, number: u32) -> Option<&mut u64> {
    let save = state.save();
    Some(match number {
        0x174 => &mut save.sysenter_cs,
        0x175 => &mut save.sysenter_esp,
        0x176 => &mut save.sysenter_eip,
        0xc000_0081 => &mut save.star,
        0xc000_0082 => &mut save.lstar,
        0xc000_0083 => &mut save.cstar,
        0xc000_0084 => &mut save.sfmask,
        0xc000_0100 => &mut save.fs.base,
        0xc000_0101 => &mut save.gs.base,
        0xc000_0102 => &mut save.kernel_gs_base,
        PAT => &mut save.pat,
        _ => return None,
    })
}

pub fn get(state: &mut State, number: u32) -> Option<u64> {
    if let Some(value) = in_block(state, number) {
        return Some(*value);
    }
    if let Some(place) = mtrr(number) {
        return Some(state.messages.mtrr[place]);
    }
    Some(match number {
        TSC => time::ticks().wrapping_add(state.control().tsc_offset),
        TSC_ADJUST => state.messages.tsc_adjust,
        APIC_BASE => state.apic_base,
        EFER => state.save().efer & !SVME,
        // Eight variable registers, fixed ones, write combining.
        MTRR_CAPABILITY => 0x508,
        MTRR_DEFAULT => state.messages.mtrr_default,
        MISC_ENABLE => state.messages.misc_enable,
        TSC_AUX => state.messages.tsc_aux,
        HARDWARE_CONFIGURATION => state.messages.hwcr,
        PLATFORM => state.messages.platform,
        DECODER_CONFIGURATION => state.messages.decoder,
        MICROCODE => MICROCODE_VERSION,
        SYSTEM_CONFIGURATION => 0,
        _ => return None,
    })
}

/// Sets a register for the program; whether there is such, and it can have the value.
pub fn set(state: &mut State, number: u32, value: u64) -> bool {
    const ADDRESSES: [u32; 7] = [
        0x175,
        0x176,
        0xc000_0082,
        0xc000_0083,
        0xc000_0100,
        0xc000_0101,
        0xc000_0102,
    ];
    if ADDRESSES.contains(&number) && (value as i64) << 16 >> 16 != value as i64 {
        return false;
    }
    if number == PAT && (0..8).any(|at| !matches!(value >> (8 * at) & 0xff, 0 | 1 | 4..=7)) {
        return false;
    }
    if let Some(place) = in_block(state, number) {
        *place = value;
        state.changed(Clean::NESTED | Clean::SEGMENTS);
        return true;
    }
    if let Some(place) = mtrr(number) {
        state.messages.mtrr[place] = value;
        return true;
    }
    match number {
        TSC => state.control().tsc_offset = value.wrapping_sub(time::ticks()),
        TSC_ADJUST => state.messages.tsc_adjust = value,
        APIC_BASE => return set_apic_base(state, value),
        EFER => return set_efer(state, value),
        MTRR_DEFAULT => state.messages.mtrr_default = value,
        MISC_ENABLE => state.messages.misc_enable = value,
        TSC_AUX => state.messages.tsc_aux = value,
        PLATFORM => state.messages.platform = value,
        HARDWARE_CONFIGURATION => {
            // Bits that are ignored, as on Linux, and those that are kept.
            const IGNORED: u64 = 1 << 3 | 1 << 6 | 1 << 8;
            const KEPT: u64 = 1 << 18 | 1 << 24;
            if value & !(IGNORED | KEPT) != 0 {
                return false;
            }
            state.messages.hwcr = value & KEPT;
        }
        DECODER_CONFIGURATION => {
            if value & !LFENCE_WAITS != 0 {
                return false;
            }
            state.messages.decoder = value;
        }
        MICROCODE | SYSTEM_CONFIGURATION => {}
        _ => return false,
    }
    state.changed(Clean::INTERCEPTS);
    true
}

/// Sets a register for the guest. Its time and the adjustment of its time go together; the program sets each alone.
fn set_by_guest(state: &mut State, number: u32, value: u64) -> bool {
    let change = match number {
        TSC => value.wrapping_sub(get(state, TSC).unwrap_or_default()),
        TSC_ADJUST => value.wrapping_sub(state.messages.tsc_adjust),
        PLATFORM => return false,
        _ => return set(state, number, value),
    };
    let adjust = &mut state.messages.tsc_adjust;
    *adjust = adjust.wrapping_add(change);
    let offset = &mut state.control().tsc_offset;
    *offset = offset.wrapping_add(change);
    state.changed(Clean::INTERCEPTS);
    true
}

fn set_efer(state: &mut State, value: u64) -> bool {
    // System calls, long mode, no-execute, fast FXSAVE.
    const KNOWN: u64 = 1 | EFER_LME | EFER_LMA | 1 << 11 | 1 << 14;
    let now = state.save().efer;
    let paging = state.save().cr0 & super::state::CR0_PG != 0;
    if value & !KNOWN != 0 || paging && (now ^ value) & EFER_LME != 0 {
        return false;
    }
    state.save().efer = value & !EFER_LMA | now & EFER_LMA | SVME;
    state.changed(Clean::CONTROL_REGISTERS);
    true
}

/// A guest's `rdmsr` or `wrmsr`.
pub fn exit(vm: &Vm, state: &mut State) {
    let number = state.register(register::RCX) as u32;
    let done = match state.control().exit_info_1 & 1 {
        0 => match get(state, number) {
            Some(_) if number == PLATFORM && !vm.shows_platform() => false,
            Some(value) => {
                state.set_register(register::RAX, value & 0xffff_ffff);
                state.set_register(register::RDX, value >> 32);
                true
            }
            None => false,
        },
        _ => {
            let low = state.register(register::RAX) & 0xffff_ffff;
            let value = low | state.register(register::RDX) << 32;
            set_by_guest(state, number, value)
        }
    };
    match done {
        true => state.skip(2),
        false => state.inject(exception::PROTECTION, Some(0)),
    }
}

/// A guest's `xsetbv`.
pub fn set_components(state: &mut State) {
    let number = state.register(register::RCX) as u32;
    let low = state.register(register::RAX) & 0xffff_ffff;
    let value = low | state.register(register::RDX) << 32;
    if number != 0 || state.save().cpl != 0 || !set_xcr0(state, value) {
        return state.inject(exception::PROTECTION, Some(0));
    }
    state.skip(3);
}

/// Sets XCR0; whether it can have the value.
pub fn set_xcr0(state: &mut State, value: u64) -> bool {
    let allowed = cpuid::components(&state.cpuid) & fpu::components() | 1;
    let wide = value & 0xe0;
    let is_odd = value & 1 == 0
        || value & 0b110 == 0b100
        || wide != 0 && (wide != 0xe0 || value & 0b100 == 0);
    if value & !allowed != 0 || is_odd {
        return false;
    }
    state.xcr0 = value;
    true
}

/// `KVM_GET_MSRS`, `KVM_SET_MSRS`: how many were handled.
///
/// # Errors
/// `E2BIG`, `EFAULT`.
pub fn several(at: u64, mut each: impl FnMut(u32, &mut u64) -> bool, writes: bool) -> Answer {
    const MOST: u32 = 256;
    let count: u32 = uaccess::read(at)?;
    if count >= MOST {
        return Err(E2BIG);
    }
    for number in 0..u64::from(count) {
        let place = at.wrapping_add(8 + 16 * number);
        let [head, mut value]: [u64; 2] = uaccess::read(place)?;
        if !each(head as u32, &mut value) {
            return Ok(number);
        }
        if writes {
            uaccess::write(place.wrapping_add(8), &value)?;
        }
    }
    Ok(u64::from(count))
}

/// `KVM_GET_MSR_INDEX_LIST`.
///
/// # Errors
/// `E2BIG`, `EFAULT`.
pub fn list(at: u64) -> Answer {
    write_list(at, &LISTED)
}

/// `KVM_GET_MSR_FEATURE_INDEX_LIST`.
///
/// # Errors
/// `E2BIG`, `EFAULT`.
pub fn list_features(at: u64) -> Answer {
    write_list(at, &FEATURES)
}

/// What guests can have, by one of these registers.
pub fn feature(number: u32) -> Option<u64> {
    match number {
        MICROCODE => Some(MICROCODE_VERSION),
        DECODER_CONFIGURATION => Some(LFENCE_WAITS),
        _ => None,
    }
}

/// Writes a list of registers.
///
/// # Errors
/// `E2BIG`, `EFAULT`.
fn write_list(at: u64, list: &[u32]) -> Result<u64, Errno> {
    let room: u32 = uaccess::read(at)?;
    uaccess::write(at, &(list.len() as u32))?;
    if (room as usize) < list.len() {
        return Err(E2BIG);
    }
    for (number, register) in (0..).zip(list) {
        uaccess::write(at.wrapping_add(4 + 4 * number), register)?;
    }
    Ok(0)
}
