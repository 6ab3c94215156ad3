//! The boot, once the architecture has found memory and CPUs.

use arrayvec::ArrayVec;

use crate::arch::percpu::MAX_CPUS;
use crate::arch::{context, paging, percpu, smp};
use crate::exec::run_file::RunFile;
use crate::memory::boot_frames::{BootFrames, TOO_LITTLE};
use crate::memory::stacks;
use crate::report::refuse;
use crate::{exec, files, heap, memory, sched, swap, trace, verify};

/// What the architecture has found.
pub struct Machine {
    /// All memory that is left.
    pub frames: BootFrames,
    /// The hardware's numbers of the other CPUs.
    pub others: ArrayVec<u64, MAX_CPUS>,
    /// The physical start and the length of the initramfs.
    pub initramfs: Option<(u64, u64)>,
    /// The physical address of a timer that programs may map.
    pub timer: Option<u64>,
}

/// Gives the heap its first memory.
pub fn claim_heap(frames: &mut BootFrames) {
    let size = (frames.free_bytes() / 32).clamp(1 << 20, 4 << 20) & !4095;
    let start = frames.allocate(size / 4096);
    // SAFETY: Just allocated for this.
    unsafe { heap::claim(paging::physical_to_virtual(start), size as usize) };
}

/// Goes on with the boot; on the boot stack, and on the kernel's own tables.
pub fn begin(machine: Machine) -> ! {
    memory::machine::set_up(machine.frames, 1 + machine.others.len());
    if let Some(address) = machine.timer {
        files::hpet::begin(address);
    }
    if let Some((start, size)) = machine.initramfs {
        // SAFETY: The module's memory was never allocated, and is not written.
        files::initramfs::set(unsafe { paging::physical_slice(start, size as usize) });
    }
    sched::idle::prepare(0);
    start_others(&machine.others);
    // The rest runs on a stack with a guard page, as every thread does.
    let idle = sched::idle::of(0);
    // SAFETY: The idle thread's stack is new, and the boot stack is not needed any more.
    unsafe { context::leave_for(stacks::top(idle), run) }
}

fn start_others(others: &[u64]) {
    for (number, &hardware_id) in (1..).zip(others) {
        sched::idle::prepare(number);
        percpu::set_count(number + 1);
        if !smp::start(number, hardware_id, stacks::top(sched::idle::of(number))) {
            percpu::set_count(number);
            refuse(format_args!("CPU {number} did not start"));
        }
    }
}

extern "C" fn run() -> ! {
    let run = match RunFile::read() {
        Ok(run) => run,
        Err(error) => refuse(format_args!("{error}")),
    };
    if let Some(cpus) = run.cpus
        && cpus != percpu::count()
    {
        refuse(format_args!(
            "{} CPUs run, {cpus} were asked for",
            percpu::count()
        ));
    }
    // Its node is made with the others.
    memory::khugepaged::set_mode(run.huge)
        .unwrap_or_else(|_| refuse(format_args!("there is too little memory for huge pages")));
    swap::begin(run.swap).unwrap_or_else(|error| refuse(format_args!("{error}")));
    if files::begin().is_err() {
        refuse(format_args!("{TOO_LITTLE}"));
    }
    trace::begin(&run.record).unwrap_or_else(|error| refuse(format_args!("{error}")));
    heap::failing::begin(run.heap_fail);
    verify::begin(run.verify).unwrap_or_else(|error| refuse(format_args!("{error}")));
    exec::first::begin(run);
    sched::idle::begin()
}
