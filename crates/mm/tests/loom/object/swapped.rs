//! Loom models of an object's page that leaves for a swap device, beside operations on the object and on a mapping.
//!
//! At most two preemptions in the quick form.

use std::sync::Arc;

use crate::model::{Model, PAGE, Processor, RW, Space, World, explore};
use faultless_mm::{AgingMode, MemoryObject, Opened, Outcome, Policy, flags, remap_flags};
use faultless_sync::{Mutant, with_flaw};

const OLD: u64 = 7;
const NEW: u64 = 9;

fn reclaim(space: &Space) -> bool {
    space.memory().machine().step();
    space.memory().reclaim_some()
}

fn opened(store: &MemoryObject<Model>) -> Opened<'_, Model> {
    Opened {
        store: Ok(store),
        offset: 0,
        file: 0,
        writable: true,
    }
}

fn file(world: &Arc<World>) -> MemoryObject<Model> {
    let store = MemoryObject::new(world.space().memory(), PAGE, None, 0).unwrap();
    let how = flags::SHARED | flags::FIXED;
    world
        .space()
        .mmap_object(0, PAGE, RW, how, &opened(&store))
        .unwrap();
    Processor::new(world.space(), 1).store_file(0, OLD).unwrap();
    world.space().clear_accessed(AgingMode::All);
    store
}

fn beside_file(
    act: fn(&World, &MemoryObject<Model>) -> Option<Space>,
    check: fn(&World, Result<u64, Outcome>),
) {
    explore(Some(2), move || {
        let world = World::new(2, Policy::Speculative);
        world.swap(2);
        let store = file(&world);
        let sweep = world.run(1, |cpu| reclaim(cpu.space()));
        let child = act(&world, &store);
        sweep.join().unwrap();
        check(&world, world.cpu().load_file(0));
        drop(store);
        world.finish_with(child.into_iter().collect());
    });
}

#[test]
fn beside_a_store() {
    beside_file(
        |world, _| {
            world.cpu().store_file(0, NEW).unwrap();
            None
        },
        |_, seen| assert_eq!(seen, Ok(NEW)),
    );
}

#[test]
fn beside_truncate() {
    beside_file(
        |_, store| {
            store.truncate(0).unwrap();
            None
        },
        |_, seen| assert_eq!(seen, Err(Outcome::Bus)),
    );
}

#[test]
fn beside_a_write_to_the_file() {
    beside_file(
        |world, store| {
            let page = store.page_to_write(0).unwrap();
            world.space().memory().machine().set_word(page.frame(), NEW);
            None
        },
        |_, seen| assert_eq!(seen, Ok(NEW)),
    );
}

#[test]
fn beside_mremap() {
    beside_file(
        |world, _| {
            let to = remap_flags::MAYMOVE | remap_flags::FIXED;
            world.space().mremap(0, PAGE, PAGE, to, 2 * PAGE).unwrap();
            assert_eq!(world.cpu().load_file(2 * PAGE), Ok(OLD));
            None
        },
        |_, _| (),
    );
}

#[test]
fn beside_swap_off() {
    beside_file(
        |world, _| {
            let _ = world.space().memory().swap_off(0, &|| Ok(()));
            None
        },
        |_, seen| assert_eq!(seen, Ok(OLD)),
    );
}

/// CPU 1 has the page in its TLB, and stores while it leaves.
fn a_store_through_a_tlb() {
    explore(Some(2), || {
        let world = World::new(2, Policy::Speculative);
        world.swap(2);
        let store = file(&world);
        let writer = world.run(1, |cpu| cpu.store_file(0, NEW).unwrap());
        reclaim(world.space());
        writer.join().unwrap();
        assert_eq!(world.cpu().load_file(0), Ok(NEW), "a store is lost");
        drop(store);
        world.finish();
    });
}

#[test]
fn a_store_through_a_tlb_stays() {
    a_store_through_a_tlb();
}

#[test]
#[should_panic(expected = "a TLB holds a frame that is freed")]
fn broken_swapped_without_a_flush() {
    with_flaw(Mutant::SwappedWithoutFlush, a_store_through_a_tlb);
}
