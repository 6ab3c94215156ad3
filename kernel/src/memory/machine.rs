//! The kernel as the memory core's machine: the traits that a port implements for the core.
//!
//! The machine is the zero-sized [`Kernel`], because there is one; its state is in statics, set at boot. The
//! core runs with interrupts off like all kernel code, so `interrupts_off` has nothing to do, and `cpu` is
//! valid until the caller parks.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use faultless_frames::{Descriptor, Flags, FrameCache, FrameSource, Frames, NoMemory, Reserve};
use faultless_mm::{Access, Machine, Memory};
use faultless_paging::{Flush, Frame, PhysicalMemory, SpaceId, Tlb};
use faultless_sync::atomic::AtomicU32;
use faultless_sync::{Cpu, CpuSet, Wait};
#[cfg(target_arch = "x86_64")]
use faultless_tdp::{GuestMachine, Npt};

use super::boot_frames::{BootFrames, TOO_LITTLE};
use crate::arch::{self, paging, percpu, protection_keys, shootdown, time};
use crate::report::refuse;
use crate::sched::thread::Work;
use crate::sched::wait::{self, Interruptible, Woken};
use crate::sched::{self, stop_machine, timer};
use crate::sync::Once;

/// The machine.
#[derive(Clone, Copy)]
pub struct Kernel;

static FRAMES: Once<Frames<Kernel>> = Once::new();
static MEMORY: Once<Memory<Kernel>> = Once::new();
/// Bytes of memory that programs can have.
static SIZE: AtomicU64 = AtomicU64::new(0);

impl PhysicalMemory for Kernel {
    #[inline]
    fn pointer(&self, frame: Frame) -> NonNull<u8> {
        // SAFETY: The direct map is not at address 0.
        unsafe { NonNull::new_unchecked(paging::physical_to_virtual(frame.0 << 12)) }
    }

    #[inline]
    fn zero(&self, frame: Frame) {
        arch::zero_page(self.pointer(frame));
    }
}

impl Wait for Kernel {
    #[inline]
    fn relax(&self, turn: u32) {
        // Never lets another thread run. The holder runs on another CPU, because kernel code is not preempted,
        // and does not park while it holds a claim or a lock.
        shootdown::relax_for(turn);
    }

    #[inline]
    fn poll(&self) {
        shootdown::poll();
    }

    fn cond_resched(&self) {
        if percpu::current().is_some_and(|thread| thread.id() != 0) {
            sched::cond_resched(stop_machine::go_on_inside);
        }
    }

    fn park(&self, word: &AtomicU32, expected: u32) {
        if percpu::current().is_none_or(|thread| thread.id() == 0) {
            return arch::relax();
        }
        let key = core::ptr::from_ref(word) as u64;
        let _inside = stop_machine::go_on_inside();
        let _ = wait::sleep(key, u32::MAX, None, Interruptible::No, || {
            Ok(word.load(Ordering::SeqCst) == expected)
        });
    }

    fn wake(&self, word: &AtomicU32, count: u32) {
        wait::wake_address(core::ptr::from_ref(word) as u64, count, u32::MAX);
    }
}

impl Tlb for Kernel {
    fn flush(&self, cpus: &CpuSet, space: SpaceId, flush: Flush) {
        shootdown::flush(cpus, space, flush);
    }
}

impl Machine for Kernel {
    type Format = paging::Entries;
    type Frames = Frames<Kernel>;

    #[inline]
    fn frames(&self) -> &Self::Frames {
        FRAMES.get()
    }

    const READS_MAY_WRITE: bool = arch::rmw::READS_MAY_WRITE;

    #[inline]
    fn read_will_write(&self) -> bool {
        arch::rmw::will_write()
    }

    fn refuses_data(&self, access: Access) -> bool {
        protection_keys::refuse(protection_keys::EXECUTE_ONLY, access)
    }

    const EXECUTE_ONLY_BY_KEY: bool = protection_keys::MAY_BE_USED;

    #[inline]
    fn cpu(&self) -> Cpu {
        Cpu(percpu::cpu_number())
    }

    fn now(&self) -> u64 {
        time::now()
    }

    fn fatal_signal_pending(&self) -> bool {
        percpu::current().is_some_and(|thread| thread.work().contains(Work::EXIT))
    }

    fn thread(&self) -> u32 {
        percpu::current().map_or(0, |thread| thread.id())
    }

    fn park_for_handler(&self, word: &AtomicU32, expected: u32, by_kernel: bool) -> bool {
        let key = core::ptr::from_ref(word) as u64;
        let interruptible = match by_kernel {
            true => Interruptible::ByEnd,
            false => Interruptible::Yes,
        };
        // Not inside the core: a program may take as long as it likes, and the thread holds nothing of the core.
        let woken = wait::sleep(key, u32::MAX, None, interruptible, || {
            Ok(word.load(Ordering::SeqCst) == expected)
        });
        !matches!(woken, Ok(Some(Woken::Signal)))
    }

    fn has_message(&self, tag: u64) {
        crate::files::userfault::has_message(tag);
    }

    fn init_root(&self, root: Frame) {
        // SAFETY: The core hands over a new table before its first use.
        unsafe { paging::init_user_root(self.pointer(root).as_ptr().cast()) };
    }
}

#[cfg(target_arch = "x86_64")]
impl GuestMachine for Kernel {
    type SecondLevel = Npt;

    fn flush_guest(&self, tag: u64) {
        crate::kvm::flush::flush(tag);
    }
}

/// Gives the core all remaining memory.
pub fn set_up(mut boot: BootFrames, cpus: usize) {
    let top = boot
        .remaining()
        .iter()
        .map(|range| range.1)
        .max()
        .unwrap_or(0)
        >> 12;
    let base = boot
        .remaining()
        .iter()
        .map(|range| range.0)
        .min()
        .unwrap_or(0)
        >> 12;
    let count = (top - base) as usize;
    let at = boot.allocate((count * size_of::<Descriptor>()).div_ceil(4096) as u64);
    let descriptors = paging::physical_to_virtual(at).cast::<Descriptor>();
    // SAFETY: The memory was just allocated for this, and page alignment suffices.
    let descriptors = unsafe {
        (0..count).for_each(|number| descriptors.add(number).write(Descriptor::new()));
        core::slice::from_raw_parts(descriptors, count)
    };
    let caches = leak((0..cpus).map(|_| FrameCache::new()).collect());
    let usable = boot
        .remaining()
        .iter()
        .map(|(start, end)| start >> 12..end >> 12);
    SIZE.store(boot.free_bytes(), Ordering::Relaxed);
    let frames = Frames::new(Kernel, Frame(base), descriptors, caches, usable);
    FRAMES.set(frames.unwrap_or_else(|_| refuse(format_args!("{TOO_LITTLE}"))));
    let parts = leak((0..cpus).map(|_| faultless_mm::PerCpu::new()).collect());
    let participants = leak(
        (0..cpus)
            .map(|_| faultless_sync::reclaim::Participant::new())
            .collect(),
    );
    MEMORY.set(Memory::new(Kernel, parts, participants));
}

fn leak<T>(values: Vec<T>) -> &'static [T] {
    Box::leak(values.into_boxed_slice())
}

/// The core.
#[inline]
pub fn memory() -> &'static Memory<Kernel> {
    MEMORY.get()
}

/// The core, if it is set up.
pub fn try_memory() -> Option<&'static Memory<Kernel>> {
    MEMORY.try_get()
}

/// Registers this CPU with the core.
pub fn cpu_online(cpu: u32) {
    memory().online(Cpu(cpu));
}

/// Zeroes a frame for later; returns whether there was room for it.
pub fn fill_zeroed() -> bool {
    FRAMES.get().fill_zeroed(Kernel.cpu())
}

/// The kernel's own uses of a frame, recorded in its descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    Heap,
    /// Stacks of threads, their records, and the tables that map both.
    Stack,
    Pipe,
    Trace,
    /// Shared with a disk.
    Disk,
    /// Of the hypervisor as a whole: kept for ever.
    Hypervisor,
    /// Of one vCPU.
    Guest,
}

fn mark(frame: Frame, purpose: Purpose) {
    let flags = Flags::of_port(purpose as u32);
    FRAMES.get().descriptor(frame).set_flags(flags);
}

/// Allocates a zeroed frame for the kernel itself; returns its physical address. Interrupts stay off, as in
/// the two functions below, because callers may hold the kernel's own spin locks.
///
/// # Errors
/// If there is none.
pub fn allocate_zeroed(purpose: Purpose) -> Result<u64, NoMemory> {
    let allocate = || {
        let frames = FRAMES.get();
        frames.allocate_zeroed(Kernel.cpu()).or_else(|_| {
            // The kernel may use what is kept from programs.
            let frame = frames.allocate_reserved(Kernel.cpu(), Reserve::Kernel)?;
            Kernel.zero(frame);
            Ok(frame)
        })
    };
    let frame = timer::without_naps(allocate)?;
    mark(frame, purpose);
    Ok(frame.0 << 12)
}

/// Allocates a block of `2^order` frames for the kernel itself; returns its physical address.
pub fn allocate_block(order: u32, purpose: Purpose) -> Option<u64> {
    let frames = FRAMES.try_get()?;
    let block = timer::without_naps(|| frames.allocate_block(order)).ok()?;
    (block.0..block.0 + (1 << order)).for_each(|frame| mark(Frame(frame), purpose));
    Some(block.0 << 12)
}

/// Frees a block of [`allocate_block`].
pub fn free_block(physical: u64, order: u32) {
    (0..1 << order).for_each(|number| free(physical + (number << 12)));
}

/// Frees a frame of [`allocate_zeroed`].
pub fn free(physical: u64) {
    let frame = Frame(physical >> 12);
    FRAMES.get().descriptor(frame).set_flags(Flags::NONE);
    timer::without_naps(|| FRAMES.get().free(Kernel.cpu(), frame));
}

/// All frames of the core and of the kernel.
pub fn frames() -> &'static Frames<Kernel> {
    FRAMES.get()
}

/// Bytes of memory: the total that programs can have, and the free part of it.
pub fn sizes() -> (u64, u64) {
    (
        SIZE.load(Ordering::Relaxed),
        FRAMES.get().census().available() * 4096,
    )
}
