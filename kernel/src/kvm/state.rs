//! A vCPU's state: what `KVM_RUN` works on, and the calls that read and write registers. Reached under the vCPU's
//! turn.

use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use super::cpuid::Entry;
use super::uapi::mp_state;
use crate::arch::svm::{self, Clean, Control, Intercepts, SVME, Save, Segment, Vmcb};
use crate::arch::{fpu, paging, time};
use crate::errno::{ENOMEM, Errno};
use crate::memory::machine::{self, Purpose};

/// General registers in the order of `struct kvm_regs`. RAX and RSP are in the control block instead.
pub mod register {
    pub const RAX: usize = 0;
    pub const RBX: usize = 1;
    pub const RCX: usize = 2;
    pub const RDX: usize = 3;
    pub const RSI: usize = 4;
    pub const RDI: usize = 5;
    pub const RSP: usize = 6;
}

pub const CR0_PE: u64 = 1;
pub const CR0_ET: u64 = 1 << 4;
pub const CR0_NW: u64 = 1 << 29;
pub const CR0_CD: u64 = 1 << 30;
pub const CR0_PG: u64 = 1 << 31;
pub const EFER_LME: u64 = 1 << 8;
pub const EFER_LMA: u64 = 1 << 10;

/// In the control block: the local interrupt flag does not hold back the kernel's interrupts.
const MASKS_VIRTUAL: u32 = 1 << 24;
const NESTED: u64 = 1;
/// Exceptions that leave the guest: alignment check and debug, which can repeat for ever while they are
/// delivered, and machine check.
const EXCEPTIONS: u32 = 1 << 1 | 1 << 17 | 1 << 18;
/// Writes of CR4 leave the guest.
const WRITE_CR4: u32 = 1 << 20;
const RESET_PAT: u64 = 0x0007_0406_0007_0406;

/// What is left to do when the program runs the vCPU again.
#[derive(Clone, Copy)]
pub enum Pending {
    Nothing,
    /// An access to a port, by an instruction at this address, or at the next one if it is over.
    Port(super::io::Access),
    /// An access to memory that is none.
    Memory(super::exits::mmio::Access),
}

/// Registers that exist only for `rdmsr` and `wrmsr`.
#[derive(Clone, Copy, Default)]
pub struct Messages {
    pub misc_enable: u64,
    pub tsc_aux: u64,
    pub mtrr_default: u64,
    pub mtrr: [u64; 27],
    pub hwcr: u64,
    pub decoder: u64,
    pub tsc_adjust: u64,
    pub platform: u64,
}

/// The state.
pub struct State {
    block: NonNull<Vmcb>,
    physical: u64,
    pub registers: [u64; 16],
    /// Unlike any other vCPU's, for ever.
    pub number: u64,
    /// The CPU that entered it last.
    pub last_cpu: u32,
    pub cpuid: Vec<Entry>,
    pub pending: Pending,
    pub mp_state: u32,
    pub apic_base: u64,
    /// Bits of CR0 that hardware does not have: caching of guests is the kernel's.
    pub cr0_caching: u64,
    pub xcr0: u64,
    /// Whether XCR0 is loaded when it is entered.
    pub sees_xcr0: bool,
    /// Whether it was ever run.
    pub has_run: bool,
    pub messages: Messages,
    /// Debug registers 0 to 3.
    pub breakpoints: [u64; 4],
    /// The signals that are blocked while it runs (`KVM_SET_SIGNAL_MASK`).
    pub mask: Option<u64>,
    /// An interrupt that the program wants to be delivered (`KVM_INTERRUPT`).
    pub interrupt: Option<u8>,
}

// SAFETY: The block is this vCPU's own page.
unsafe impl Send for State {}

impl State {
    /// A vCPU after reset, perhaps the one that boots.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(boots: bool, root: u64) -> Result<Self, Errno> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let physical = machine::allocate_zeroed(Purpose::Guest).map_err(|_| ENOMEM)?;
        let block = NonNull::new(paging::physical_to_virtual(physical).cast()).ok_or(ENOMEM)?;
        let mut state = Self {
            block,
            physical,
            registers: [0; 16],
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            last_cpu: u32::MAX,
            cpuid: Vec::new(),
            pending: Pending::Nothing,
            mp_state: mp_state::RUNNABLE,
            apic_base: 0xfee0_0800 | if boots { 0x100 } else { 0 },
            cr0_caching: 0,
            xcr0: 1,
            sees_xcr0: false,
            has_run: false,
            messages: Messages {
                misc_enable: 1,
                ..Messages::default()
            },
            breakpoints: [0; 4],
            mask: None,
            interrupt: None,
        };
        state.control_to_run(root);
        state.reset();
        Ok(state)
    }

    /// Sets what the kernel wants of the hardware.
    fn control_to_run(&mut self, root: u64) {
        let control = self.control();
        let all = Intercepts::all().difference(Intercepts::INTERRUPT_WINDOW | Intercepts::SMI);
        control.intercepts = [all.bits() as u32, (all.bits() >> 32) as u32];
        control.intercept_exceptions = EXCEPTIONS;
        // Debug registers are not switched, so a guest that uses them leaves.
        control.intercept_dr = 0x00ff_00ff;
        control.ports = svm::ports();
        control.messages = svm::messages();
        control.tsc_offset = 0u64.wrapping_sub(time::ticks());
        control.identifier = 1;
        control.interrupt_control = MASKS_VIRTUAL;
        control.nested = NESTED;
        control.nested_root = root;
    }

    /// Loads its XCR0 from now on. Until it may look, which takes a bit of CR4, that costs nothing.
    pub fn show_xcr0(&mut self) {
        self.sees_xcr0 = fpu::components() != 0;
        self.control().intercept_cr &= !WRITE_CR4;
        self.changed(Clean::INTERCEPTS);
    }

    /// Gives it the state after power-on.
    pub fn reset(&mut self) {
        self.registers = [0; 16];
        self.registers[register::RDX] = 0x600;
        self.cr0_caching = CR0_NW | CR0_CD;
        self.xcr0 = 1;
        self.sees_xcr0 = false;
        self.pending = Pending::Nothing;
        let control = self.control();
        control.event = 0;
        control.interrupt_state = 0;
        control.intercept_cr |= WRITE_CR4;
        let save = self.save();
        let data = Segment {
            selector: 0,
            attributes: 0x93,
            limit: 0xffff,
            base: 0,
        };
        for segment in [
            &mut save.ds,
            &mut save.es,
            &mut save.fs,
            &mut save.gs,
            &mut save.ss,
        ] {
            *segment = data;
        }
        save.cs = Segment {
            selector: 0xf000,
            attributes: 0x9b,
            limit: 0xffff,
            base: 0xffff_0000,
        };
        let table = Segment {
            limit: 0xffff,
            ..Segment::default()
        };
        (save.gdtr, save.idtr) = (table, table);
        save.ldtr = Segment {
            attributes: 0x82,
            ..table
        };
        save.tr = Segment {
            attributes: 0x83,
            ..table
        };
        save.cpl = 0;
        save.efer = SVME;
        (save.cr0, save.cr2, save.cr3, save.cr4) = (CR0_ET, 0, 0, 0);
        (save.dr6, save.dr7) = (0xffff_0ff0, 0x400);
        (save.rip, save.rflags) = (0xfff0, 2);
        (save.rsp, save.rax) = (0, 0);
        save.pat = RESET_PAT;
        self.changed(Clean::all());
    }

    /// The physical address of the control block.
    pub fn block(&self) -> u64 {
        self.physical
    }

    pub fn control(&mut self) -> &mut Control {
        // SAFETY: The block is this vCPU's own, and the CPU writes it only while the vCPU runs.
        unsafe { &mut self.block.as_mut().control }
    }

    pub fn save(&mut self) -> &mut Save {
        // SAFETY: As above.
        unsafe { &mut self.block.as_mut().save }
    }

    /// Says that the kernel has changed parts of the block.
    pub fn changed(&mut self, parts: Clean) {
        self.control().clean &= !parts.bits();
    }

    /// A general register.
    pub fn register(&mut self, number: usize) -> u64 {
        match number {
            register::RAX => self.save().rax,
            register::RSP => self.save().rsp,
            number => self.registers[number & 15],
        }
    }

    pub fn set_register(&mut self, number: usize, value: u64) {
        match number {
            register::RAX => self.save().rax = value,
            register::RSP => self.save().rsp = value,
            number => self.registers[number & 15] = value,
        }
    }

    /// CR0 as the guest set it.
    pub fn cr0(&mut self) -> u64 {
        self.save().cr0 | self.cr0_caching
    }

    /// Whether it runs 64-bit code.
    pub fn is_long(&mut self) -> bool {
        self.save().efer & EFER_LMA != 0 && self.save().cs.attributes & 1 << 9 != 0
    }

    /// The linear address of the next instruction.
    pub fn linear_rip(&mut self) -> u64 {
        let long = self.is_long();
        let save = self.save();
        match long {
            true => save.rip,
            false => save.cs.base.wrapping_add(save.rip) & 0xffff_ffff,
        }
    }

    /// Goes on behind the present instruction. `length` is used if the CPU does not tell where that is.
    pub fn skip(&mut self, length: u64) {
        let told = match svm::tells_next() {
            true => self.control().next_rip,
            false => 0,
        };
        let here = self.save().rip;
        self.go_on_at(match told {
            0 => here.wrapping_add(length),
            next => next,
        });
    }

    /// Goes on at an address, after an instruction.
    pub fn go_on_at(&mut self, rip: u64) {
        self.save().rip = rip;
        // The shadow of `sti` and `mov ss` ends with the instruction.
        self.control().interrupt_state &= !1;
    }

    /// Makes the guest take an exception when it is entered.
    pub fn inject(&mut self, vector: u8, error: Option<u32>) {
        const EXCEPTION: u32 = 3 << 8;
        const VALID: u32 = 1 << 31;
        let control = self.control();
        control.event = u32::from(vector) | EXCEPTION | VALID;
        control.event_error = 0;
        if let Some(error) = error {
            control.event |= 1 << 11;
            control.event_error = error;
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        machine::free(self.physical);
    }
}

/// Vectors of exceptions.
pub mod exception {
    pub const UNDEFINED: u8 = 6;
    pub const PROTECTION: u8 = 13;
    pub const PAGE_FAULT: u8 = 14;
}
