//! A process's address space, and the CPUs that run in it.
//!
//! A space is reference-counted: processes share one between `vfork` and `exec`, and an access to another
//! process's memory holds it meanwhile. The last reference frees the memory, after every CPU has left. A CPU
//! points to the space that it runs in (`PerCpu::space`), and does so last when it takes one. It is in that space's
//! set, and where translations outlive a switch ([`paging::KEEPS_TRANSLATIONS`]) in those of all spaces that it ran in
//! before. It leaves when it runs a thread of another space, or none.

use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use faultless_mm::AddressSpace;
use faultless_paging::Flush;

use crate::arch::percpu::{self, PerCpu};
use crate::arch::{self, paging, shootdown};
use crate::errno::Errno;
use crate::files::usage::Running;
use crate::files::userfault::report_forks;
use crate::memory::machine::Kernel;
use crate::memory::{self, Cpu, Layout, MemoryLimits, Policy, Space, machine};
use crate::process::number::Number;
use crate::shared::Shared;
use crate::sync::SpinLock;
use crate::verify;

/// The least that is kept free for the stack when addresses are chosen.
const LEAST_ROOM: u64 = 128 << 20;

/// An address space that programs run in.
pub struct UserSpace {
    space: ManuallyDrop<Space>,
    number: Number,
    /// Keeps the program's file from being written.
    running: SpinLock<Option<Running>>,
    /// The commands that `membarrier` was registered for.
    pub barriers: AtomicU32,
    /// The address of the code that returns from a signal handler; 0 if programs have their own.
    trampoline: AtomicU64,
}

impl UserSpace {
    /// Makes an empty one, with these limits.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(policy: Policy, limits: &MemoryLimits) -> Result<Shared<Self>, Errno> {
        let usual = arch::layout::USUAL;
        // As on Linux, address space for the stack stays free: at least 128 MiB, and at most five sixths.
        let room = limits.stack.clamp(LEAST_ROOM, usual.end / 6 * 5) & !4095;
        let layout = Layout {
            mmap_base: usual.mmap_base - (room - LEAST_ROOM),
            commit_pages: machine::sizes().0 / 4096,
            ..usual
        };
        let space = memory::new_space(policy, layout)?;
        space.set_limits(limits);
        Self::share(space, None, 0)
    }

    /// Makes a copy-on-write copy.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn fork(&self) -> Result<Shared<Self>, Errno> {
        let running = self.running.lock().as_ref().map(Running::again);
        let barriers = self.barriers.load(Ordering::Relaxed);
        let (space, forked) = self.space.fork_beside_handlers()?;
        let running = match running.transpose() {
            Ok(running) => running,
            Err(error) => {
                memory::destroy(space);
                return Err(error);
            }
        };
        let child = Self::share(space, running, barriers)?;
        child.set_trampoline(self.trampoline());
        report_forks(forked, &child);
        Ok(child)
    }

    /// Sets the file of the program in it.
    pub fn set_running(&self, running: Running) {
        let old = self.running.lock().replace(running);
        drop(old);
    }

    fn share(space: Space, running: Option<Running>, barriers: u32) -> Result<Shared<Self>, Errno> {
        let number = match Number::take() {
            Ok(number) => number,
            Err(error) => {
                memory::destroy(space);
                return Err(error);
            }
        };
        // Without memory for this, the space is dropped and freed.
        let shared = Shared::new(Self {
            space: ManuallyDrop::new(space),
            number,
            running: SpinLock::new(running),
            barriers: AtomicU32::new(barriers),
            trampoline: AtomicU64::new(0),
        })?;
        verify::spaces::add(&shared)?;
        Ok(shared)
    }

    /// The address of the code that returns from a signal handler, if the program has none.
    pub fn trampoline(&self) -> u64 {
        self.trampoline.load(Ordering::Relaxed)
    }

    /// Sets that address.
    pub fn set_trampoline(&self, address: u64) {
        self.trampoline.store(address, Ordering::Relaxed);
    }

    /// Its number, which is unique as long as it lives.
    pub fn number(&self) -> usize {
        self.number.index()
    }

    /// A key for sleeping on a word of this space.
    pub fn key(&self, address: u64) -> u64 {
        self.number.key(address)
    }
}

impl Deref for UserSpace {
    type Target = Space;

    fn deref(&self) -> &Space {
        &self.space
    }
}

impl AsRef<AddressSpace<Kernel>> for UserSpace {
    fn as_ref(&self) -> &AddressSpace<Kernel> {
        &self.space
    }
}

impl Drop for UserSpace {
    fn drop(&mut self) {
        // Its last CPUs are on their way to another thread; this CPU has left. They look at this very object
        // until they point elsewhere.
        let cpus = self.space.cpus();
        for cpu in cpus.iter() {
            while runs(cpu.0, self) {
                arch::relax();
            }
        }
        if paging::KEEPS_TRANSLATIONS {
            // No access uses what TLBs still hold. But a walk that began before its CPU left may still be under way, and
            // would mark entries of tables that are something else by then.
            let everything = Flush {
                start: 0,
                end: u64::MAX,
                tables: true,
            };
            shootdown::flush(cpus, self.space.id(), everything);
            cpus.iter().for_each(|cpu| cpus.remove(cpu));
        }
        verify::spaces::remove(self);
        // SAFETY: Taken once, by the last reference.
        memory::destroy(unsafe { ManuallyDrop::take(&mut self.space) });
    }
}

/// The address space that this CPU runs in: that of the current thread's process.
///
/// # Panics
/// If no user thread runs.
#[inline]
pub fn current() -> &'static UserSpace {
    // SAFETY: A space is not freed while a CPU points to it. This CPU does so until the thread changes the
    // space or sleeps, and then the thread's process keeps it.
    unsafe { percpu::this().space.load(Ordering::Relaxed).as_ref() }.expect("a user thread runs")
}

/// Whether a CPU runs in a space. Acquire: if not, what it did there is complete.
pub fn runs(cpu: u32, space: &UserSpace) -> bool {
    ptr::eq(percpu::of(cpu).space.load(Ordering::Acquire), space)
}

/// Makes this CPU run in a space.
#[inline]
pub fn enter(number: u32, cpu: &PerCpu, space: *const UserSpace) {
    let old = cpu.space.load(Ordering::Relaxed);
    if ptr::eq(old, space) {
        return;
    }
    // SAFETY: The thread that is about to run keeps its process, which keeps the space.
    let new = unsafe { space.as_ref() }.expect("a user thread has a space");
    // No other CPU adds or removes this one.
    let joins = !new.cpus().contains(Cpu(number));
    if joins {
        new.cpus().insert(Cpu(number));
    }
    paging::load_space(new.id(), joins);
    point_to(number, cpu, old, space);
}

/// Makes this CPU run in no space any more.
pub fn leave(number: u32, cpu: &PerCpu) {
    let old = cpu.space.load(Ordering::Relaxed);
    if !old.is_null() {
        paging::load_no_space();
        point_to(number, cpu, old, ptr::null());
    }
}

/// This CPU has other tables: it leaves the old space. Release: the space may end once this is seen.
fn point_to(number: u32, cpu: &PerCpu, old: *const UserSpace, new: *const UserSpace) {
    if !paging::KEEPS_TRANSLATIONS
        // SAFETY: It is kept as long as this CPU points to it.
        && let Some(old) = unsafe { old.as_ref() }
    {
        old.cpus().remove(Cpu(number));
    }
    cpu.space.store(new.cast_mut(), Ordering::Release);
}
