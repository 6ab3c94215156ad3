//! A guest on the soft machine, over a mapping of its host.

use std::sync::Arc;

use faultless_mm::flags;
use faultless_soft::{Soft, SoftCpu, SoftGuest, SoftMemory, SoftSpace, SoftVcpu};
use faultless_tdp::{Options, OwnedGuest, Slot, SlotFlags};

/// The guest-physical address of the first slot.
pub const BASE: u64 = 0x4000_0000;
const PAGE: u64 = 4096;

/// A guest with one slot, number 0.
pub struct OneSlot {
    /// The guest.
    pub guest: OwnedGuest<Soft, Arc<SoftSpace>>,
    /// Its host.
    pub space: Arc<SoftSpace>,
    /// Where the slot's memory lies in the host.
    pub host: u64,
    /// Pages of the slot.
    pub pages: u64,
}

impl OneSlot {
    /// Makes one on CPU 0, whose host maps `pages` of private memory.
    pub fn new(memory: &'static SoftMemory, pages: u64, options: Options) -> Self {
        Self::at(memory, 0, pages, options)
    }

    /// The same, with a mapping at an address that a huge page may have, as the slot's guest-physical address is.
    pub fn aligned(memory: &'static SoftMemory, pages: u64, options: Options) -> Self {
        Self::at(memory, 0x1000_0000, pages, options)
    }

    /// The same, with the mapping at an address, or, with 0, at any.
    fn at(memory: &'static SoftMemory, at: u64, pages: u64, options: Options) -> Self {
        SoftCpu::attend(memory, 0, || {
            let space = Soft::space(memory, faultless_mm::Policy::default()).unwrap();
            let fixed = if at == 0 { 0 } else { flags::FIXED };
            let how = flags::PRIVATE | flags::ANONYMOUS | fixed;
            let host = space.mmap(at, pages * PAGE, 3, how).unwrap();
            let space = Arc::new(space);
            let guest = OwnedGuest::new(space.clone(), 0, options).unwrap();
            let this = Self {
                guest,
                space,
                host,
                pages,
            };
            this.set(SlotFlags::empty());
            this
        })
    }

    /// Sets the slot's flags.
    pub fn set(&self, flags: SlotFlags) {
        let slot = Slot {
            guest_address: BASE,
            size: self.pages * PAGE,
            host_address: self.host,
            flags,
        };
        self.guest.set_slot(0, &slot).unwrap();
    }

    /// Runs `program` on CPU `cpu`, with a vCPU.
    pub fn run<R>(&self, cpu: u32, program: impl FnOnce(&SoftCpu<'_>, &SoftVcpu<'_>) -> R) -> R {
        let guest: &SoftGuest = &self.guest;
        SoftCpu::run(&self.space, cpu, |cpu| {
            program(cpu, &SoftVcpu::new(cpu, guest))
        })
    }

    /// Returns the pages that are dirty, by their numbers in the slot.
    pub fn dirty(&self, clears: bool) -> Vec<u64> {
        let (mut pages, mut first) = (Vec::new(), 0);
        let mut give = |word: u64| {
            pages.extend(
                (0..64)
                    .filter(|bit| word >> bit & 1 != 0)
                    .map(|bit| first + bit),
            );
            first += 64;
            Ok(())
        };
        self.guest.get_dirty_log(0, clears, &mut give).unwrap();
        pages
    }

    /// Clears pages in the log, from a multiple of 64 on.
    pub fn clear(&self, first: u64, words: &[u64]) {
        let mut words = words.iter().copied();
        let count = (words.len() as u64 * 64).min(self.pages - first);
        let mut wanted = || Ok(words.next().unwrap());
        self.guest
            .clear_dirty_log(0, first, count, &mut wanted)
            .unwrap();
    }

    /// Ends guest and host, on CPU 0.
    pub fn destroy(self) {
        let memory = self.space.memory();
        SoftCpu::attend(memory, 0, || {
            self.guest.destroy();
            let space = Arc::into_inner(self.space).expect("something uses the host");
            space.destroy();
        });
    }
}
