//! A guest's memory: the adaptor between this interface and `faultless_tdp`.

use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering};

pub use faultless_tdp::{DirtyRing, GuestFault, Repair};
use faultless_tdp::{GuestOutcome, OwnedGuest, RingReset, Slot, SlotFlags};

use super::parameters;
use super::uapi::INITIALLY_SET;
use crate::arch::uaccess;
use crate::errno::{Answer, EINVAL, Errno};
use crate::memory::machine::Kernel;
use crate::memory::{Access, Outcome};
use crate::process::UserSpace;
use crate::shared::Shared;
use crate::verify;

/// How a guest's fault ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Resolved(Repair),
    /// There is no slot, or a read-only one is written to.
    Mmio,
    OutOfMemory,
    /// A signal came while it waited.
    Interrupted,
    /// The program's memory is not there.
    Refused,
    /// The vCPU's ring has no place for the page.
    RingFull,
}

/// The program's memory. A descriptor leads to it, and it leads to descriptors: here is where the compiler's search
/// for what is `Send` ends.
pub struct Host(Shared<UserSpace>);

// SAFETY: A counted reference to what all threads of a process share.
unsafe impl Send for Host {}
// SAFETY: As above.
unsafe impl Sync for Host {}

impl Deref for Host {
    type Target = UserSpace;

    fn deref(&self) -> &UserSpace {
        &self.0
    }
}

/// The core's part, which stays where it is until it is destroyed.
pub type Guest = faultless_tdp::Guest<Kernel, Host>;

/// A guest's memory.
pub struct GuestMemory {
    guest: ManuallyDrop<OwnedGuest<Kernel, Host>>,
    /// The same as the guest has.
    space: Shared<UserSpace>,
    /// How new dirty logs begin (`KVM_DIRTY_LOG_MANUAL_CAPS`).
    manual: AtomicU64,
}

impl GuestMemory {
    /// # Errors
    /// `ENOMEM`.
    pub fn new(space: Shared<UserSpace>, tag: u64) -> Result<Self, Errno> {
        let guest = OwnedGuest::new(Host(space.clone()), tag, parameters::options())?;
        if let Err(error) = verify::guests::add(&guest) {
            guest.destroy();
            return Err(error);
        }
        Ok(Self {
            guest: ManuallyDrop::new(guest),
            space,
            manual: AtomicU64::new(0),
        })
    }

    /// The program's memory.
    pub fn space(&self) -> &UserSpace {
        &self.space
    }

    /// The physical address of the nested tables' root.
    pub fn root(&self) -> u64 {
        self.guest.root().0 << 12
    }

    /// Sets how dirty logs work from now on.
    pub fn set_manual(&self, bits: u64) {
        self.manual.store(bits, Ordering::Relaxed);
    }

    /// Sets a slot: its number, `KVM_MEM_*`, where the guest and the program have it, and its size.
    ///
    /// # Errors
    /// As `KVM_SET_USER_MEMORY_REGION`.
    pub fn set_slot(
        &self,
        number: u32,
        flags: u32,
        [guest, size, host]: [u64; 3],
    ) -> Result<(), Errno> {
        let known = SlotFlags::LOG_DIRTY_PAGES | SlotFlags::READONLY;
        let mut flags = SlotFlags::from_bits(flags)
            .filter(|&flags| known.contains(flags))
            .ok_or(EINVAL)?;
        let begins_full = self.manual.load(Ordering::Relaxed) & INITIALLY_SET != 0;
        if begins_full && flags.contains(SlotFlags::LOG_DIRTY_PAGES) {
            flags |= SlotFlags::LOG_BEGINS_FULL;
        }
        let slot = Slot {
            guest_address: guest,
            size,
            host_address: host,
            flags,
        };
        self.guest.set_slot(number, &slot)
    }

    /// Resolves a fault for an access that the host makes for the guest.
    pub fn fault(&self, address: u64, access: Access) -> Fault {
        told(self.guest.fault(address, access))
    }

    /// Resolves a guest's fault.
    #[inline]
    pub fn fault_of_vcpu(&self, fault: &GuestFault<'_>) -> Fault {
        told(self.guest.fault_of_vcpu(fault))
    }

    /// `KVM_GET_DIRTY_LOG`: writes a slot's bits to the program, and clears them unless the program does.
    ///
    /// # Errors
    /// `ENXIO`, `ENOENT`, `EFAULT`.
    pub fn get_dirty_log(&self, slot: u32, to: u64) -> Answer {
        let clears = self.manual.load(Ordering::Relaxed) == 0;
        let mut at = to;
        self.guest.get_dirty_log(slot, clears, &mut |word| {
            uaccess::write(at, &word)?;
            at = at.wrapping_add(8);
            Ok(())
        })?;
        Ok(0)
    }

    /// `KVM_CLEAR_DIRTY_LOG`: clears the pages of which the program gives the bits.
    ///
    /// # Errors
    /// `ENXIO`, `ENOENT`, `EINVAL`, `EFAULT`.
    pub fn clear_dirty_log(&self, slot: u32, first: u64, pages: u64, from: u64) -> Answer {
        let mut at = from;
        self.guest.clear_dirty_log(slot, first, pages, &mut || {
            let word = uaccess::read(at)?;
            at = at.wrapping_add(8);
            Ok(word)
        })?;
        Ok(0)
    }

    /// How many pages of 4 KiB and of 2 MiB the nested tables show.
    pub fn count_pages(&self) -> [u64; 2] {
        self.guest.count_pages()
    }

    /// Where the program has a guest-physical address.
    pub fn host_address(&self, address: u64) -> Option<u64> {
        self.guest.host_address(address)
    }

    /// Makes sure that the kernel may write guest memory at this address for the guest, and that the log says so.
    pub fn prepare_write(&self, address: u64, ring: Option<&DirtyRing<'_>>) -> Fault {
        self.fault_of_vcpu(&GuestFault {
            address,
            access: Access::Write,
            vcpu: 0,
            error_code: 0,
            ring,
        })
    }

    /// Logs stores in the rings of vCPUs, of which there is none yet.
    ///
    /// # Errors
    /// `EINVAL`: it is so already.
    pub fn use_rings(&self) -> Result<(), Errno> {
        self.guest.use_rings()
    }

    /// Begins to reset rings.
    pub fn begin_reset(&self) -> RingReset<'_, Kernel, Host> {
        self.guest.begin_reset()
    }
}

impl Drop for GuestMemory {
    fn drop(&mut self) {
        verify::guests::remove(&self.guest);
        // SAFETY: Taken once. The VM is gone, so no vCPU runs and no call is in progress.
        unsafe { ManuallyDrop::take(&mut self.guest) }.destroy();
    }
}

/// What a guest's fault means to its vCPU.
#[inline]
fn told(outcome: GuestOutcome) -> Fault {
    match outcome {
        GuestOutcome::Resolved(repair) => Fault::Resolved(repair),
        GuestOutcome::Device => Fault::Mmio,
        GuestOutcome::Host(Outcome::OutOfMemory) => Fault::OutOfMemory,
        GuestOutcome::Host(Outcome::Interrupted) => Fault::Interrupted,
        GuestOutcome::Host(_) => Fault::Refused,
        GuestOutcome::RingFull => Fault::RingFull,
    }
}
