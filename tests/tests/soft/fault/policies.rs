//! Policies differ in how a fault holds its mapping, and in nothing that is visible to
//! a program.

use std::sync::atomic::{AtomicBool, Ordering};

use faultless_mm::{Counter, Layout, Limits, Policy, flags};
use faultless_soft::{Soft, SoftCpu, SoftMemory};
use faultless_tests::counting::{Counts, counted, faults};
use faultless_tests::operations::{OPEN, near};
use faultless_tests::random::{Numbers, cases, seed};
use faultless_tests::script::{Op, run};
use faultless_tests::soft::{OnSoft, run_soft};
use faultless_tests::{
    Budget, available, budget, machine, on_every_cpu, space, verify_and_destroy,
};
use proptest::prelude::*;

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
const AT: u64 = 1 << 36;

#[test]
fn names() {
    let names = Policy::ALL.iter().map(|p| p.name()).collect::<Vec<_>>();
    assert_eq!(names, ["classic", "vma-lock", "speculative"]);
    for &policy in Policy::ALL {
        assert_eq!(policy.name().parse(), Ok(policy));
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    assert_eq!(Policy::default(), Policy::Speculative);
    for wrong in ["", "Classic", "vma_lock", "speculative ", "spf"] {
        let error = wrong.parse::<Policy>().unwrap_err().to_string();
        for name in &names {
            assert!(error.contains(name), "{error}");
        }
    }
}

fn scripts(least: u64, test: impl Fn(&[Op]) -> Result<(), TestCaseError>) {
    let scripts = prop::collection::vec(near(), 1..60);
    if let Err((seed, failure)) = cases(least, &scripts, |script| test(&script)) {
        panic!("FAULTLESS_SEED={seed}: {failure}");
    }
}

fn lines(memory: &'static SoftMemory, policy: Policy, script: &[Op]) -> Vec<String> {
    let layout = Layout::LINUX_X86_64;
    let (lines, sound) = run_soft(memory, policy, layout, &Limits::NONE, 0, &OPEN, script);
    sound.unwrap_or_else(|why| panic!("{policy}: {why}"));
    lines
}

/// Addresses, errors, signals, mappings and contents, on a machine with one CPU.
#[test]
fn the_same_program_sees_the_same() {
    let memory = machine(1, 64);
    scripts(300, |script| {
        let classic = lines(memory, Policy::Classic, script);
        for &policy in Policy::ALL {
            prop_assert_eq!(&lines(memory, policy, script), &classic);
        }
        Ok(())
    });
}

/// The same when the policy changes at every step.
#[test]
fn the_policy_changes_in_the_middle() {
    let memory = machine(1, 64);
    scripts(300, |script| {
        let classic = lines(memory, Policy::Classic, script);
        let space = SoftCpu::attend(memory, 0, || {
            let layout = Layout::LINUX_X86_64;
            faultless_mm::OwnedSpace::new(memory, Policy::Classic, layout)
        })
        .map_err(|e| TestCaseError::fail(e.to_string()))?;
        let mut changing = Vec::new();
        let (counts, ()) = counted(memory, || {
            SoftCpu::run(&space, 0, |cpu| {
                run(&mut OnSoft(cpu), &OPEN, script, &mut |line| {
                    changing.push(line);
                    let next = changing.len() % Policy::ALL.len();
                    cpu.space().set_policy(Policy::ALL[next]);
                });
                prop_assert!(cpu.space().verify().is_ok());
                Ok(())
            })
            .unwrap_or_else(|e: TestCaseError| panic!("{e}"));
        });
        SoftCpu::attend(memory, 0, || space.destroy());
        prop_assert_eq!(changing, classic);
        let ended = [Counter::Spf, Counter::VmaLockSuccess].map(|c| counts.get(c));
        prop_assert!(ended.iter().sum::<u64>() <= counts.get(Counter::Faults));
        Ok(())
    });
}

#[test]
fn each_fault_counts_under_the_policy_of_its_moment() {
    let (memory, space) = space(1, 16, Policy::Classic);
    SoftCpu::run(&space, 0, |cpu| {
        space.mmap(AT, 100 * PAGE, RW, ANON | flags::FIXED).unwrap();
        cpu.store(AT, 1).unwrap();
        let turns = Policy::ALL.iter().cycle().take(3 * Policy::ALL.len());
        for (page, &policy) in (1..).zip(turns) {
            space.set_policy(policy);
            assert_eq!(space.policy(), policy);
            let (counts, stored) = counted(memory, || cpu.store(AT + page * PAGE, page));
            assert_eq!(stored, Ok(()));
            counts.are(&faults(policy, 1), policy.name());
        }
        space.verify().unwrap();
    });
}

/// Runs faults while one CPU changes and unmaps what the others touch.
fn contend(policy: Policy, megabytes: u64, pages: u64, budget: &Budget) -> Counts {
    let memory = machine(3, megabytes);
    let before = available(memory);
    let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy).unwrap());
    let fixed = ANON | flags::FIXED | flags::NORESERVE;
    let is_over = AtomicBool::new(false);
    let seed = seed();
    on_every_cpu(&space, |cpu| {
        let space = cpu.space();
        let mut numbers = Numbers(seed ^ u64::from(cpu.number()));
        if cpu.number() == 0 {
            let mut round = 0;
            while budget.goes_on(round) || memory.total(Counter::Faults) < 10 * budget.least() {
                round += 1;
                let at = AT + numbers.below(pages / 2) * PAGE;
                let length = pages / 2 * PAGE;
                match round % 5 {
                    0 => drop(space.mmap(AT, pages * PAGE, RW, fixed)),
                    1 => drop(space.munmap(at, PAGE)),
                    4 => drop(space.madvise(at, length, faultless_mm::advice::DONTNEED)),
                    turn => drop(space.mprotect(at, length, if turn == 2 { 1 } else { RW })),
                }
            }
            is_over.store(true, Ordering::Relaxed);
        }
        while !is_over.load(Ordering::Relaxed) {
            let at = AT + numbers.below(pages) * PAGE;
            match cpu.store(at, at) {
                Ok(()) | Err(_) => {}
            }
        }
    });
    let counts = SoftCpu::attend(memory, 0, || Counts::now(memory));
    verify_and_destroy(space, before);
    counts
}

#[test]
fn every_fault_ends_in_one_way() {
    for &policy in Policy::ALL {
        for (megabytes, pages) in [(64, 8000), (2, 1000)] {
            let counts = contend(policy, megabytes, pages, &budget(400));
            counts.add_up(policy);
            let [faults, abort] =
                [Counter::Faults, Counter::VmaLockAbort].map(|counter| counts.get(counter));
            let fallbacks = counts.fallbacks();
            eprintln!("{policy}, {megabytes} MiB: {faults} faults, {fallbacks}+{abort} fell back");
        }
    }
}
