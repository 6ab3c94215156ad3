//! Helpers shared by the tests that cross crates.

pub mod arch;
pub mod boot;
#[path = "../../crates/sync/tests/model/budget.rs"]
pub mod budget;
pub mod counting;
pub mod cpus;
pub mod device;
pub mod file_injection;
pub mod frames_device;
pub mod guest;
pub mod heap;
pub mod host;
pub mod inject;
pub mod linux;
pub mod model;
pub mod operations;
pub mod programs;
pub mod random;
pub mod script;
pub mod soft;
pub mod surroundings;
pub mod userfault;

use faultless_mm::{FrameSource, Machine, Policy};
use faultless_soft::{Options, Soft, SoftCpu, SoftMemory, SoftSpace};

pub use budget::{Budget, full};

/// `least` rounds, or more for as long as the scenario's share of the budget lasts.
pub fn budget(least: u64) -> Budget {
    Budget::new(least, "rounds", Some(budget::seed()))
}

/// Pages of each machine's device.
pub const DEVICE_PAGES: u64 = 1024;

/// A machine with all checks enabled.
pub fn machine(cpus: usize, megabytes: u64) -> &'static SoftMemory {
    let options = Options {
        cpus,
        memory: megabytes << 20,
        device: DEVICE_PAGES * 4096,
        check: true,
        ..Options::default()
    };
    Soft::start(options).unwrap_or_else(|e| panic!("no soft machine: {e}"))
}

/// A machine with one address space.
pub fn space(cpus: usize, megabytes: u64, policy: Policy) -> (&'static SoftMemory, SoftSpace) {
    let memory = machine(cpus, megabytes);
    let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy))
        .unwrap_or_else(|e| panic!("no address space: {e}"));
    (memory, space)
}

/// The number of frames that are free or cached, after all deferred frees. Called while
/// no CPU runs.
pub fn available(memory: &'static SoftMemory) -> u64 {
    SoftCpu::attend(memory, 0, || {
        for _ in 0..4 {
            memory.expedite();
        }
        memory.drain();
    });
    assert_eq!(memory.deferred(), 0, "deferred without readers");
    let allocator = memory.machine().allocator();
    // The huge zero page stays once it was made.
    let huge_zero = allocator
        .huge_zero_frame()
        .map_or(0, |_| faultless_paging::ENTRIES as u64);
    allocator.census().available() + huge_zero
}

/// Runs a test under each policy, on CPU 0 of a machine of its own with one address space, and asserts
/// that no frame leaked.
pub fn each_policy(
    cpus: usize,
    megabytes: u64,
    test: impl Fn(&SoftCpu<'_>, &SoftSpace, &'static SoftMemory),
) {
    for &policy in Policy::ALL {
        let memory = machine(cpus, megabytes);
        let before = available(memory);
        let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy))
            .unwrap_or_else(|e| panic!("no address space: {e}"));
        SoftCpu::run(&space, 0, |cpu| test(cpu, &space, memory));
        verify_and_destroy(space, before);
        assert_eq!(memory.committed(), 0, "{policy:?}");
    }
}

/// Runs `program(cpu)` on every CPU of the machine at once.
pub fn on_every_cpu(space: &SoftSpace, program: impl Fn(&SoftCpu<'_>) + Sync) {
    let cpus = space.memory().machine().options().cpus;
    std::thread::scope(|scope| {
        for cpu in 0..cpus as u32 {
            let program = &program;
            scope.spawn(move || SoftCpu::run(space, cpu, program));
        }
    });
}

/// Checks the invariants, and that the destruction of `space` frees every frame
/// allocated since `before` was counted.
pub fn verify_and_destroy(space: SoftSpace, before: u64) {
    let memory = space.memory();
    SoftCpu::attend(memory, 0, || {
        space
            .verify()
            .unwrap_or_else(|violation| panic!("{violation}"));
        space.destroy();
    });
    assert_eq!(available(memory), before, "frames were lost or found");
    let _ = memory.machine().frames();
}
