//! Loom model (a) on whole operations: two faults against a writer, through [`faultless_mm::AddressSpace`].
//!
//! The verifier checks the result:
//!
//! * No page is outside a live mapping, and none has more rights than its mapping.
//! * No claim is left, and every frame is accounted for.
//!
//! At most two preemptions in the quick form, four with one fault.

use crate::model::{FIXED, PAGE, RW, Space, World, explore};
use faultless_mm::{Access, Outcome, PROT_READ, Policy, SegvCode, advice};
use faultless_sync::{Mutant, with_flaw};

const MAP_ERR: Outcome = Outcome::Segv(SegvCode::MapErr);
const ACC_ERR: Outcome = Outcome::Segv(SegvCode::AccErr);

/// Runs faults, one per CPU from 1 on, against `writer` on CPU 0. Page 0 is mapped and has its table; page 1
/// is mapped and touched. `check` gets the outcomes of the faults and the final number of pages.
fn against(
    bound: usize,
    policy: Policy,
    faults: &'static [(u64, Access)],
    writer: fn(&Space),
    check: fn(&[Outcome], u64),
) {
    explore(Some(bound), move || {
        let world = World::new(1 + faults.len() as u32, policy);
        world.map(0, 2, RW);
        assert_eq!(world.space().fault(PAGE, Access::Write), Outcome::Resolved);
        let threads = (1..).zip(faults).map(|(cpu, &(page, access))| {
            world.run(cpu, move |cpu| cpu.space().fault(page * PAGE, access))
        });
        let threads = threads.collect::<Vec<_>>();
        writer(world.space());
        let outcomes = threads.into_iter().map(|t| t.join().unwrap());
        let outcomes = outcomes.collect::<Vec<_>>();
        let census = world.finish();
        check(&outcomes, census.pages + census.zero_pages);
    });
}

const TWO_WRITES: &[(u64, Access)] = &[(0, Access::Write), (0, Access::Write)];
const READ_AND_WRITE: &[(u64, Access)] = &[(0, Access::Read), (0, Access::Write)];
const ONE_WRITE: &[(u64, Access)] = &[(0, Access::Write)];

fn unmap_page_0(space: &Space) {
    space.munmap(0, PAGE).unwrap();
}

fn protect_page_0(space: &Space) {
    space.mprotect(0, PAGE, PROT_READ).unwrap();
}

/// The new mapping is read-only.
fn map_over_page_0(space: &Space) {
    space.mmap(0, PAGE, PROT_READ, FIXED).unwrap();
}

fn each_is(outcomes: &[Outcome], allowed: &[Outcome]) {
    assert!(outcomes.iter().all(|o| allowed.contains(o)), "{outcomes:?}");
}

fn two_faults_and_munmap(bound: usize, policy: Policy) {
    against(
        bound,
        policy,
        TWO_WRITES,
        unmap_page_0,
        |outcomes, pages| {
            each_is(outcomes, &[Outcome::Resolved, MAP_ERR]);
            assert_eq!(pages, 1);
        },
    );
}

#[test]
fn two_faults_and_munmap_speculative() {
    two_faults_and_munmap(2, Policy::Speculative);
}

#[test]
fn two_faults_and_munmap_vma_lock() {
    two_faults_and_munmap(1, Policy::VmaLock);
}

#[test]
fn two_faults_and_munmap_classic() {
    two_faults_and_munmap(1, Policy::Classic);
}

#[test]
fn two_faults_and_mprotect() {
    against(
        2,
        Policy::Speculative,
        TWO_WRITES,
        protect_page_0,
        |outcomes, _| each_is(outcomes, &[Outcome::Resolved, ACC_ERR]),
    );
}

#[test]
fn a_read_and_a_write_and_dont_need() {
    let dont_need: fn(&Space) = |space| space.madvise(0, 2 * PAGE, advice::DONTNEED).unwrap();
    against(
        2,
        Policy::Speculative,
        READ_AND_WRITE,
        dont_need,
        |outcomes, pages| {
            each_is(outcomes, &[Outcome::Resolved]);
            assert!(pages <= 1);
        },
    );
}

/// Rule R11: a fault waits while a mapping is replaced, and does not end in SIGSEGV.
#[test]
fn a_fault_and_mmap_over_its_page() {
    let map_over: fn(&Space) = |space| {
        space.mmap(0, 2 * PAGE, PROT_READ | RW, FIXED).unwrap();
    };
    against(
        4,
        Policy::Speculative,
        ONE_WRITE,
        map_over,
        |outcomes, pages| {
            each_is(outcomes, &[Outcome::Resolved]);
            assert!(pages <= 1);
        },
    );
}

fn one_fault_and(policy: Policy, writer: fn(&Space)) {
    against(4, policy, ONE_WRITE, writer, |_, _| {});
}

#[test]
#[should_panic(expected = "outside any live mapping")]
fn broken_claim_without_a_fence() {
    with_flaw(Mutant::ClaimWithoutFence, || {
        one_fault_and(Policy::Speculative, unmap_page_0)
    });
}

#[test]
#[should_panic(expected = "outside any live mapping")]
fn broken_settle_without_a_fence() {
    with_flaw(Mutant::ValidationWithoutFence, || {
        one_fault_and(Policy::Speculative, unmap_page_0)
    });
}

#[test]
#[should_panic(expected = "allows more than its mapping")]
fn broken_settle_without_a_fence_by_mprotect() {
    with_flaw(Mutant::ValidationWithoutFence, || {
        one_fault_and(Policy::Speculative, protect_page_0)
    });
}

#[test]
#[should_panic(expected = "allows more than its mapping")]
fn broken_settle_without_a_fence_by_mmap() {
    with_flaw(Mutant::ValidationWithoutFence, || {
        one_fault_and(Policy::Speculative, map_over_page_0)
    });
}

#[test]
#[should_panic(expected = "outside any live mapping")]
fn broken_claims_not_awaited() {
    with_flaw(Mutant::ClaimsNotAwaited, || {
        one_fault_and(Policy::Speculative, unmap_page_0)
    });
}

#[test]
#[should_panic(expected = "outside any live mapping")]
fn broken_mapping_not_validated() {
    with_flaw(Mutant::MappingNotValidated, || {
        one_fault_and(Policy::Speculative, unmap_page_0)
    });
}

#[test]
#[should_panic(expected = "allows more than its mapping")]
fn broken_mapping_not_validated_by_mprotect() {
    with_flaw(Mutant::MappingNotValidated, || {
        one_fault_and(Policy::Speculative, protect_page_0)
    });
}

#[test]
fn a_fault_and_munmap() {
    let all = Policy::ALL.iter();
    all.for_each(|&policy| one_fault_and(policy, unmap_page_0));
}

#[test]
fn a_fault_and_mprotect() {
    let all = Policy::ALL.iter();
    all.for_each(|&policy| one_fault_and(policy, protect_page_0));
}

#[test]
fn a_fault_and_a_replacement() {
    let all = Policy::ALL.iter();
    all.for_each(|&policy| one_fault_and(policy, map_over_page_0));
}
