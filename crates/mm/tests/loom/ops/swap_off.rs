//! Loom models of the end of a swap device's use, beside what else happens to the pages that come back: afterwards no
//! slot is used, and no page is lost.
//!
//! At most two preemptions in the quick form.

use std::sync::{Arc, Mutex};

use crate::model::{PAGE, RW, Space, World, explore};
use faultless_mm::{Policy, advice};
use faultless_sync::{Mutant, with_flaw};

const OLD: u64 = 7;
const NEW: u64 = 9;

/// A world with one page, which holds `OLD`.
fn one_page() -> Arc<World> {
    let world = World::new(2, Policy::Speculative);
    world.map(0, 1, RW);
    world.cpu().store(0, OLD).unwrap();
    world
}

fn page_out(space: &Space) {
    space.memory().machine().step();
    let _ = space.madvise(0, PAGE, advice::PAGEOUT);
}

fn swap_off(world: &World) {
    let memory = world.space().memory();
    memory.machine().step();
    assert_eq!(memory.swap_off(0, &|| Ok(())), Ok(()));
}

/// CPU 1 swaps the page out while the device leaves.
fn beside_page_out() {
    explore(Some(2), || {
        let world = one_page();
        let store = world.swap(1);
        let out = world.run(1, |cpu| page_out(cpu.space()));
        swap_off(&world);
        out.join().unwrap();
        assert_eq!(store.used(), 0, "a slot is used");
        assert_eq!(world.cpu().load(0), Ok(OLD));
        world.finish();
    });
}

#[test]
fn a_page_out_beside_it_takes_no_slot() {
    beside_page_out();
}

#[test]
#[should_panic(expected = "a slot is used")]
fn broken_leaving_device_used() {
    with_flaw(Mutant::LeavingDeviceUsed, beside_page_out);
}

/// CPU 1 does something with the page, which is swapped out, while the device leaves.
fn beside(change: fn(&Space) -> Option<Space>) {
    explore(Some(2), move || {
        let world = one_page();
        let store = world.swap(1);
        page_out(world.space());
        let child = Arc::new(Mutex::new(None));
        let other = {
            let child = child.clone();
            world.run(1, move |cpu| {
                cpu.space().memory().machine().step();
                *child.lock().unwrap() = change(cpu.space());
            })
        };
        swap_off(&world);
        other.join().unwrap();
        assert_eq!(store.used(), 0, "a slot is used");
        if let Ok(word) = world.cpu().load(0) {
            assert_eq!(word, OLD, "a page is lost");
        }
        let child = child.lock().unwrap().take();
        if let Some(child) = &child {
            assert_eq!(world.word_of(child, 0), OLD, "a child's page is lost");
        }
        world.finish_with(child.into_iter().collect());
    });
}

#[test]
fn beside_munmap() {
    beside(|space| {
        space.munmap(0, PAGE).unwrap();
        None
    });
}

#[test]
fn beside_fork() {
    beside(|space| Some(space.fork().unwrap()));
}

/// CPU 1 stores to the page.
#[test]
fn beside_a_store() {
    explore(Some(2), || {
        let world = one_page();
        let store = world.swap(1);
        page_out(world.space());
        let writer = world.run(1, |cpu| cpu.store(0, NEW).unwrap());
        swap_off(&world);
        writer.join().unwrap();
        assert_eq!(store.used(), 0, "a slot is used");
        assert_eq!(world.cpu().load(0), Ok(NEW), "a store is lost");
        world.finish();
    });
}

/// A child with the page ends on CPU 1.
fn beside_the_end() {
    explore(Some(2), || {
        let world = one_page();
        let store = world.swap(1);
        page_out(world.space());
        let child = world.space().fork().unwrap();
        let ended = world.run(1, move |_| {
            child.memory().machine().step();
            child.destroy();
        });
        swap_off(&world);
        ended.join().unwrap();
        assert_eq!(store.used(), 0, "a slot is used");
        assert_eq!(world.cpu().load(0), Ok(OLD), "a page is lost");
        world.finish();
    });
}

#[test]
fn beside_the_end_of_a_space() {
    beside_the_end();
}

#[test]
#[should_panic]
fn broken_visits_not_awaited() {
    with_flaw(Mutant::VisitsNotAwaited, beside_the_end);
}
