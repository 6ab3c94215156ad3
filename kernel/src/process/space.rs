//! A process's address space, and the CPUs that run in it.
//!
//! A space is counted: processes share one between `vfork` and `exec`, and whoever looks at another
//! process's memory holds it meanwhile. The last reference gives the memory back, after every CPU
//! has left. A CPU is in the set of the space it points to (`PerCpu::space`) and in no other; it
//! leaves when it runs another space's thread, or none.

use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::arch::percpu::{self, PerCpu};
use crate::arch::{self, paging};
use crate::errno::Errno;
use crate::files::usage::Running;
use crate::memory::{self, Cpu, Layout, MemoryLimits, Policy, Space, machine};
use crate::process::number::Number;
use crate::shared::Shared;
use crate::sync::SpinLock;
use crate::verify;

/// What is kept free for the stack when addresses are chosen.
const LEAST_ROOM: u64 = 128 << 20;

/// An address space that programs run in.
pub struct UserSpace {
    space: ManuallyDrop<Space>,
    is_given_back: bool,
    number: Number,
    /// The program's file, which nobody may write meanwhile.
    running: SpinLock<Option<Running>>,
    /// The commands by which `membarrier` was registered for.
    pub barriers: AtomicU32,
    /// The most pages that it had in memory when anybody looked.
    most_resident: AtomicU64,
}

impl UserSpace {
    /// An empty one, with these limits.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(policy: Policy, limits: &MemoryLimits) -> Result<Shared<Self>, Errno> {
        let usual = Layout::LINUX_X86_64;
        // As on Linux, room for the stack stays free, at least 128 MiB and at most five sixths.
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

    /// A copy, page by page as either side writes.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn fork(&self) -> Result<Shared<Self>, Errno> {
        let running = self.running.lock().as_ref().map(Running::again);
        let barriers = self.barriers.load(Ordering::Relaxed);
        Self::share(self.space.fork()?, running.transpose()?, barriers)
    }

    /// The program in it comes from this file.
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
        // If there is no room, it is dropped and given back.
        let shared = Shared::new(Self {
            space: ManuallyDrop::new(space),
            is_given_back: false,
            number,
            running: SpinLock::new(running),
            barriers: AtomicU32::new(barriers),
            most_resident: AtomicU64::new(0),
        })?;
        verify::spaces::add(&shared)?;
        Ok(shared)
    }

    /// Its number, which no other space has meanwhile.
    pub fn number(&self) -> usize {
        self.number.index()
    }

    /// Pages in memory now, and the most that there were when anybody looked: nobody counts them
    /// as they come.
    pub fn resident_and_most(&self) -> (u64, u64) {
        let now = self.space.resident();
        let before = self.most_resident.fetch_max(now, Ordering::Relaxed);
        (now, before.max(now))
    }

    /// The most pages that there were are those that are there now.
    pub fn forget_most_resident(&self) {
        self.most_resident
            .store(self.space.resident(), Ordering::Relaxed);
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

impl UserSpace {
    /// Lets go of it, and gives its memory back if this is the last reference; how many pages that
    /// were.
    pub fn end(mut space: Shared<Self>) -> u64 {
        // SAFETY: Nobody makes weak references to spaces.
        unsafe { Shared::get_mut(&mut space) }.map_or(0, Self::give_back)
    }

    fn give_back(&mut self) -> u64 {
        // Its last CPUs are on their way to another thread; this one has left. They look at this
        // very place until then.
        while self.space.cpus().iter().next().is_some() {
            arch::relax();
        }
        verify::spaces::remove(self);
        self.is_given_back = true;
        // SAFETY: Taken once: nobody looks at a space that nobody refers to, and the drop that
        // follows sees the mark.
        memory::destroy(unsafe { ManuallyDrop::take(&mut self.space) })
    }
}

impl Drop for UserSpace {
    fn drop(&mut self) {
        if !self.is_given_back {
            self.give_back();
        }
    }
}

/// The address space that this CPU runs in: that of the current thread's process.
///
/// # Panics
/// Where no user thread runs.
#[inline]
pub fn current() -> &'static UserSpace {
    // SAFETY: A space is not given back while a CPU points to it, and this one does so until the
    // thread changes it or sleeps, when the thread's process keeps it.
    unsafe { percpu::this().space.load(Ordering::Relaxed).as_ref() }.expect("a user thread runs")
}

/// This CPU is about to run in a space.
#[inline]
pub fn enter(number: u32, cpu: &PerCpu, space: *const UserSpace) {
    if ptr::eq(cpu.space.load(Ordering::Relaxed), space) {
        return;
    }
    // SAFETY: The thread that is about to run keeps its process, which keeps the space.
    let new = unsafe { space.as_ref() }.expect("a user thread has a space");
    let root = memory::root_of(new);
    new.cpus().insert(Cpu(number));
    let old = cpu.space.swap(space.cast_mut(), Ordering::Relaxed);
    paging::load_root(root);
    // SAFETY: It is kept as long as this CPU is in its set.
    if let Some(old) = unsafe { old.as_ref() } {
        old.cpus().remove(Cpu(number));
    }
}

/// This CPU does not run in any space any more.
pub fn leave(number: u32, cpu: &PerCpu) {
    let old = cpu.space.swap(ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: It is kept as long as this CPU is in its set.
    if let Some(old) = unsafe { old.as_ref() } {
        paging::load_root(paging::kernel_root());
        old.cpus().remove(Cpu(number));
    }
}
