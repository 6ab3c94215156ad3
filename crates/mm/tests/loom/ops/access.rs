//! Loom models of two operations on a page's entry.
//!
//! * Accesses from outside the space copy bytes under the claim of the entry. `munmap` must not free the page
//!   meanwhile. Beside fork, the child is a snapshot and sees no later write.
//! * Accessed bits are cleared beside a store. No bit set by hardware is lost, and a page with a clear
//!   accessed bit is in no TLB.
//!
//! At most three preemptions.

use crate::model::{PAGE, Processor, RW, Space, World, explore, with_lazy_tlbs};
use faultless_mm::{Access, AgingMode, EntryFormat, Errno, PROT_READ, Policy, X86_64};
use faultless_sync::{Mutant, with_flaw};

const OLD: u64 = 1;
const NEW: u64 = 2;

/// Reads a page's word from outside the space, and optionally writes it. It takes two steps, as a copy of
/// bytes does.
fn reach(space: &Space, address: u64, write: Option<u64>) -> Result<u64, Errno> {
    let machine = space.memory().machine();
    let access = match write {
        Some(_) => Access::Write,
        None => Access::Read,
    };
    let mut seen = 0;
    space.access(address, access, &mut |frame| {
        let before = machine.word(frame);
        machine.step();
        seen = machine.word(frame);
        assert_eq!(seen, before, "the page went away under the claim");
        if let Some(word) = write {
            machine.set_word(frame, word);
        }
    })?;
    Ok(seen)
}

/// CPU 1 accesses a page from outside while CPU 0 unmaps it.
fn beside_an_unmapping(policy: Policy, write: Option<u64>) {
    explore(Some(3), move || {
        let world = World::new(2, policy);
        world.map(0, 1, RW);
        world.cpu().store(0, OLD).unwrap();
        let other = world.run(1, move |cpu| reach(cpu.space(), 0, write));
        world.space().munmap(0, PAGE).unwrap();
        let seen = other.join().unwrap();
        assert!(
            matches!(seen, Ok(OLD) | Err(Errno::EIO)),
            "what is not mapped holds {seen:?}"
        );
        world.finish();
    });
}

#[test]
fn an_unmapping() {
    for &policy in Policy::ALL {
        beside_an_unmapping(policy, Some(NEW));
    }
    beside_an_unmapping(Policy::Speculative, None);
}

#[test]
#[should_panic]
fn broken_claims_not_awaited() {
    with_flaw(Mutant::ClaimsNotAwaited, || {
        beside_an_unmapping(Policy::Speculative, Some(NEW));
    });
}

/// CPU 0 writes two pages from outside, one after the other, while CPU 1 forks. With `read_only` the entry is
/// the same after a fork.
fn beside_a_fork(policy: Policy, read_only: bool) {
    explore(Some(3), move || {
        let world = World::new(2, policy);
        world.map(0, 2, RW);
        for page in 0..2 {
            world.cpu().store(page * PAGE, OLD).unwrap();
        }
        if read_only {
            world.space().mprotect(0, 2 * PAGE, PROT_READ).unwrap();
        }
        let forking = world.run(1, |cpu| {
            let child = cpu.space().fork().unwrap();
            let machine = child.memory().machine();
            let word = |page: u64| machine.word(child.translate(page * PAGE).unwrap());
            let copies = [0, 1].map(word);
            (child, copies)
        });
        for page in 0..2 {
            assert_eq!(reach(world.space(), page * PAGE, Some(NEW)), Ok(OLD));
        }
        let (child, copies) = forking.join().unwrap();
        assert!(
            matches!(copies, [OLD, OLD] | [NEW, OLD] | [NEW, NEW]),
            "the child has {copies:?}"
        );
        for page in 0..2 {
            assert_eq!(
                world.word_of(&child, page),
                copies[page as usize],
                "the child sees what is written later"
            );
            assert_eq!(world.cpu().load(page * PAGE), Ok(NEW));
        }
        world.finish_with(vec![child]);
    });
}

#[test]
fn a_fork() {
    for &policy in Policy::ALL {
        beside_a_fork(policy, false);
    }
    beside_a_fork(Policy::Speculative, true);
}

/// The fork has looked at the entry, but has not shared the page yet.
#[test]
#[should_panic(expected = "the child")]
fn broken_link_not_validated() {
    with_flaw(Mutant::LinkNotValidated, || {
        beside_a_fork(Policy::Speculative, true);
    });
}

/// The fork ended before the claim, and the entry has its old value again.
#[test]
#[should_panic(expected = "the child")]
fn broken_sharing_not_checked() {
    with_flaw(Mutant::SharingNotChecked, || {
        beside_a_fork(Policy::Speculative, true);
    });
}

/// CPU 1 stores to a page while CPU 0 clears the accessed bits of all pages.
fn clearing_beside_a_store(is_cached: bool) {
    explore(Some(3), move || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        Processor::new(world.space(), u32::from(is_cached))
            .store(0, OLD)
            .unwrap();
        let other = world.run(1, |cpu| cpu.store(0, NEW).unwrap());
        world.space().clear_accessed(AgingMode::All);
        other.join().unwrap();
        let entry = world.space().entry(0).unwrap();
        let format = X86_64::FORMAT;
        assert!(entry & format.dirty != 0, "a store is forgotten");
        let tlb = world.space().memory().machine().tlb(1).lock().unwrap();
        assert!(
            entry & format.accessed != 0 || !tlb.entries.contains_key(&0),
            "a TLB has a page that counts as not used"
        );
        drop(tlb);
        assert_eq!(world.cpu().load(0), Ok(NEW));
        world.finish();
    });
}

#[test]
fn a_store() {
    clearing_beside_a_store(true);
    clearing_beside_a_store(false);
}

#[test]
#[should_panic(expected = "a TLB has a page that counts as not used")]
fn broken_tlbs_that_flush_late() {
    with_lazy_tlbs(|| clearing_beside_a_store(true));
}
