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

/// Injects a failure at the first, second, … allocation of `act`, in a fresh
/// address space each time that `prepare` has made ready, until `act` makes no
/// more allocations. `check` says what is true after success.
pub fn inject<T: Debug, E: Debug>(
    name: &str,
    failing: Failing,
    prepare: impl Fn(&SoftCpu<'_>),
    act: impl Fn(&SoftCpu<'_>) -> Result<T, E>,
    check: impl Fn(&SoftCpu<'_>),
) {
    for &policy in Policy::ALL {
        let memory = machine(2, 64);
        let mut failures = 0;
        for allocation in 0.. {
            assert!(allocation < 10_000, "{name}: allocates without end");
            let before = available(memory);
            let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap();
            let failed = SoftCpu::run(&space, 0, |cpu| {
                prepare(cpu);
                empty_caches(memory, cpu);
                let old = maps(cpu.space());
                memory.machine().fail_in(Some(allocation));
                let result = act(cpu);
                let failed = memory.machine().has_failed();
                memory.machine().fail_in(None);
                let at = format!("{name} under {policy}, allocation {allocation}");
                cpu.space().verify().unwrap_or_else(|v| panic!("{at}: {v}"));
                match &result {
                    Ok(_) => check(cpu),
                    Err(e) => {
                        assert!(failed, "{at}: {e:?} without a failure");
                        failures += 1;
                        if failing == Failing::Whole {
                            assert_eq!(maps(cpu.space()), old, "{at}: half done");
                        }
                        let again = act(cpu);
                        assert!(again.is_ok(), "{at}: {again:?} when repeated");
                        check(cpu);
                        cpu.space()
                            .verify()
                            .unwrap_or_else(|v| panic!("{at}, repeated: {v}"));
                    }
                }
                failed
            });
            SoftCpu::attend(memory, 0, || space.destroy());
            assert_eq!(
                available(memory),
                before,
                "{name} under {policy}, {allocation}"
            );
            if !failed {
                break;
            }
        }
        eprintln!("{name} under {policy}: {failures} failures");
    }
}

/// Gives cached nodes and mappings back, so that all have to be made.
fn empty_caches(memory: &'static SoftMemory, _cpu: &SoftCpu<'_>) {
    memory.expedite();
    memory.drain();
}
