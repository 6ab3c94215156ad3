//! Loom models of what `MADV_PAGEOUT` takes beside private pages with content: an object's page, which is noted with the
//! range held and taken afterwards, and a lazily freed page, which is discarded.
//!
//! At most two preemptions in the quick form.

use std::sync::Arc;

use crate::model::{Model, PAGE, Processor, RW, Space, World, explore};
use faultless_mm::{MemoryObject, Opened, Outcome, Policy, advice, flags, remap_flags};
use faultless_sync::{Mutant, with_flaw};

const OLD: u64 = 7;
const NEW: u64 = 9;

fn page_out(space: &Space) {
    space.memory().machine().step();
    // Its range may be unmapped or locked meanwhile.
    let _ = space.madvise(0, PAGE, advice::PAGEOUT);
}

/// Shared memory with a page that was used.
fn shared(world: &Arc<World>) -> MemoryObject<Model> {
    let store = MemoryObject::new(world.space().memory(), PAGE, None, 0).unwrap();
    let opened = Opened {
        store: Ok(&store),
        offset: 0,
        file: 0,
        writable: true,
    };
    let how = flags::SHARED | flags::FIXED;
    let mapped = world.space().mmap_object(0, PAGE, RW, how, &opened);
    assert_eq!(mapped, Ok(0));
    Processor::new(world.space(), 1).store_file(0, OLD).unwrap();
    store
}

fn beside(
    act: fn(&World, &MemoryObject<Model>) -> Option<Space>,
    check: fn(&World, Result<u64, Outcome>),
) {
    explore(Some(2), move || {
        let world = World::new(2, Policy::Speculative);
        world.swap(2);
        let store = shared(&world);
        let out = world.run(1, |cpu| page_out(cpu.space()));
        let child = act(&world, &store);
        out.join().unwrap();
        check(&world, world.cpu().load_file(0));
        drop(store);
        world.finish_with(child.into_iter().collect());
    });
}

#[test]
fn an_object_s_page_beside_munmap() {
    beside(
        |world, _| {
            world.space().munmap(0, PAGE).unwrap();
            None
        },
        |_, seen| assert!(seen.is_err()),
    );
}

/// The page is noted at one place, and taken at another.
#[test]
fn an_object_s_page_beside_mremap() {
    beside(
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
fn an_object_s_page_beside_truncate() {
    beside(
        |_, store| {
            store.truncate(0).unwrap();
            None
        },
        |_, seen| assert_eq!(seen, Err(Outcome::Bus)),
    );
}

/// Locked memory is in memory, also if the page was noted before.
#[test]
fn an_object_s_page_beside_mlock() {
    beside(
        |world, _| {
            world.space().mlock(0, PAGE, 0).unwrap();
            None
        },
        |world, seen| {
            assert_eq!(seen, Ok(OLD));
            world.space().munlock(0, PAGE).unwrap();
        },
    );
}

/// CPU 1 has the page in its TLB, and stores while it leaves.
fn a_store_through_a_tlb() {
    explore(Some(2), || {
        let world = World::new(2, Policy::Speculative);
        world.swap(2);
        let store = shared(&world);
        let writer = world.run(1, |cpu| cpu.store_file(0, NEW).unwrap());
        page_out(world.space());
        writer.join().unwrap();
        assert_eq!(world.cpu().load_file(0), Ok(NEW), "a store is lost");
        drop(store);
        world.finish();
    });
}

#[test]
fn a_store_to_an_object_s_page_stays() {
    a_store_through_a_tlb();
}

#[test]
#[should_panic(expected = "a TLB holds a frame that is freed")]
fn broken_swapped_without_a_flush() {
    with_flaw(Mutant::SwappedWithoutFlush, a_store_through_a_tlb);
}

/// CPU 1 needs a lazily freed page again, while CPU 0 pages it out.
fn a_store_to_a_lazily_freed_page() {
    explore(Some(2), || {
        let world = World::new(2, Policy::Speculative);
        world.swap(2);
        world.map(0, 1, RW);
        world.cpu().store(0, OLD).unwrap();
        world.space().madvise(0, PAGE, advice::FREE).unwrap();
        let writer = world.run(1, |cpu| cpu.store(0, NEW).unwrap());
        page_out(world.space());
        writer.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(NEW), "a store is lost");
        world.finish();
    });
}

#[test]
fn a_store_to_a_lazily_freed_page_stays() {
    a_store_to_a_lazily_freed_page();
}

#[test]
#[should_panic(expected = "a store is lost")]
fn broken_discarded_though_written() {
    with_flaw(Mutant::TakenThoughWritten, a_store_to_a_lazily_freed_page);
}
