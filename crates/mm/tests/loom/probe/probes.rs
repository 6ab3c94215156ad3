//! Loom models of probes.
//!
//! * A space checks again whether it may show breakpoints, beside a new mapping with a probe elsewhere. In
//!   the end the space says that it may.
//! * A probe is registered beside a new mapping. In the end the breakpoint is there.
//!
//! At most three preemptions in the quick form.

use crate::model::{Model, PAGE, Space, World, explore};
use faultless_mm::{
    MemoryObject, Opened, PROT_EXEC, PROT_READ, PhysicalMemory, Policy, Probe, flags,
};
use faultless_sync::{Mutant, with_flaw};

fn map(space: &Space, store: &MemoryObject<Model>, page: u64) {
    let opened = Opened {
        store: Ok(store),
        offset: 0,
        file: 0,
        writable: false,
    };
    let (prot, how) = (PROT_READ | PROT_EXEC, flags::PRIVATE | flags::FIXED);
    let mapped = space.mmap_object(page * PAGE, PAGE, prot, how, &opened);
    assert_eq!(mapped, Ok(page * PAGE));
}

fn checked() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        let store = MemoryObject::new(world.space().memory(), PAGE, None, 0).unwrap();
        let probe = Probe::register(&store, 0, 0xcc, 5).unwrap();
        map(world.space(), &store, 1);
        world.space().munmap(PAGE, PAGE).unwrap();
        let looker = world.run(1, |cpu| {
            assert_eq!(cpu.space().probe_at(PAGE), None);
        });
        map(world.space(), &store, 0);
        looker.join().unwrap();
        let found = world.space().probe_at(0);
        assert_eq!(found, Some(5), "a breakpoint has no probe");
        drop(probe);
        drop(store);
        world.finish();
    });
}

#[test]
fn what_comes_is_not_forgotten() {
    checked();
}

#[test]
#[should_panic(expected = "a breakpoint has no probe")]
fn broken_probes_forgotten() {
    with_flaw(Mutant::ProbesForgotten, checked);
}

fn registered() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        let store = MemoryObject::new(world.space().memory(), PAGE, None, 0).unwrap();
        let mapper = {
            let store = store.clone();
            world.run(1, move |cpu| map(cpu.space(), &store, 0))
        };
        let probe = Probe::register(&store, 0, 0xcc, 5).unwrap();
        mapper.join().unwrap();
        let machine = world.space().memory().machine();
        let frame = world.space().translate(0);
        // SAFETY: the first byte of a page that no thread changes now.
        let met = frame.map(|frame| unsafe { machine.pointer(frame).read() });
        assert_eq!(met, Some(0xcc), "a breakpoint is missing");
        assert_eq!(world.space().probe_at(0), Some(5));
        drop(probe);
        drop(store);
        world.finish();
    });
}

#[test]
fn mapped_while_it_is_registered() {
    registered();
}

#[test]
#[should_panic(expected = "a breakpoint is missing")]
fn broken_probe_beside_changes() {
    with_flaw(Mutant::ProbeBesideChanges, registered);
}
