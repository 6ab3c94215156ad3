//! Loom models of migration of a page to another frame.
//!
//! * A private page, beside stores through a TLB, faults, fork, `munmap`, `mremap` and pins.
//! * A page that parent and child share.
//! * A memory object's page, beside a fault on it and a truncation.
//!
//! Every user of the page has its content from before or after the move. Its old frame, which is then free,
//! is in no TLB.
//!
//! At most three preemptions.

use std::sync::Arc;

use crate::model::{Model, PAGE, Processor, RW, Space, World, explore};
use faultless_mm::{
    Cpu, FrameSource, MemoryObject, Mover, Opened, Outcome, PROT_READ, Policy, Taken, flags,
    remap_flags,
};
use faultless_sync::{Mutant, with_flaw};

const OLD: u64 = 1;
const NEW: u64 = 2;

/// Migrates the page at an address if that is possible now. Returns whether it was.
fn migrate(space: &Space, cpu: u32, address: u64) -> bool {
    let memory = space.memory();
    let machine = memory.machine();
    machine.step();
    let Some(from) = space.translate(address) else {
        return false;
    };
    let to = machine.allocate(Cpu(cpu)).unwrap();
    let moved = Mover::new(memory).unwrap().migrate(from, to);
    machine.free(Cpu(cpu), if moved.is_ok() { from } else { to });
    moved.is_ok()
}

/// CPU 1 stores to a page while CPU 0 migrates it. The page is in CPU 1's TLB or not.
fn beside_a_store(policy: Policy, is_cached: bool) {
    explore(Some(3), move || {
        let world = World::new(2, policy);
        world.map(0, 1, RW);
        Processor::new(world.space(), u32::from(is_cached))
            .store(0, OLD)
            .unwrap();
        let writer = world.run(1, |cpu| {
            cpu.store(0, NEW).unwrap();
            assert_eq!(cpu.load(0), Ok(NEW), "a store is lost");
        });
        migrate(world.space(), 0, 0);
        writer.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(NEW), "a store is lost");
        world.finish();
    });
}

#[test]
fn a_store() {
    Policy::ALL.iter().for_each(|&policy| {
        beside_a_store(policy, true);
        beside_a_store(policy, false);
    });
}

#[test]
#[should_panic]
fn broken_moved_without_flush() {
    with_flaw(Mutant::MovedWithoutFlush, || {
        beside_a_store(Policy::Speculative, true);
    });
}

/// CPU 1 migrates a page while CPU 0 changes its space.
fn beside(policy: Policy, read_only: bool, change: fn(&World) -> Vec<Space>) {
    // The other policies serialise writers.
    let bound = if policy == Policy::Speculative { 3 } else { 2 };
    explore(Some(bound), move || {
        let world = World::new(2, policy);
        world.map(0, 1, RW);
        world.map(2, 1, RW);
        world.cpu().store(2 * PAGE, OLD).unwrap();
        world.cpu().store(0, OLD).unwrap();
        if read_only {
            world.space().mprotect(0, PAGE, PROT_READ).unwrap();
        }
        let mover = world.run(1, |cpu| migrate(cpu.space(), 1, 0));
        let children = change(&world);
        mover.join().unwrap();
        for child in &children {
            assert_eq!(world.word_of(child, 0), OLD);
        }
        if let Ok(word) = world.cpu().load(0) {
            assert_eq!(word, OLD);
            if !read_only {
                world.cpu().store(0, NEW).unwrap();
            }
        }
        for child in &children {
            assert_eq!(world.word_of(child, 0), OLD, "the child sees a store");
        }
        world.finish_with(children);
    });
}

fn fork(world: &World) -> Vec<Space> {
    vec![world.space().fork().unwrap()]
}

fn unmap(world: &World) -> Vec<Space> {
    world.space().munmap(0, PAGE).unwrap();
    Vec::new()
}

fn protect(world: &World) -> Vec<Space> {
    world.space().mprotect(0, PAGE, PROT_READ).unwrap();
    world.space().mprotect(0, PAGE, RW).unwrap();
    Vec::new()
}

fn carry(world: &World) -> Vec<Space> {
    let how = remap_flags::MAYMOVE | remap_flags::FIXED;
    let to = 2 * PAGE;
    assert_eq!(world.space().mremap(0, PAGE, PAGE, how, to), Ok(to));
    assert_eq!(world.cpu().load(to), Ok(OLD));
    world.cpu().store(to, NEW).unwrap();
    Vec::new()
}

fn discard(world: &World) -> Vec<Space> {
    let advice = faultless_mm::advice::DONTNEED;
    world.space().madvise(0, PAGE, advice).unwrap();
    world.cpu().store(0, OLD).unwrap();
    Vec::new()
}

#[test]
fn a_fork() {
    for &policy in Policy::ALL {
        beside(policy, false, fork);
    }
    beside(Policy::Speculative, true, fork);
}

#[test]
fn writers() {
    for change in [unmap, protect, carry, discard] {
        beside(Policy::Speculative, false, change);
    }
}

/// Fork has looked at the entry, but has not counted the child's mapping yet.
#[test]
#[should_panic]
fn broken_mapping_not_validated() {
    with_flaw(Mutant::MappingNotValidated, || {
        beside(Policy::Speculative, true, fork);
    });
}

/// CPU 1 pins a page while CPU 0 migrates it: the pin gets the page that the program uses.
fn beside_a_pin() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        world.cpu().store(0, OLD).unwrap();
        let pinning = world.run(1, |cpu| cpu.space().pin(0, Taken::ToWrite).ok().unwrap());
        migrate(world.space(), 0, 0);
        let page = pinning.join().unwrap();
        world.cpu().store(0, NEW).unwrap();
        let machine = world.space().memory().machine();
        assert_eq!(
            machine.word(page.frame()),
            NEW,
            "a pinned page was moved away"
        );
        drop(page);
        world.finish();
    });
}

#[test]
fn a_pin() {
    beside_a_pin();
}

#[test]
#[should_panic]
fn broken_moved_though_used() {
    with_flaw(Mutant::MovedThoughUsed, beside_a_pin);
}

/// A page that parent and child share is migrated while the child writes it.
#[test]
fn a_page_that_a_child_shares() {
    explore(Some(3), || {
        let world = World::with_others(1, 1, Policy::Speculative);
        world.map(0, 1, RW);
        world.cpu().store(0, OLD).unwrap();
        let child = Arc::new(world.space().fork().unwrap());
        let writer = world.run_in(&child, 1, |cpu| {
            cpu.set_bits(0, NEW).unwrap();
            assert_eq!(cpu.load(0), Ok(OLD | NEW));
        });
        migrate(world.space(), 0, 0);
        assert_eq!(world.cpu().load(0), Ok(OLD));
        writer.join().unwrap();
        let child = Arc::into_inner(child).unwrap();
        assert_eq!(world.word_of(&child, 0), OLD | NEW);
        world.finish_with(vec![child]);
    });
}

/// A shared page is migrated while the other space ends.
#[test]
fn a_page_whose_other_space_ends() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        world.cpu().store(0, OLD).unwrap();
        let child = world.space().fork().unwrap();
        let mover = world.run(1, |cpu| migrate(cpu.space(), 1, 0));
        child.destroy();
        mover.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(OLD));
        world.finish();
    });
}

/// The same with a memory object's page, from which the reverse map leads to the space in another way.
#[test]
fn a_page_of_a_store_whose_other_space_ends() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        let store = mapped(&world);
        world.cpu().store_file(0, OLD).unwrap();
        let child = world.space().fork().unwrap();
        let populated = child.madvise(0, PAGE, faultless_mm::advice::POPULATE_READ);
        assert_eq!(populated, Ok(()));
        let mover = world.run(1, |cpu| migrate(cpu.space(), 1, 0));
        child.destroy();
        mover.join().unwrap();
        assert_eq!(world.cpu().load_file(0), Ok(OLD));
        assert_eq!(store.pages(), 1);
        drop(store);
        world.finish();
    });
}

/// With no operation in the way, a page that two spaces share is migrated in both.
#[test]
fn a_shared_page_is_moved_everywhere() {
    explore(Some(1), || {
        let world = World::new(1, Policy::Speculative);
        world.map(0, 1, RW);
        world.cpu().store(0, OLD).unwrap();
        let child = world.space().fork().unwrap();
        assert!(migrate(&child, 0, 0));
        assert_eq!(world.space().translate(0), child.translate(0));
        world.cpu().store(0, NEW).unwrap();
        assert_eq!(world.word_of(&child, 0), OLD);
        world.finish_with(vec![child]);
    });
}

/// A memory object of one page, mapped at page 0.
fn mapped(world: &Arc<World>) -> MemoryObject<Model> {
    let store = MemoryObject::new(world.space().memory(), PAGE, None, 0).unwrap();
    let opened = Opened {
        store: Ok(&store),
        offset: 0,
        file: 0,
        writable: true,
    };
    let how = flags::SHARED | flags::FIXED;
    assert_eq!(world.space().mmap_object(0, PAGE, RW, how, &opened), Ok(0));
    store
}

/// A memory object's page is migrated while CPU 1 maps and writes it.
#[test]
fn a_fault_on_a_page_of_a_store() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        let store = mapped(&world);
        let from = store.page_to_write(0).unwrap().frame();
        let writer = world.run(1, |cpu| cpu.store_file(0, NEW).unwrap());
        let (memory, machine) = (world.space().memory(), world.space().memory().machine());
        let to = machine.allocate(Cpu(0)).unwrap();
        let moved = Mover::new(memory).unwrap().migrate(from, to);
        machine.free(Cpu(0), if moved.is_ok() { from } else { to });
        writer.join().unwrap();
        assert_eq!(world.cpu().load_file(0), Ok(NEW), "a store is lost");
        let frame = store.present(0).unwrap().unwrap().frame();
        assert_eq!(world.space().translate(0), Some(frame));
        drop(store);
        world.finish();
    });
}

/// A memory object's page is migrated while it is truncated.
fn beside_a_truncation() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        let store = mapped(&world);
        world.cpu().store_file(0, OLD).unwrap();
        let mover = world.run(1, |cpu| migrate(cpu.space(), 1, 0));
        store.truncate(0).unwrap();
        assert_eq!(
            world.space().translate(0),
            None,
            "a page is left that was truncated"
        );
        mover.join().unwrap();
        assert_eq!(world.space().translate(0), None, "a page comes back");
        assert_eq!(world.cpu().load_file(0), Err(Outcome::Bus));
        drop(store);
        world.finish();
    });
}

#[test]
fn a_truncation() {
    beside_a_truncation();
}

#[test]
#[should_panic]
fn broken_moved_in_plain_sight() {
    with_flaw(Mutant::MovedInPlainSight, beside_a_truncation);
}
