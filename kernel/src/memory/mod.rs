//! The boundary to the memory core: the names by which the rest of the kernel uses memory.

pub mod boot_frames;
pub mod khugepaged;
pub mod machine;
pub mod reclaim;
pub mod stacks;

pub use faultless_mm::{
    AgingMode, Attributes, Huge, Layout, Limits as MemoryLimits, Locked, MapsEntry, Outcome,
    Policy, Reading, Rss, SegvCode, Usage, VmStats, userfault,
};
pub use faultless_paging::{Access, Frame, PAGE_SIZE, PhysicalMemory};
pub use faultless_sync::Cpu;
pub use faultless_trace::{Counter, Counters};
use machine::{Kernel, memory};

/// An address space of this kernel.
pub type Space = faultless_mm::OwnedSpace<Kernel>;

/// Pages that address spaces share: a file's, or shared memory's.
pub type MemoryObject = faultless_mm::MemoryObject<Kernel>;

/// The handler of faults on registered memory.
pub type Userfault = faultless_mm::Userfault<Kernel>;

/// Device memory: frames that are not RAM.
pub type Device = faultless_mm::Device<Kernel>;

/// A part of a device to map.
pub type OpenedDevice<'a> = faultless_mm::OpenedDevice<'a, Kernel>;

/// A part of a file to map.
pub type Opened<'a> = faultless_mm::Opened<'a, Kernel>;

pub use crate::arch::layout::USER_END;

/// Pages that may still need memory, of all processes (Linux: `Committed_AS`).
pub fn committed() -> u64 {
    memory().committed()
}

/// Adds to a counter of this CPU.
pub fn count(counter: Counter, more: u64) {
    memory().this_cpu().counters().add(counter, more);
}

/// This CPU's counters.
pub fn this_cpu_counters() -> &'static faultless_trace::Counters {
    memory().this_cpu().counters()
}

/// Calls `f` for all counters with their totals; 0 before the core is set up.
pub fn for_each_counter(f: &mut dyn FnMut(&'static str, u64)) {
    for &counter in Counter::ALL {
        f(
            counter.name(),
            machine::try_memory().map_or(0, |memory| memory.total(counter)),
        );
    }
}

/// A counter's total.
pub fn total(counter: Counter) -> u64 {
    memory().total(counter)
}

/// A new address space.
///
/// # Errors
/// `ENOMEM`.
pub fn new_space(policy: Policy, layout: Layout) -> Result<Space, crate::errno::Errno> {
    Ok(Space::new(memory(), policy, layout)?)
}

/// Frees all memory of a space that no CPU uses.
pub fn destroy(space: Space) {
    space.destroy();
}
