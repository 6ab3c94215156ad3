//! Operations with one failing allocation, at each allocation in turn.

use std::fmt::Debug;

use faultless_mm::{MapsEntry, Policy, VmStats};
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace};

use crate::{available, machine};

/// Every line of the maps, and the totals, for comparison.
fn maps(space: &SoftSpace) -> (Vec<MapsEntry>, VmStats) {
    let mut lines = Vec::new();
    space.maps(&mut |line| lines.push(line));
    (lines, space.totals())
}

/// What a failed operation may leave behind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// Nothing: the mappings are as before.
    Whole,
    /// The part that was done before the failure.
    Part,
}

/// How long allocations fail.
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

/// The state of a trial beside its address space.
pub trait Stage {
    /// Address spaces that exist from the beginning to the end.
    fn children(&self) -> &[SoftSpace] {
        &[]
    }

    /// Destroys them.
    fn end(self);
}

impl Stage for () {
    fn end(self) {}
}

impl Stage for Vec<SoftSpace> {
    fn children(&self) -> &[SoftSpace] {
        self
    }

    fn end(self) {
        for space in self {
            space.destroy();
        }
    }
}

/// An operation, with its preparation and its checks.
pub struct Operation<'a, S, T, E> {
    /// The name in messages.
    pub name: &'a str,
    /// What a failed operation may leave behind.
    pub failing: Failing,
    /// Sets up a fresh address space.
    pub prepare: &'a dyn Fn(&SoftCpu<'_>) -> S,
    /// The operation, run once or, after an error, twice.
    pub act: &'a dyn Fn(&SoftCpu<'_>, &S) -> Result<T, E>,
    /// Checks the error, and the state after it.
    pub failed: &'a dyn Fn(&SoftCpu<'_>, &S, E),
    /// Checks the state after success.
    pub check: &'a dyn Fn(&SoftCpu<'_>, &S),
}

impl<S: Stage, T: Debug, E: Debug + Copy> Operation<'_, S, T, E> {
    /// Injects a failure at the first, second, … allocation of the operation, in a fresh
    /// address space each time, until it makes no more allocations; then again, with all later
    /// allocations failing too. After each trial the whole machine is verified, and every frame must
    /// have an owner; after an error the operation must succeed when repeated. Returns the number of
    /// allocations under each policy, and of errors.
    pub fn inject(&self) -> Vec<(u32, u32)> {
        Policy::ALL.iter().map(|&p| self.inject_under(p)).collect()
    }

    fn inject_under(&self, policy: Policy) -> (u32, u32) {
        let name = self.name;
        let memory = machine(2, 64);
        let (mut allocations, mut errors) = (0, 0);
        loop {
            assert!(allocations < 10_000, "{name}: allocates without end");
            let (failed, is_error) = self.trial(policy, memory, Lasting::Once, allocations);
            errors += u32::from(is_error);
            if !failed {
                break;
            }
            allocations += 1;
        }
        let lasting = (0..allocations)
            .filter(|&at| self.trial(policy, memory, Lasting::On, at).1)
            .count() as u32;
        eprintln!("{name} under {policy}: {allocations} allocations, {errors}+{lasting} errors");
        (allocations, errors + lasting)
    }

    fn trial(
        &self,
        policy: Policy,
        memory: &'static SoftMemory,
        lasting: Lasting,
        allocation: u32,
    ) -> (bool, bool) {
        let name = self.name;
        let at = format!("{name} under {policy}, allocation {allocation} {lasting:?}");
        let before = available(memory);
        let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap();
        let (stage, ended) = SoftCpu::run(&space, 0, |cpu| {
            let stage = (self.prepare)(cpu);
            empty_caches(memory);
            let old = maps(cpu.space());
            lasting.begin(memory, allocation);
            let result = (self.act)(cpu, &stage);
            let failed = lasting.end(memory);
            verify(cpu, &stage, &at);
            if let Err(e) = &result {
                assert!(failed, "{at}: {e:?} without a failure");
                if self.failing == Failing::Whole {
                    assert_eq!(maps(cpu.space()), old, "{at}: half done");
                }
                (self.failed)(cpu, &stage, *e);
                let again = (self.act)(cpu, &stage);
                assert!(again.is_ok(), "{at}: {again:?} when repeated");
            }
            (self.check)(cpu, &stage);
            verify(cpu, &stage, &format!("{at}, afterwards"));
            (stage, (failed, result.is_err()))
        });
        SoftCpu::attend(memory, 0, || {
            stage.end();
            space.destroy();
        });
        assert_eq!(available(memory), before, "{at}: frames");
        ended
    }
}

/// The same for an operation with no state beside the address space; only a second try checks what an
/// error has left.
pub fn inject<T: Debug, E: Debug + Copy>(
    name: &str,
    failing: Failing,
    prepare: impl Fn(&SoftCpu<'_>),
    act: impl Fn(&SoftCpu<'_>) -> Result<T, E>,
    check: impl Fn(&SoftCpu<'_>),
) {
    Operation {
        name,
        failing,
        prepare: &prepare,
        act: &|cpu, ()| act(cpu),
        failed: &|_, (), _| {},
        check: &|cpu, ()| check(cpu),
    }
    .inject();
}

/// Verifies all address spaces and the machine: every frame has an owner.
fn verify(cpu: &SoftCpu<'_>, stage: &impl Stage, at: &str) {
    let memory = cpu.space().memory();
    let frames = memory.machine().allocator();
    let all = stage.children().iter().chain([cpu.space()]);
    let verified = memory.verify_machine(frames, all, |_| Ok(()));
    let (_, accounts) = verified.unwrap_or_else(|violation| panic!("{at}: {violation}"));
    assert_eq!(accounts.lost(), 0, "{at}: {accounts:?}");
}

/// Frees cached nodes, splits and mappings, so that new ones must be allocated.
fn empty_caches(memory: &'static SoftMemory) {
    memory.expedite();
    memory.drain();
}
