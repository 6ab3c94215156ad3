//! A virtual machine: its memory, its vCPUs, and the calls on its descriptor.
//!
//! It belongs to the address space that made it. Descriptors of other processes, after a fork, only keep it.

use alloc::vec::Vec;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linux_raw_sys::general as linux;

use super::flush::OwnedFlusher;
use super::memory::GuestMemory;
use super::uapi::{self, INITIALLY_SET, MANUAL_PROTECT};
use super::vcpu::{Open, Vcpu};
use super::{Handle, device, extensions, ring, stats};
use crate::arch::svm;
use crate::arch::uaccess::{self, Plain};
use crate::errno::{Answer, EBUSY, EEXIST, EINVAL, EIO, ENOMEM, ENOTTY, ESRCH};
use crate::files::description::{Description, Object};
use crate::files::descriptors;
use crate::files::turn::Turn;
use crate::process;
use crate::shared::Shared;
use crate::sync::SpinLock;

/// A virtual machine.
pub struct Vm {
    /// Unlike that of any other VM.
    pub number: u64,
    pub memory: GuestMemory,
    pub flusher: OwnedFlusher,
    vcpus: SpinLock<Vec<Shared<Vcpu>>>,
    /// Held while vCPUs or slots change.
    turn: Turn,
    has_irqchip: AtomicBool,
    mmu_pages: AtomicU64,
    /// The end of the numbers of vCPUs; 0: the program can still set it. Written under the turn.
    ids: AtomicU64,
    /// The number of the vCPU that boots. Written under the turn.
    boots: AtomicU64,
    /// Whether guests can read what the platform is.
    shows_platform: AtomicBool,
    /// Bytes of each vCPU's ring; 0: stores are logged by slot. Written under the turn.
    ring_bytes: AtomicU64,
    /// Whether the program is told of instructions that cannot be carried out, at any level.
    tells_failures: AtomicBool,
}

/// Makes a descriptor for something of KVM, closed on `exec`.
pub fn describe(handle: Handle, flags: u32) -> Answer {
    let description = Description::new(Object::Guest(handle), flags, None)?;
    descriptors::current().add(description, 0, true)
}

/// `KVM_CREATE_VM`.
///
/// # Errors
/// `ENOMEM`, `EMFILE`.
pub fn create() -> Answer {
    svm::prepare()?;
    let space = process::current().space().ok_or(ESRCH)?;
    let flusher = OwnedFlusher::new()?;
    let memory = GuestMemory::new(space, flusher.tag())?;
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let vm = Shared::new(Vm {
        number: NUMBER.fetch_add(1, Ordering::Relaxed),
        memory,
        flusher,
        vcpus: SpinLock::new(Vec::new()),
        turn: Turn::new(),
        has_irqchip: AtomicBool::new(false),
        mmu_pages: AtomicU64::new(0),
        ids: AtomicU64::new(0),
        boots: AtomicU64::new(0),
        shows_platform: AtomicBool::new(true),
        ring_bytes: AtomicU64::new(0),
        tells_failures: AtomicBool::new(false),
    })?;
    describe(Handle::Vm(vm), linux::O_RDWR)
}

/// Bytes of the argument of `KVM_GET_DIRTY_LOG` and of `KVM_CLEAR_DIRTY_LOG`.
type DirtyLog = [u64; 2];
type ClearDirtyLog = [u64; 3];

/// The part of `struct kvm_enable_cap` in use.
#[repr(C)]
#[derive(Clone, Copy)]
struct EnableCap {
    number: u32,
    flags: u32,
    arguments: [u64; 4],
    padding: [u64; 8],
}
const _: () = assert!(size_of::<EnableCap>() == 104);
// SAFETY: Integers without padding.
unsafe impl Plain for EnableCap {}

impl Vm {
    /// Whether the calling process's memory is that of the guest.
    #[inline]
    pub fn is_callers(&self) -> bool {
        ptr::eq(self.memory.space(), process::space())
    }

    pub fn tells_failures(&self) -> bool {
        self.tells_failures.load(Ordering::Relaxed)
    }

    pub fn shows_platform(&self) -> bool {
        self.shows_platform.load(Ordering::Relaxed)
    }

    pub fn has_irqchip(&self) -> bool {
        self.has_irqchip.load(Ordering::Relaxed)
    }

    /// A request on a VM's descriptor.
    ///
    /// # Errors
    /// Those of Linux.
    pub fn ioctl(this: &Shared<Self>, request: u32, at: u64) -> Answer {
        if !this.is_callers() {
            return Err(EIO);
        }
        match request {
            uapi::CHECK_EXTENSION => Ok(extensions::value(at as u32)),
            uapi::CREATE_VCPU => Self::create_vcpu(this, at),
            uapi::SET_USER_MEMORY_REGION => this.set_slot(uaccess::read(at)?),
            uapi::SET_USER_MEMORY_REGION2 => {
                let words: [u64; 20] = uaccess::read(at)?;
                // Memory of the guest alone is not offered.
                const GUEST_MEMORY: u64 = 4 << 32;
                if words[0] & GUEST_MEMORY != 0 {
                    return Err(EINVAL);
                }
                this.set_slot([words[0], words[1], words[2], words[3]])
            }
            uapi::GET_DIRTY_LOG => this.get_dirty_log(uaccess::read(at)?),
            uapi::CLEAR_DIRTY_LOG => this.clear_dirty_log(uaccess::read(at)?),
            uapi::ENABLE_CAP => this.enable(&uaccess::read(at)?),
            uapi::CREATE_IRQCHIP => this.create_irqchip(),
            uapi::SET_BOOT_CPU_ID => this.set_boot(at),
            uapi::SET_NR_MMU_PAGES => {
                const LEAST: u64 = 64;
                if at < LEAST {
                    return Err(EINVAL);
                }
                this.mmu_pages.store(at, Ordering::Relaxed);
                Ok(0)
            }
            uapi::GET_NR_MMU_PAGES => Ok(this.mmu_pages.load(Ordering::Relaxed)),
            uapi::SET_TSS_ADDR | uapi::SET_IDENTITY_MAP_ADDR => Ok(0),
            uapi::GET_STATS_FD => {
                let of = stats::Of::Vm(this.clone());
                describe(Handle::Stats(of), linux::O_RDONLY)
            }
            uapi::GET_TSC_KHZ => Ok(device::tsc_khz()),
            uapi::RESET_DIRTY_RINGS => this.reset_rings(),
            _ => Err(ENOTTY),
        }
    }

    fn create_vcpu(this: &Shared<Self>, id: u64) -> Answer {
        if id >= u64::from(uapi::MAX_VCPU_IDS) {
            return Err(EINVAL);
        }
        let _turn = this.turn.take()?;
        if id >= this.limit_ids(uapi::MAX_VCPU_IDS.into()) {
            return Err(EINVAL);
        }
        let boots = id == this.boots.load(Ordering::Relaxed);
        let id = id as u32;
        let has = |vcpus: &Vec<Shared<Vcpu>>| vcpus.iter().any(|vcpu| vcpu.id == id);
        {
            let mut vcpus = this.vcpus.lock();
            if vcpus.len() >= uapi::MAX_VCPUS as usize {
                return Err(EINVAL);
            }
            if has(&vcpus) {
                return Err(EEXIST);
            }
            vcpus.try_reserve(1).map_err(|_| ENOMEM)?;
        }
        let vcpu = Shared::new(Vcpu::new(id, boots, this.memory.root(), this.ring_bytes())?)?;
        let open = Open {
            vm: this.clone(),
            vcpu: vcpu.clone(),
        };
        let answer = describe(Handle::Vcpu(open), linux::O_RDWR)?;
        // Reserved above, and nothing else adds.
        this.vcpus.lock().push(vcpu);
        Ok(answer)
    }

    /// The end of the numbers of vCPUs, which is set now if it was not yet. The caller has the turn.
    fn limit_ids(&self, end: u64) -> u64 {
        let old = self.ids.load(Ordering::Relaxed);
        if old == 0 {
            self.ids.store(end, Ordering::Relaxed);
            return end;
        }
        old
    }

    /// `KVM_SET_BOOT_CPU_ID`.
    fn set_boot(&self, id: u64) -> Answer {
        let _turn = self.turn.take()?;
        if !self.vcpus.lock().is_empty() {
            return Err(EBUSY);
        }
        let end = match self.ids.load(Ordering::Relaxed) {
            0 => u64::from(uapi::MAX_VCPU_IDS),
            end => end,
        };
        if id > end {
            return Err(EINVAL);
        }
        self.boots.store(id, Ordering::Relaxed);
        Ok(0)
    }

    fn create_irqchip(&self) -> Answer {
        let _turn = self.turn.take()?;
        if self.has_irqchip() {
            return Err(EEXIST);
        }
        if !self.vcpus.lock().is_empty() {
            return Err(EINVAL);
        }
        self.has_irqchip.store(true, Ordering::Relaxed);
        Ok(0)
    }

    /// `KVM_SET_USER_MEMORY_REGION`: slot and flags, guest-physical address, size, address.
    fn set_slot(&self, [head, guest, size, host]: [u64; 4]) -> Answer {
        let (number, flags) = (head as u32, (head >> 32) as u32);
        let _turn = self.turn.take()?;
        self.memory.set_slot(number, flags, [guest, size, host])?;
        Ok(0)
    }

    fn get_dirty_log(&self, [slot, to]: DirtyLog) -> Answer {
        let _turn = self.turn.take()?;
        self.memory.get_dirty_log(slot as u32, to)
    }

    fn clear_dirty_log(&self, [head, first, from]: ClearDirtyLog) -> Answer {
        let (slot, pages) = (head as u32, head >> 32);
        let _turn = self.turn.take()?;
        self.memory.clear_dirty_log(slot, first, pages, from)
    }

    fn ring_bytes(&self) -> u64 {
        self.ring_bytes.load(Ordering::Relaxed)
    }

    /// Gives each vCPU a ring of so many bytes, from now on.
    fn use_rings(&self, bytes: u32) -> Answer {
        let bytes = ring::check(bytes)?;
        let _turn = self.turn.take()?;
        if self.ring_bytes() != 0 || !self.vcpus.lock().is_empty() {
            return Err(EINVAL);
        }
        self.memory.use_rings()?;
        self.ring_bytes.store(bytes, Ordering::Relaxed);
        Ok(0)
    }

    /// `KVM_RESET_DIRTY_RINGS`: how many pages are clean now.
    fn reset_rings(&self) -> Answer {
        if self.ring_bytes() == 0 {
            return Err(EINVAL);
        }
        // No vCPU comes meanwhile.
        let _turn = self.turn.take()?;
        let mut reset = self.memory.begin_reset();
        let nth = |number| self.vcpus.lock().get(number).cloned();
        for vcpu in (0..).map_while(nth) {
            if let Some(ring) = vcpu.ring() {
                reset.ring(ring);
            }
        }
        Ok(reset.finish())
    }

    /// `KVM_ENABLE_CAP`.
    fn enable(&self, wanted: &EnableCap) -> Answer {
        if let extensions::DIRTY_LOG_RING | extensions::DIRTY_LOG_RING_ACQ_REL = wanted.number {
            // As on Linux, whatever the flags are.
            return self.use_rings(wanted.arguments[0] as u32);
        }
        if wanted.flags != 0 {
            return Err(EINVAL);
        }
        match wanted.number {
            extensions::MANUAL_DIRTY_LOG_PROTECT2 => {
                let bits = wanted.arguments[0];
                let known = match bits & MANUAL_PROTECT {
                    0 => 0,
                    _ => MANUAL_PROTECT | INITIALLY_SET,
                };
                if bits & !known != 0 {
                    return Err(EINVAL);
                }
                self.memory.set_manual(bits);
                Ok(0)
            }
            extensions::DISABLE_QUIRKS2 if wanted.arguments[0] & !extensions::QUIRKS == 0 => Ok(0),
            extensions::MSR_PLATFORM_INFO => {
                let shows = wanted.arguments[0] != 0;
                self.shows_platform.store(shows, Ordering::Relaxed);
                Ok(0)
            }
            extensions::MAX_VCPU_ID => {
                let end = wanted.arguments[0];
                if end > u64::from(uapi::MAX_VCPU_IDS) {
                    return Err(EINVAL);
                }
                let _turn = self.turn.take()?;
                let boots = self.boots.load(Ordering::Relaxed);
                match boots <= end && self.limit_ids(end) == end {
                    true => Ok(0),
                    false => Err(EINVAL),
                }
            }
            extensions::EXIT_ON_EMULATION_FAILURE => {
                let on = match wanted.arguments[0] {
                    on @ 0..=1 => on != 0,
                    _ => return Err(EINVAL),
                };
                self.tells_failures.store(on, Ordering::Relaxed);
                Ok(0)
            }
            _ => Err(EINVAL),
        }
    }
}
