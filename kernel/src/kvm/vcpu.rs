//! A vCPU, its descriptor, and the calls on it.

use core::cell::UnsafeCell;

use faultless_tdp::DirtyRing;
use linux_raw_sys::general as linux;

use super::area::Area;
use super::ring::Ring;
use super::state::State;
use super::stats::{self, Stats};
use super::uapi::{self, mp_state};
use super::vm::Vm;
use super::{
    Handle, attributes, cpuid, events, fpu, msr, pre_fault, registers, run, system_registers, vm,
};
use crate::arch::svm::Clean;
use crate::arch::uaccess;
use crate::errno::{Answer, EINVAL, EIO, ENXIO, Errno};
use crate::files::turn::Turn;
use crate::shared::Shared;

/// A vCPU.
pub struct Vcpu {
    pub id: u32,
    pub area: Area,
    /// If its VM has rings.
    pub dirty: Option<Ring>,
    pub stats: Stats,
    /// Held by the call that uses the state.
    turn: Turn,
    state: UnsafeCell<State>,
}

// SAFETY: `with` lets one thread at a time reach the state.
unsafe impl Sync for Vcpu {}

/// A descriptor of one.
pub struct Open {
    pub vm: Shared<Vm>,
    pub vcpu: Shared<Vcpu>,
}

impl Vcpu {
    /// Makes one, perhaps the one that boots, with a ring of so many bytes, if that is not 0.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(id: u32, boots: bool, root: u64, ring: u64) -> Result<Self, Errno> {
        let area = Area::new()?;
        fpu::reset(&area);
        Ok(Self {
            id,
            area,
            dirty: (ring != 0).then(|| Ring::new(ring)).transpose()?,
            stats: Stats::new(),
            turn: Turn::new(),
            state: UnsafeCell::new(State::new(boots, root)?),
        })
    }

    /// Its dirty ring.
    #[inline]
    pub fn ring(&self) -> Option<&DirtyRing<'static>> {
        self.dirty.as_ref().map(Ring::places)
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> Result<R, Errno> {
        let _turn = self.turn.take()?;
        // SAFETY: The turn is held, and `f` cannot take it again.
        Ok(f(unsafe { &mut *self.state.get() }))
    }
}

impl Open {
    /// A request on the descriptor.
    ///
    /// # Errors
    /// Those of Linux's.
    pub fn ioctl(&self, request: u32, at: u64) -> Answer {
        if !self.vm.is_callers() {
            return Err(EIO);
        }
        let vcpu = &*self.vcpu;
        if request == uapi::RUN {
            return match at {
                0 => vcpu.with(|state| run::run(&self.vm, vcpu, state))?,
                _ => Err(EINVAL),
            };
        }
        vcpu.with(|state| self.other(state, request, at))?
    }

    #[allow(clippy::too_many_lines, reason = "a table")]
    fn other(&self, state: &mut State, request: u32, at: u64) -> Answer {
        let area = &self.vcpu.area;
        match request {
            uapi::GET_REGS => uaccess::write(at, &registers::get(state))?,
            uapi::SET_REGS => registers::set(state, &uaccess::read(at)?),
            uapi::GET_SREGS => uaccess::write(at, &system_registers::get(state))?,
            uapi::SET_SREGS => system_registers::set(state, &uaccess::read(at)?)?,
            uapi::SET_CPUID2 => {
                let table = cpuid::read(at)?;
                // A vCPU that has run keeps its features.
                if state.has_run && !cpuid::are_same(&table, &state.cpuid) {
                    return Err(EINVAL);
                }
                state.cpuid = table;
            }
            uapi::GET_CPUID2 => return cpuid::write(at, &state.cpuid),
            uapi::GET_MSRS => {
                let get = |number, value: &mut u64| {
                    msr::get(state, number)
                        .map(|found| *value = found)
                        .is_some()
                };
                return msr::several(at, get, true);
            }
            uapi::SET_MSRS => {
                let set = |number, value: &mut u64| msr::set(state, number, *value);
                return msr::several(at, set, false);
            }
            uapi::GET_MP_STATE => uaccess::write(at, &state.mp_state)?,
            uapi::SET_MP_STATE => {
                let wanted: u32 = uaccess::read(at)?;
                let has_apic = self.vm.has_irqchip();
                let exists = wanted <= mp_state::HALTED + 1 && has_apic;
                if wanted != mp_state::RUNNABLE && !exists || wanted > mp_state::LARGEST {
                    return Err(EINVAL);
                }
                state.mp_state = wanted;
            }
            uapi::SET_SIGNAL_MASK => {
                const BYTES: u32 = 8;
                state.mask = match at {
                    0 => None,
                    _ if uaccess::read::<u32>(at)? != BYTES => return Err(EINVAL),
                    _ => {
                        let [low, high]: [u32; 2] = uaccess::read(at + 4)?;
                        Some(u64::from(low) | u64::from(high) << 32)
                    }
                };
            }
            uapi::INTERRUPT => {
                let vector: u32 = uaccess::read(at)?;
                if vector > 255 {
                    return Err(EINVAL);
                }
                if self.vm.has_irqchip() {
                    return Err(ENXIO);
                }
                state.interrupt = Some(vector as u8);
            }
            uapi::GET_VCPU_EVENTS => uaccess::write(at, &events::get(state))?,
            uapi::SET_VCPU_EVENTS => events::set(state, &uaccess::read(at)?)?,
            // Breakpoints, status, control.
            uapi::GET_DEBUGREGS => {
                let mut words = [0u64; 16];
                words[..4].copy_from_slice(&state.breakpoints);
                (words[4], words[5]) = (state.save().dr6, state.save().dr7);
                uaccess::write(at, &words)?;
            }
            uapi::SET_DEBUGREGS => {
                let words: [u64; 16] = uaccess::read(at)?;
                if words[6] != 0 || words[4] >> 32 != 0 || words[5] >> 32 != 0 {
                    return Err(EINVAL);
                }
                state.breakpoints.copy_from_slice(&words[..4]);
                (state.save().dr6, state.save().dr7) = (words[4], words[5] | 0x400);
                state.changed(Clean::DEBUG_REGISTERS);
            }
            uapi::GET_FPU => return fpu::get_legacy(area, at),
            uapi::SET_FPU => return fpu::set_legacy(area, at),
            uapi::GET_XSAVE | uapi::GET_XSAVE2 => return fpu::get_xsave(area, at),
            uapi::SET_XSAVE => return fpu::set_xsave(area, at),
            uapi::GET_XCRS => return fpu::get_xcrs(state, at),
            uapi::SET_XCRS => return fpu::set_xcrs(state, at),
            uapi::PRE_FAULT_MEMORY => return pre_fault::run(&self.vm, at),
            uapi::SET_DEVICE_ATTR | uapi::GET_DEVICE_ATTR | uapi::HAS_DEVICE_ATTR => {
                return attributes::ioctl(state, request, at);
            }
            uapi::GET_STATS_FD => {
                let open = Self {
                    vm: self.vm.clone(),
                    vcpu: self.vcpu.clone(),
                };
                return vm::describe(Handle::Stats(stats::Of::Vcpu(open)), linux::O_RDONLY);
            }
            uapi::GET_TSC_KHZ => return Ok(super::device::tsc_khz()),
            _ => return Err(EINVAL),
        }
        Ok(0)
    }
}
