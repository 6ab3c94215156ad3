//! An operation at each of whose allocations memory is short once.

use std::fmt::Debug;

use faultless_mm::Policy;
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace};

use crate::{available, machine};

/// Every line of the maps, for comparison.
fn maps(space: &SoftSpace) -> Vec<(u64, u64, bool)> {
    let mut lines = Vec::new();
    space.maps(&mut |line| lines.push((line.start, line.end, line.protection.write)));
    lines
}

/// How an operation may end when an allocation failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// Nothing has happened.
    Whole,
    /// What came before the failure stays done.
    Part,
}

/// How long memory is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lasting {
    /// For one allocation.
    Once,
    /// Until the operation has ended.
    On,
}

impl Lasting {
    fn begin(self, memory: &'static SoftMemory, allocation: u32) {
        match self {
            Lasting::Once => memory.machine().fail_in(Some(allocation)),
            Lasting::On => memory.machine().fail_from(Some(allocation)),
        }
    }

    /// Whether an allocation is known to have failed.
    fn end(self, memory: &'static SoftMemory) -> bool {
        let failed = self == Lasting::On || memory.machine().has_failed();
        memory.machine().fail_in(None);
        memory.machine().fail_from(None);
        failed
    }
}

/// Injects a failure at the first, second, … allocation of `act`, in a fresh
/// address space each time that `prepare` has made ready, until `act` makes no
/// more allocations; then again, with all later allocations failing too.
/// `check` says what is true after success.
pub fn inject<T: Debug, E: Debug>(
    name: &str,
    failing: Failing,
    prepare: impl Fn(&SoftCpu<'_>),
    act: impl Fn(&SoftCpu<'_>) -> Result<T, E>,
    check: impl Fn(&SoftCpu<'_>),
) {
    for &policy in Policy::ALL {
        let memory = machine(2, 64);
        let trial = |lasting: Lasting, allocation: u32| {
            let at = format!("{name} under {policy}, allocation {allocation} {lasting:?}");
            let before = available(memory);
            let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap();
            let ended = SoftCpu::run(&space, 0, |cpu| {
                prepare(cpu);
                empty_caches(memory, cpu);
                let old = maps(cpu.space());
                lasting.begin(memory, allocation);
                let result = act(cpu);
                let failed = lasting.end(memory);
                cpu.space().verify().unwrap_or_else(|v| panic!("{at}: {v}"));
                if let Err(e) = &result {
                    assert!(failed, "{at}: {e:?} without a failure");
                    if failing == Failing::Whole {
                        assert_eq!(maps(cpu.space()), old, "{at}: half done");
                    }
                    let again = act(cpu);
                    assert!(again.is_ok(), "{at}: {again:?} when repeated");
                }
                check(cpu);
                let sound = cpu.space().verify();
                sound.unwrap_or_else(|v| panic!("{at}, afterwards: {v}"));
                (failed, result.is_err())
            });
            SoftCpu::attend(memory, 0, || space.destroy());
            assert_eq!(available(memory), before, "{at}: frames");
            ended
        };
        let (mut allocations, mut errors) = (0, 0);
        loop {
            assert!(allocations < 10_000, "{name}: allocates without end");
            let (failed, is_error) = trial(Lasting::Once, allocations);
            errors += u32::from(is_error);
            if !failed {
                break;
            }
            allocations += 1;
        }
        let lasting = (0..allocations)
            .filter(|&at| trial(Lasting::On, at).1)
            .count();
        eprintln!("{name} under {policy}: {allocations} allocations, {errors}+{lasting} errors");
    }
}

/// Gives cached nodes, splits and mappings back, so that all have to be made.
fn empty_caches(memory: &'static SoftMemory, _cpu: &SoftCpu<'_>) {
    memory.expedite();
    memory.drain();
}
