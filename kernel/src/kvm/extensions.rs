//! `KVM_CHECK_EXTENSION`: what is offered, by Linux's numbers. 0 for everything else.

use super::uapi::{INITIALLY_SET, MANUAL_PROTECT, MAX_SLOTS, MAX_VCPU_IDS, MAX_VCPUS};
use super::{ring, sync_regs};
use crate::arch::percpu;

pub const MANUAL_DIRTY_LOG_PROTECT2: u32 = 168;
pub const DISABLE_QUIRKS2: u32 = 213;
/// `KVM_X86_QUIRK_SLOT_ZAP_ALL`: a slot that goes takes the translations of all others along. Never so here.
pub const QUIRKS: u64 = 1 << 7;
pub const EXIT_ON_EMULATION_FAILURE: u32 = 204;
pub const MAX_VCPU_ID: u32 = 128;
pub const MSR_PLATFORM_INFO: u32 = 159;
pub const DIRTY_LOG_RING: u32 = 192;
pub const DIRTY_LOG_RING_ACQ_REL: u32 = 223;

/// The value of an extension.
pub fn value(number: u32) -> u64 {
    match number {
        // USER_MEMORY, SET_TSS_ADDR, EXT_CPUID, NOP_IO_DELAY, MP_STATE, SYNC_MMU, DESTROY_MEMORY_REGION_WORKS,
        // JOIN_MEMORY_REGIONS_WORKS, SET_IDENTITY_MAP_ADDR, SET_BOOT_CPU_ID,
        // INTERNAL_ERROR_DATA, VCPU_EVENTS, DEBUGREGS, ENABLE_CAP, XSAVE,
        // GET_TSC_KHZ, READONLY_MEM, EXT_EMUL_CPUID, ENABLE_CAP_VM, CHECK_EXTENSION_VM, VCPU_ATTRIBUTES, IMMEDIATE_EXIT,
        // GET_MSR_FEATURES, BINARY_STATS_FD, EXIT_ON_EMULATION_FAILURE, USER_MEMORY2,
        // PRE_FAULT_MEMORY.
        3
        | 4
        | 7
        | 12
        | 14
        | 16
        | 21
        | 30
        | 34
        | 37
        | 40
        | 41
        | 50
        | 54
        | 55
        | 61
        | 81
        | 95
        | 98
        | 105
        | 127
        | 136
        | 153
        | MSR_PLATFORM_INFO
        | 203
        | EXIT_ON_EMULATION_FAILURE
        | 231
        | 236 => 1,
        // IRQCHIP, of which nothing but its existence is.
        0 => 1,
        // XCRS.
        56 => u64::from(
            crate::arch::features::features().contains(crate::arch::features::Features::XSAVE),
        ),
        // NR_VCPUS, MAX_VCPUS, MAX_VCPU_ID.
        9 => u64::from(percpu::count()),
        66 => u64::from(MAX_VCPUS),
        MAX_VCPU_ID => u64::from(MAX_VCPU_IDS),
        // NR_MEMSLOTS.
        10 => u64::from(MAX_SLOTS),
        // VM_TYPES: one, number 0.
        235 => 1,
        // SYNC_REGS.
        74 => sync_regs::ALL,
        // XSAVE2: bytes of KVM_GET_XSAVE2.
        208 => 4096,
        DISABLE_QUIRKS2 => QUIRKS,
        // Bytes of a ring at most. No bitmap beside it (225): only vCPUs store.
        DIRTY_LOG_RING | DIRTY_LOG_RING_ACQ_REL => ring::MOST_BYTES,
        MANUAL_DIRTY_LOG_PROTECT2 => MANUAL_PROTECT | INITIALLY_SET,
        _ => 0,
    }
}
