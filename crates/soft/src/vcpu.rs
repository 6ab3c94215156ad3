//! A vCPU: a soft CPU that runs a guest, whose accesses go through the second-level tables.
//!
//! It has no TLB. Each access is a walk and what it does to the page, in one access section, so that a flush of the guest
//! waits for the accesses that are going on, as it would for a CPU that has to leave guest mode.

use std::sync::atomic::{AtomicU64, Ordering};

use faultless_mm::Outcome;
use faultless_paging::{
    Access, ENTRIES, Entry, EntryFormat, Frame, PAGE_SIZE, Page, PhysicalMemory, Walk, walk,
};
use faultless_tdp::{DirtyRing, Guest, GuestFault, GuestMachine, GuestOutcome, Npt};

use crate::cpu::SoftCpu;
use crate::machine::{Soft, SoftSpace};
use crate::shootdown::publish;

/// The end of the guest-physical addresses that four levels of tables reach.
const LIMIT: u64 = 1 << 48;

/// A guest of a soft machine.
pub type SoftGuest = Guest<Soft, std::sync::Arc<SoftSpace>>;

/// Why a guest's access failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The access is one to a device.
    Device {
        /// The guest-physical address.
        address: u64,
    },
    /// The host's memory cannot be accessed like this.
    Host(Outcome),
    /// The vCPU's ring has no place for the page.
    RingFull,
}

impl GuestMachine for Soft {
    type SecondLevel = Npt;

    fn flush_guest(&self, _tag: u64) {
        // The entries were changed before: an access that begins from now on sees the new ones.
        std::sync::atomic::fence(Ordering::SeqCst);
        publish(self.is_asymmetric());
        self.wait_for_accesses();
    }
}

/// Returns the frame of an entry if it allows an access. Then its accessed and dirty bits are set, as by hardware. An entry that
/// showed a huge page may lead to a table meanwhile.
#[inline]
fn uses(entry: &Entry, value: u64, access: Access, is_huge: bool) -> Option<Frame> {
    let format = Npt::FORMAT;
    let dirty = match access {
        Access::Write => format.dirty,
        _ => 0,
    };
    let mut value = value;
    while format.permits(value, access) && (!is_huge || format.is_huge(value)) {
        let used = value | format.accessed | dirty;
        if used == value || entry.replace(value, used).is_ok() {
            return Some(format.frame(value));
        }
        value = entry.load();
    }
    None
}

/// A vCPU on the calling thread's CPU.
pub struct SoftVcpu<'a> {
    cpu: &'a SoftCpu<'a>,
    guest: &'a SoftGuest,
    ring: Option<&'a DirtyRing<'a>>,
}

impl<'a> SoftVcpu<'a> {
    /// Makes a vCPU of `guest` that runs on `cpu`.
    pub fn new(cpu: &'a SoftCpu<'a>, guest: &'a SoftGuest) -> Self {
        let ring = None;
        Self { cpu, guest, ring }
    }

    /// Makes one whose stores are logged in a ring.
    pub fn with_ring(cpu: &'a SoftCpu<'a>, guest: &'a SoftGuest, ring: &'a DirtyRing<'a>) -> Self {
        let ring = Some(ring);
        Self { cpu, guest, ring }
    }

    /// Loads a word of guest-physical memory. The address is a multiple of 8.
    ///
    /// # Errors
    /// The exit that the load takes.
    #[inline]
    pub fn load(&self, address: u64) -> Result<u64, Exit> {
        self.word(address, Access::Read, |word| word.load(Ordering::Relaxed))
    }

    /// Stores a word to guest-physical memory. The address is a multiple of 8.
    ///
    /// # Errors
    /// The exit that the store takes.
    #[inline]
    pub fn store(&self, address: u64, value: u64) -> Result<(), Exit> {
        self.word(address, Access::Write, |word| {
            word.store(value, Ordering::Relaxed)
        })
    }

    #[inline]
    fn word<R>(
        &self,
        address: u64,
        access: Access,
        act: impl Fn(&AtomicU64) -> R,
    ) -> Result<R, Exit> {
        assert!(address.is_multiple_of(8), "unaligned: {address:#x}");
        loop {
            if let Some(result) = self.try_word(address, access, &act) {
                return Ok(result);
            }
            match self.guest.fault_of_vcpu(&self.fault(address, access)) {
                GuestOutcome::Resolved(_) => {}
                GuestOutcome::Device => return Err(Exit::Device { address }),
                GuestOutcome::Host(outcome) => return Err(Exit::Host(outcome)),
                GuestOutcome::RingFull => return Err(Exit::RingFull),
            }
        }
    }

    /// The fault that an access takes, with the error code of AMD's nested paging: write, user, fetch.
    fn fault(&self, address: u64, access: Access) -> GuestFault<'a> {
        let error_code = match access {
            Access::Read => 4,
            Access::Write => 6,
            Access::Execute => 20,
        };
        GuestFault {
            address,
            access,
            vcpu: self.cpu.number(),
            error_code,
            ring: self.ring,
        }
    }

    /// Makes the access if the entry allows it.
    #[inline]
    fn try_word<R>(
        &self,
        address: u64,
        access: Access,
        act: &impl Fn(&AtomicU64) -> R,
    ) -> Option<R> {
        let machine = self.cpu.memory.machine();
        let target = &self.cpu.state().target;
        if target.begin(machine.is_asymmetric()) {
            machine.answer(self.cpu.cpu);
        }
        let page = Page::containing(address);
        // SAFETY: a table is freed only after a flush of the guest, which waits for this access section.
        let walked = unsafe { walk::<Npt, Soft>(machine, self.guest.root(), page) };
        let is_inside = address < LIMIT;
        let frame = match walked {
            Walk::Leaf { entry, value, .. } if is_inside => uses(entry, value, access, false),
            Walk::Huge { entry, value, .. } if is_inside => uses(entry, value, access, true)
                .map(|first| Frame(first.0 + page.0 % ENTRIES as u64)),
            _ => None,
        };
        let result = frame.map(|frame| {
            let page = machine.pointer(frame).as_ptr();
            let offset = (address % PAGE_SIZE) as usize;
            // SAFETY: inside a frame of the arena, aligned; guests access it atomically.
            act(unsafe { &*page.add(offset).cast::<AtomicU64>() })
        });
        target.end();
        result
    }
}
