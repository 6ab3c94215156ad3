//! The numbers of Linux's interface (`linux/kvm.h`).

const fn request(direction: u32, number: u32, size: u32) -> u32 {
    direction << 30 | size << 16 | 0xae << 8 | number
}
const fn plain(number: u32) -> u32 {
    request(0, number, 0)
}
/// The kernel reads the argument.
const fn reads(number: u32, size: u32) -> u32 {
    request(1, number, size)
}
/// The kernel writes it.
const fn writes(number: u32, size: u32) -> u32 {
    request(2, number, size)
}
const fn both(number: u32, size: u32) -> u32 {
    request(3, number, size)
}

pub const GET_API_VERSION: u32 = plain(0x00);
pub const CREATE_VM: u32 = plain(0x01);
pub const GET_MSR_INDEX_LIST: u32 = both(0x02, 4);
pub const CHECK_EXTENSION: u32 = plain(0x03);
pub const GET_VCPU_MMAP_SIZE: u32 = plain(0x04);
pub const GET_SUPPORTED_CPUID: u32 = both(0x05, 8);
pub const GET_EMULATED_CPUID: u32 = both(0x09, 8);
pub const GET_MSR_FEATURE_INDEX_LIST: u32 = both(0x0a, 4);

pub const CREATE_VCPU: u32 = plain(0x41);
pub const GET_DIRTY_LOG: u32 = reads(0x42, 16);
pub const SET_NR_MMU_PAGES: u32 = plain(0x44);
pub const GET_NR_MMU_PAGES: u32 = plain(0x45);
pub const SET_USER_MEMORY_REGION: u32 = reads(0x46, 32);
pub const SET_TSS_ADDR: u32 = plain(0x47);
pub const SET_IDENTITY_MAP_ADDR: u32 = reads(0x48, 8);
pub const SET_USER_MEMORY_REGION2: u32 = reads(0x49, 160);
pub const CREATE_IRQCHIP: u32 = plain(0x60);
pub const SET_BOOT_CPU_ID: u32 = plain(0x78);
pub const GET_TSC_KHZ: u32 = plain(0xa3);
pub const ENABLE_CAP: u32 = reads(0xa3, 104);
pub const CLEAR_DIRTY_LOG: u32 = both(0xc0, 24);
pub const RESET_DIRTY_RINGS: u32 = plain(0xc7);
pub const GET_STATS_FD: u32 = plain(0xce);

pub const RUN: u32 = plain(0x80);
pub const GET_REGS: u32 = writes(0x81, 144);
pub const SET_REGS: u32 = reads(0x82, 144);
pub const GET_SREGS: u32 = writes(0x83, 312);
pub const SET_SREGS: u32 = reads(0x84, 312);
pub const INTERRUPT: u32 = reads(0x86, 4);
pub const GET_MSRS: u32 = both(0x88, 8);
pub const SET_MSRS: u32 = reads(0x89, 8);
pub const SET_SIGNAL_MASK: u32 = reads(0x8b, 4);
pub const GET_FPU: u32 = writes(0x8c, 416);
pub const SET_FPU: u32 = reads(0x8d, 416);
pub const SET_CPUID2: u32 = reads(0x90, 8);
pub const GET_CPUID2: u32 = both(0x91, 8);
pub const GET_MP_STATE: u32 = writes(0x98, 4);
pub const SET_MP_STATE: u32 = reads(0x99, 4);
pub const GET_VCPU_EVENTS: u32 = writes(0x9f, 64);
pub const SET_VCPU_EVENTS: u32 = reads(0xa0, 64);
pub const GET_DEBUGREGS: u32 = writes(0xa1, 128);
pub const SET_DEBUGREGS: u32 = reads(0xa2, 128);
pub const GET_XSAVE: u32 = writes(0xa4, 4096);
pub const SET_XSAVE: u32 = reads(0xa5, 4096);
pub const GET_XCRS: u32 = writes(0xa6, 392);
pub const SET_XCRS: u32 = reads(0xa7, 392);
pub const GET_XSAVE2: u32 = writes(0xcf, 4096);
pub const PRE_FAULT_MEMORY: u32 = both(0xd5, 64);
pub const SET_DEVICE_ATTR: u32 = reads(0xe1, 24);
pub const GET_DEVICE_ATTR: u32 = reads(0xe2, 24);
pub const HAS_DEVICE_ATTR: u32 = reads(0xe3, 24);

/// Reasons for which `KVM_RUN` returns.
pub mod exit {
    pub const UNKNOWN: u32 = 0;
    pub const IO: u32 = 2;
    pub const HLT: u32 = 5;
    pub const MMIO: u32 = 6;
    pub const IRQ_WINDOW_OPEN: u32 = 7;
    pub const SHUTDOWN: u32 = 8;
    pub const FAIL_ENTRY: u32 = 9;
    pub const INTR: u32 = 10;
    pub const INTERNAL_ERROR: u32 = 17;
    pub const DIRTY_RING_FULL: u32 = 31;
}

/// States of a vCPU (`KVM_MP_STATE_*`).
pub mod mp_state {
    pub const RUNNABLE: u32 = 0;
    pub const UNINITIALIZED: u32 = 1;
    pub const HALTED: u32 = 3;
    pub const LARGEST: u32 = 9;
}

/// The most vCPUs of a VM, and the most numbers for them, as Linux on x86-64.
pub const MAX_VCPUS: u32 = 1024;
pub const MAX_VCPU_IDS: u32 = 4096;
/// The most memory slots: what `faultless_tdp` takes.
pub const MAX_SLOTS: u32 = 509;
/// The most entries of a CPUID table.
pub const MAX_CPUID: u32 = 256;

/// Exits that the kernel could not handle.
pub const INTERNAL_EMULATION: u32 = 1;
/// A message that an event was under way when something went wrong.
pub const INTERNAL_UNEXPECTED: u32 = 4;

/// `KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE` and `KVM_DIRTY_LOG_INITIALLY_SET`.
pub const MANUAL_PROTECT: u64 = 1;
pub const INITIALLY_SET: u64 = 2;
