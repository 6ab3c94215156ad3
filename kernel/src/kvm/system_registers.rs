//! Segments and control registers: `KVM_GET_SREGS` and `KVM_SET_SREGS`. The checks are Linux's.

use super::state::{CR0_CD, CR0_ET, CR0_NW, CR0_PE, CR0_PG, EFER_LMA, EFER_LME, State};
use super::{cpuid, interrupts, uapi};
use crate::arch::svm::{Clean, SVME, Segment};
use crate::arch::uaccess::Plain;
use crate::errno::{EINVAL, Errno};

/// `struct kvm_segment`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct KvmSegment {
    base: u64,
    limit: u32,
    selector: u16,
    kind: u8,
    present: u8,
    dpl: u8,
    db: u8,
    s: u8,
    l: u8,
    g: u8,
    avl: u8,
    unusable: u8,
    padding: u8,
}

/// `struct kvm_dtable`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Table {
    base: u64,
    limit: u16,
    padding: [u16; 3],
}

/// `struct kvm_sregs`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct SystemRegisters {
    pub cs: KvmSegment,
    pub ds: KvmSegment,
    pub es: KvmSegment,
    pub fs: KvmSegment,
    pub gs: KvmSegment,
    pub ss: KvmSegment,
    pub tr: KvmSegment,
    pub ldt: KvmSegment,
    pub gdt: Table,
    pub idt: Table,
    pub cr0: u64,
    pub cr2: u64,
    pub cr3: u64,
    pub cr4: u64,
    pub cr8: u64,
    pub efer: u64,
    pub apic_base: u64,
    pub interrupts: [u64; 4],
}

const _: () = assert!(size_of::<SystemRegisters>() == 312);
// SAFETY: Integers, without padding.
unsafe impl Plain for SystemRegisters {}

fn segment(from: &Segment, is_code: bool) -> KvmSegment {
    let bits = from.attributes;
    let bit = |number: u16| (bits >> number & 1) as u8;
    let present = bit(7);
    KvmSegment {
        base: from.base,
        limit: from.limit,
        selector: from.selector,
        kind: (bits & 15) as u8,
        present,
        dpl: (bits >> 5 & 3) as u8,
        db: bit(10),
        s: bit(4),
        l: bit(9),
        // The CPU does not keep it for code.
        g: if is_code {
            u8::from(from.limit > 0xf_ffff)
        } else {
            bit(11)
        },
        avl: bit(8),
        unusable: 1 - present,
        padding: 0,
    }
}

fn hardware(from: &KvmSegment) -> Segment {
    let bit = |value: u8, number: u16| u16::from(value & 1) << number;
    let present = from.present != 0 && from.unusable == 0;
    let attributes = u16::from(from.kind & 15)
        | bit(from.s, 4)
        | u16::from(from.dpl & 3) << 5
        | bit(u8::from(present), 7)
        | bit(from.avl, 8)
        | bit(from.l, 9)
        | bit(from.db, 10)
        | bit(from.g, 11);
    Segment {
        selector: from.selector,
        attributes,
        limit: from.limit,
        base: from.base,
    }
}

fn table(from: &Segment) -> Table {
    Table {
        base: from.base,
        limit: from.limit as u16,
        padding: [0; 3],
    }
}

pub fn get(state: &mut State) -> SystemRegisters {
    let (cr0, apic_base) = (state.cr0(), state.apic_base);
    let cr8 = interrupts::priority(state);
    let mut interrupts = [0; 4];
    if let Some(vector) = state.interrupt {
        interrupts[usize::from(vector) / 64] = 1 << (vector % 64);
    }
    let save = state.save();
    // As Linux does: what is in use has been accessed, and the task is busy.
    let data = |from: &Segment| {
        let mut to = segment(from, false);
        to.kind |= 1 - to.unusable;
        to
    };
    let mut tr = segment(&save.tr, false);
    tr.kind |= 2;
    let mut ss = segment(&save.ss, false);
    if ss.unusable != 0 {
        ss.db = 0;
    }
    ss.dpl = save.cpl;
    SystemRegisters {
        cs: segment(&save.cs, true),
        ds: data(&save.ds),
        es: data(&save.es),
        fs: data(&save.fs),
        gs: data(&save.gs),
        ss,
        tr,
        ldt: segment(&save.ldtr, false),
        gdt: table(&save.gdtr),
        idt: table(&save.idtr),
        cr0,
        cr2: save.cr2,
        cr3: save.cr3,
        cr4: save.cr4,
        cr8,
        efer: save.efer & !SVME,
        apic_base,
        interrupts,
    }
}

fn check(state: &State, from: &SystemRegisters) -> Result<(), Errno> {
    if from.efer & EFER_LME != 0 && from.cr0 & CR0_PG != 0 {
        // 64-bit mode is on: only with its page tables.
        const PAE: u64 = 1 << 5;
        if from.cr4 & PAE == 0 || from.efer & EFER_LMA == 0 {
            return Err(EINVAL);
        }
        let bits = cpuid::address_bits(&state.cpuid);
        if (from.cr3 & !(1 << 63)) >> bits != 0 {
            return Err(EINVAL);
        }
    } else if from.efer & EFER_LMA != 0 || from.cs.l != 0 {
        return Err(EINVAL);
    }
    let cr0 = from.cr0;
    let odd = cr0 & CR0_NW != 0 && cr0 & CR0_CD == 0 || cr0 & CR0_PG != 0 && cr0 & CR0_PE == 0;
    if cr0 >> 32 != 0 || odd {
        return Err(EINVAL);
    }
    match from.cr4 & cpuid::forbidden_cr4(&state.cpuid) {
        0 => Ok(()),
        _ => Err(EINVAL),
    }
}

/// # Errors
/// `EINVAL`: the state is none of a CPU.
pub fn set(state: &mut State, from: &SystemRegisters) -> Result<(), Errno> {
    check(state, from)?;
    if !set_apic_base(state, from.apic_base) {
        return Err(EINVAL);
    }
    interrupts::set_priority(state, from.cr8);
    state.cr0_caching = from.cr0 & (CR0_CD | CR0_NW);
    let first =
        (0..256u32).find(|&vector| from.interrupts[vector as usize / 64] >> (vector % 64) & 1 != 0);
    state.interrupt = first.map(|vector| vector as u8);
    let save = state.save();
    save.cs = hardware(&from.cs);
    save.ds = hardware(&from.ds);
    save.es = hardware(&from.es);
    save.fs = hardware(&from.fs);
    save.gs = hardware(&from.gs);
    save.ss = hardware(&from.ss);
    save.cpl = from.ss.dpl & 3;
    save.tr = hardware(&from.tr);
    save.ldtr = hardware(&from.ldt);
    for (to, from) in [(&mut save.gdtr, &from.gdt), (&mut save.idtr, &from.idt)] {
        (to.base, to.limit) = (from.base, u32::from(from.limit));
    }
    save.cr0 = from.cr0 & !(CR0_CD | CR0_NW) | CR0_ET;
    (save.cr2, save.cr3, save.cr4) = (from.cr2, from.cr3, from.cr4);
    save.efer = from.efer | SVME;
    const OSXSAVE: u64 = 1 << 18;
    if from.cr4 & OSXSAVE != 0 {
        state.show_xcr0();
    }
    // As the hardware does when a program changes its root.
    state.last_cpu = u32::MAX;
    state.changed(Clean::all());
    // A vCPU that waits for its first interrupt, set to the state after reset, runs.
    let is_reset = from.cs.selector == 0xf000 && from.cs.base == 0xffff_0000;
    if is_reset && state.save().rip == 0xfff0 && from.cr0 & CR0_PE == 0 {
        state.mp_state = uapi::mp_state::RUNNABLE;
    }
    Ok(())
}

/// Sets the place and state of the local APIC; whether there can be such.
pub fn set_apic_base(state: &mut State, to: u64) -> bool {
    const X2APIC: u64 = 1 << 10;
    let bits = cpuid::address_bits(&state.cpuid);
    let reserved = u64::MAX << bits | 0x2ff | X2APIC;
    if to & reserved != 0 {
        return false;
    }
    state.apic_base = to;
    true
}
