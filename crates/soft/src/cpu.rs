//! A running CPU, as a program sees it: loads, stores, and traps.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use faultless_mm::{Outcome, SegvCode};
use faultless_paging::{
    Access, ENTRIES, EntryFormat, Frame, PAGE_SIZE, Page, PhysicalMemory, Walk, walk, walk_marking,
};
use faultless_sync::Cpu;

use crate::machine::{Atomics, CpuState, Entries, Soft, SoftMemory, SoftSpace};
use crate::tlb::Translation;

/// The reason that an access failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// SIGSEGV.
    Segv {
        /// `si_code`.
        code: SegvCode,
        /// `si_addr`.
        address: u64,
    },
    /// SIGBUS (`BUS_ADRERR`).
    Bus {
        /// `si_addr`.
        address: u64,
    },
    /// SIGBUS (`BUS_MCEERR_AR`).
    Poisoned {
        /// `si_addr`.
        address: u64,
    },
    /// No memory for the page: Linux would kill the program.
    OutOfMemory,
}

/// A soft CPU that runs an address space, on the calling thread.
pub struct SoftCpu<'a> {
    pub(crate) memory: &'static SoftMemory,
    pub(crate) space: &'a SoftSpace,
    pub(crate) cpu: Cpu,
    /// Only this thread uses the CPU's TLB.
    _not_send: PhantomData<*const ()>,
}

impl<'a> SoftCpu<'a> {
    /// Runs `program` on CPU `cpu` in `space`, on the calling thread. A CPU runs
    /// one program at a time.
    pub fn run<R>(space: &'a SoftSpace, cpu: u32, program: impl FnOnce(&SoftCpu<'a>) -> R) -> R {
        let this = SoftCpu {
            memory: space.memory(),
            space,
            cpu: Cpu(cpu),
            _not_send: PhantomData,
        };
        this.join();
        let result = program(&this);
        this.leave();
        result
    }

    /// Lets the calling thread call into the core as CPU `cpu`, without a space.
    pub fn attend<R>(memory: &'static SoftMemory, cpu: u32, work: impl FnOnce() -> R) -> R {
        memory.machine().take(Cpu(cpu));
        memory.online(Cpu(cpu));
        let result = work();
        memory.offline(Cpu(cpu));
        memory.machine().leave(Cpu(cpu));
        result
    }

    /// Returns the address space.
    pub fn space(&self) -> &'a SoftSpace {
        self.space
    }

    /// Returns the number of the CPU.
    pub fn number(&self) -> u32 {
        self.cpu.0
    }

    fn machine(&self) -> &'static Soft {
        self.memory.machine()
    }

    pub(crate) fn state(&self) -> &'static CpuState {
        self.machine().state(self.cpu)
    }

    /// Loads a word. The address is a multiple of 8.
    ///
    /// # Errors
    /// The trap that the load takes.
    #[inline]
    pub fn load(&self, address: u64) -> Result<u64, Trap> {
        self.word(address, Access::Read, |word| word.load(Ordering::Relaxed))
    }

    /// Stores a word. The address is a multiple of 8.
    ///
    /// # Errors
    /// The trap that the store takes.
    #[inline]
    pub fn store(&self, address: u64, value: u64) -> Result<(), Trap> {
        self.word(address, Access::Write, |word| {
            word.store(value, Ordering::Relaxed)
        })
    }

    /// Adds to a word atomically, and returns the value before. It faults as the machine's [`Atomics`] say.
    ///
    /// # Errors
    /// The trap that it takes.
    pub fn fetch_add(&self, address: u64, value: u64) -> Result<u64, Trap> {
        if self.machine().options().atomics != Atomics::Write {
            let in_atomic = &self.state().in_atomic;
            in_atomic.set(1);
            let read = self.word(address, Access::Read, |_| {});
            in_atomic.set(0);
            read?;
        }
        self.word(address, Access::Write, |word| {
            word.fetch_add(value, Ordering::SeqCst)
        })
    }

    #[inline]
    fn word<R>(
        &self,
        address: u64,
        access: Access,
        act: impl FnOnce(&AtomicU64) -> R,
    ) -> Result<R, Trap> {
        assert!(address.is_multiple_of(8), "unaligned: {address:#x}");
        self.access(address, access, |host| {
            // SAFETY: inside a frame of the arena, aligned; programs access it atomically.
            act(unsafe { &*host.cast::<AtomicU64>() })
        })
    }

    /// Loads 4 bytes. The address is a multiple of 4.
    ///
    /// # Errors
    /// The trap that the load takes.
    pub fn load_u32(&self, address: u64) -> Result<u32, Trap> {
        assert!(address.is_multiple_of(4), "unaligned: {address:#x}");
        self.access(address, Access::Read, |host| {
            // SAFETY: as in `word`.
            unsafe { &*host.cast::<AtomicU32>() }.load(Ordering::Relaxed)
        })
    }

    /// Loads a byte.
    ///
    /// # Errors
    /// The trap that the load takes.
    pub fn load_u8(&self, address: u64) -> Result<u8, Trap> {
        self.access(address, Access::Read, |host| {
            // SAFETY: as in `word`.
            unsafe { &*host.cast::<AtomicU8>() }.load(Ordering::Relaxed)
        })
    }

    /// Stores a byte.
    ///
    /// # Errors
    /// The trap that the store takes.
    pub fn store_u8(&self, address: u64, value: u8) -> Result<(), Trap> {
        self.access(address, Access::Write, |host| {
            // SAFETY: as in `word`.
            unsafe { &*host.cast::<AtomicU8>() }.store(value, Ordering::Relaxed);
        })
    }

    /// Fetches an instruction, as far as the memory system is concerned.
    ///
    /// # Errors
    /// The trap that the fetch takes.
    pub fn execute(&self, address: u64) -> Result<(), Trap> {
        self.access(address, Access::Execute, |_| {})
    }

    /// Performs one access: translates, with faults until that works, then calls `act` on the host's memory.
    /// The translation and `act` share one access section.
    #[inline]
    pub(crate) fn access<R>(
        &self,
        address: u64,
        access: Access,
        act: impl FnOnce(*mut u8) -> R,
    ) -> Result<R, Trap> {
        let state = self.machine().state(self.cpu);
        let page = Page::containing(address);
        loop {
            if state.target.begin(self.machine().is_asymmetric()) {
                self.machine().answer(self.cpu);
            }
            if let Some(translation) = self.translate(page, access) {
                let offset = (address % PAGE_SIZE) as usize;
                // SAFETY: the offset is inside the frame.
                let result = act(unsafe { translation.host.as_ptr().add(offset) });
                state.target.end();
                return Ok(result);
            }
            state.target.end();
            match self.space.fault(address, access) {
                Outcome::Resolved | Outcome::Interrupted => {}
                Outcome::Poisoned => return Err(Trap::Poisoned { address }),
                Outcome::Segv(code) => return Err(Trap::Segv { code, address }),
                Outcome::Bus => return Err(Trap::Bus { address }),
                Outcome::OutOfMemory => return Err(Trap::OutOfMemory),
            }
        }
    }

    #[inline]
    fn translate(&self, page: Page, access: Access) -> Option<Translation> {
        let tlb = &self.machine().state(self.cpu).tlb.0;
        match tlb.find(page.0) {
            Some(hit) if hit.permits(access) => {
                if self.machine().options().check {
                    self.check_hit(&hit);
                }
                Some(hit)
            }
            _ => self.walk(page, access),
        }
    }

    /// Does what hardware does on a miss: walks the tables, sets accessed and dirty bits, and caches the
    /// translation. The accessed bit of an entry that only this CPU has loaded stays clear
    /// ([`faultless_paging::holders`]).
    fn walk(&self, page: Page, access: Access) -> Option<Translation> {
        let format = Entries::FORMAT;
        if page.address() >= self.space.layout().end {
            return None;
        }
        loop {
            // SAFETY: a table is freed only after a flush, which waits for this access section: the walk
            // marks the entry that leads to the table.
            let walked = unsafe {
                let root = self.space.id().root;
                walk_marking::<Entries, Soft>(self.machine(), root, page, self.cpu)
            };
            let (entry, value, link, number) = match walked {
                Walk::Leaf { entry, value, link } => (entry, value, link, 0),
                Walk::Huge {
                    entry, value, link, ..
                } => (entry, value, link, page.0 % ENTRIES as u64),
                Walk::Missing { .. } | Walk::Busy => return None,
            };
            let is_frozen = link.is_frozen();
            let execute_only =
                format.is_execute_only(value) && self.machine().options().execute_only;
            let is_refused =
                (is_frozen && access == Access::Write) || (execute_only && access == Access::Read);
            if !format.permits(value, access) || is_refused {
                return None;
            }
            // The owner of an entry leaves its accessed bit clear.
            let used = format.loaded(value, self.cpu);
            let used = match access {
                Access::Write if !format.is_dirty(value) => format.stored_to(used),
                _ => used,
            };
            if used != value && format.faults_for_marks && !self.machine().options().marks {
                return None;
            }
            if used != value && entry.replace(value, used).is_err() {
                continue;
            }
            let translation = Translation {
                page: page.0,
                host: self
                    .machine()
                    .pointer(Frame(format.frame(value).0 + number)),
                write: !is_frozen && format.is_writable(value) && format.is_dirty(used),
                execute: format.is_executable(value),
                execute_only,
            };
            self.machine().state(self.cpu).tlb.0.insert(translation);
            return Some(translation);
        }
    }

    /// Checks invariant 5: the tables contain every translation that the TLB holds, unless an operation has
    /// changed the entry and not flushed it yet. The entry also says that this CPU may hold it.
    #[cold]
    fn check_hit(&self, hit: &Translation) {
        let format = Entries::FORMAT;
        // SAFETY: as in `walk`: the tables are those that the hit came from, and marked since.
        let walked =
            unsafe { walk::<Entries, Soft>(self.machine(), self.space.id().root, Page(hit.page)) };
        let (value, link, number) = match walked {
            Walk::Leaf { value, link, .. } => (value, link, 0),
            Walk::Huge { value, link, .. } => (value, link, hit.page % ENTRIES as u64),
            Walk::Missing { .. } | Walk::Busy => return,
        };
        if format.is_claimed(value) || self.space.is_in_motion(Page(hit.page)) {
            return;
        }
        assert!(
            format.is_present(value)
                && format.may_be_held_by(value, self.cpu)
                && self
                    .machine()
                    .pointer(Frame(format.frame(value).0 + number))
                    == hit.host
                && (!hit.write || (format.is_writable(value) && !link.is_frozen())),
            "CPU {} uses a translation of page {:#x} that its entry {value:#x} does not give",
            self.cpu.0,
            hit.page,
        );
    }
}
