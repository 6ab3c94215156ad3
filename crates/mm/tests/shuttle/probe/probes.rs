//! Probes beside all operations that change mappings.
//!
//! A registered probe has its breakpoint in each mapping of its byte; an ended probe has none. A space that
//! shows a breakpoint says so.

use std::sync::Arc;

use crate::model::{Model, PAGE, RW, Space, World, explore, explore_under};
use faultless_mm::{
    Errno, MemoryObject, Opened, PROT_EXEC, PROT_READ, PhysicalMemory, Policy, Probe, flags,
    lock_all_flags, remap_flags,
};
use faultless_sync::{Mutant, with_flaw};

const RX: u32 = PROT_READ | PROT_EXEC;
const BREAKPOINT: u8 = 0xcc;
/// The probed byte, in the memory object's second page.
const BYTE: u64 = PAGE + 3;
const TAG: u64 = 5;
const SPECULATIVE: &[Policy] = &[Policy::Speculative];

/// A memory object of two pages of zeroes.
fn store(world: &World) -> MemoryObject<Model> {
    MemoryObject::new(world.space().memory(), 2 * PAGE, None, 0).unwrap()
}

fn probe(store: &MemoryObject<Model>) -> Probe<Model> {
    Probe::register(store, BYTE, BREAKPOINT, TAG).unwrap()
}

/// Maps both pages at page `first`.
fn map(space: &Space, store: &MemoryObject<Model>, first: u64) {
    let opened = Opened {
        store: Ok(store),
        offset: 0,
        file: 0,
        writable: true,
    };
    let (at, how) = (first * PAGE, flags::PRIVATE | flags::FIXED);
    let mapped = space.mmap_object(at, 2 * PAGE, RX, how, &opened);
    assert_eq!(mapped, Ok(at));
}

/// The byte that a mapping at page `first` shows: the file's byte if no page is present.
fn met(space: &Space, first: u64) -> u8 {
    let frame = space.translate((first + 1) * PAGE);
    frame.map_or(0, |frame| {
        let start = space.memory().machine().pointer(frame).as_ptr();
        // SAFETY: inside the frame's storage, which lives as long as the machine; only one thread runs at a
        // time.
        unsafe { start.add((BYTE % PAGE) as usize).read() }
    })
}

/// Checks that a space shows the breakpoint in a mapping, and knows that it does.
fn shows(space: &Space, first: u64) {
    assert_eq!(met(space, first), BREAKPOINT, "a breakpoint is missing");
    let at = first * PAGE + BYTE;
    assert_eq!(space.probe_at(at), Some(TAG), "a breakpoint has no probe");
}

fn finish(world: Arc<World>, store: MemoryObject<Model>, children: Vec<Space>) {
    drop(store);
    world.finish_with(children);
}

/// Two mappings, one of which is made while the probe is registered.
#[test]
fn mapped_while_it_is_registered() {
    explore(600, |policy| {
        let world = World::new(2, policy);
        let store = store(&world);
        map(world.space(), &store, 0);
        let mapper = {
            let store = store.clone();
            world.run(1, move |cpu| map(cpu.space(), &store, 4))
        };
        let probe = probe(&store);
        shows(world.space(), 0);
        mapper.join().unwrap();
        shows(world.space(), 4);
        drop(probe);
        assert_eq!([met(world.space(), 0), met(world.space(), 4)], [0, 0]);
        finish(world, store, Vec::new());
    });
}

/// A mapping that is made while the probe ends shows no breakpoint in the end.
fn mapped_while_it_ends() {
    explore(600, |policy| {
        let world = World::new(2, policy);
        let store = store(&world);
        let probe = probe(&store);
        let mapper = {
            let store = store.clone();
            world.run(1, move |cpu| map(cpu.space(), &store, 4))
        };
        drop(probe);
        mapper.join().unwrap();
        assert_eq!(met(world.space(), 4), 0, "a breakpoint outlived its probe");
        finish(world, store, Vec::new());
    });
}

#[test]
fn a_mapping_made_while_it_ends() {
    mapped_while_it_ends();
}

#[test]
#[should_panic(expected = "a breakpoint outlived its probe")]
fn broken_probe_outlived() {
    with_flaw(Mutant::ProbeOutlived, mapped_while_it_ends);
}

/// A program that runs the code while the probe ends meets a breakpoint of the probe, or one that has gone
/// since.
fn run_while_it_ends() {
    explore(600, |policy| {
        let world = World::new(2, policy);
        let store = store(&world);
        map(world.space(), &store, 0);
        let probe = probe(&store);
        let runner = world.run(1, |cpu| {
            let space = cpu.space();
            for _ in 0..2 {
                let is_met = met(space, 0) == BREAKPOINT;
                if is_met && space.probe_at(BYTE).is_none() {
                    assert_ne!(met(space, 0), BREAKPOINT, "a breakpoint has no probe");
                }
            }
        });
        drop(probe);
        runner.join().unwrap();
        let space = world.space();
        assert_eq!((met(space, 0), space.probe_at(BYTE)), (0, None));
        assert!(!space.may_show_probes(), "the space was not checked again");
        finish(world, store, Vec::new());
    });
}

#[test]
fn a_run_while_it_ends() {
    run_while_it_ends();
}

#[test]
#[should_panic(expected = "a breakpoint has no probe")]
fn broken_probe_unlisted_first() {
    with_flaw(Mutant::ProbeUnlistedFirst, run_while_it_ends);
}

/// The next probe at the same byte is registered only after the first, with all its breakpoints, has gone.
fn registered_while_another_ends() {
    explore(600, |policy| {
        let world = World::new(2, policy);
        let store = store(&world);
        map(world.space(), &store, 0);
        let first = probe(&store);
        let ender = world.run(1, move |_| drop(first));
        let second = Probe::register(&store, BYTE, BREAKPOINT, TAG);
        ender.join().unwrap();
        match second {
            Ok(second) => {
                assert_eq!(
                    met(world.space(), 0),
                    BREAKPOINT,
                    "it was taken for another's"
                );
                shows(world.space(), 0);
                drop(second);
            }
            Err(error) => assert_eq!(error, Errno::EEXIST),
        }
        assert_eq!(met(world.space(), 0), 0);
        finish(world, store, Vec::new());
    });
}

#[test]
fn a_registration_while_another_ends() {
    registered_while_another_ends();
}

#[test]
#[should_panic(expected = "it was taken for another's")]
fn broken_probes_at_one_byte() {
    with_flaw(Mutant::ProbeUnlistedFirst, registered_while_another_ends);
}

/// After an unmap beside a registration, the space does not say for ever that it shows a breakpoint.
#[test]
fn unmapped_while_it_is_registered() {
    explore(600, |policy| {
        let world = World::new(2, policy);
        let store = store(&world);
        map(world.space(), &store, 0);
        let unmapper = world.run(1, |cpu| cpu.space().munmap(0, 2 * PAGE).unwrap());
        let probe = probe(&store);
        unmapper.join().unwrap();
        let space = world.space();
        assert_eq!(space.probe_at(BYTE), None);
        assert!(!space.may_show_probes(), "the space was not checked again");
        drop(probe);
        finish(world, store, Vec::new());
    });
}

/// A child that is forked meanwhile shows the breakpoint if and only if its parent does.
#[test]
fn forked_meanwhile() {
    explore(600, |policy| {
        let world = World::with_others(2, 1, policy);
        let store = store(&world);
        map(world.space(), &store, 0);
        let forker = world.run(1, |cpu| cpu.space().fork().unwrap());
        let probe = probe(&store);
        let first = forker.join().unwrap();
        shows(world.space(), 0);
        shows(&first, 0);
        let forker = world.run(1, |cpu| cpu.space().fork().unwrap());
        drop(probe);
        let second = forker.join().unwrap();
        for space in [world.space(), &first, &second] {
            assert_eq!(met(space, 0), 0, "a breakpoint outlived its probe");
        }
        finish(world, store, vec![first, second]);
    });
}

/// A mapping that moves meanwhile takes the breakpoint along, or gets it at the new place.
#[test]
fn moved_meanwhile() {
    explore(600, |policy| {
        let world = World::new(2, policy);
        let store = store(&world);
        map(world.space(), &store, 4);
        let how = remap_flags::MAYMOVE | remap_flags::FIXED;
        let mover = world.run(1, move |cpu| {
            let to = cpu.space().mremap(4 * PAGE, 2 * PAGE, 2 * PAGE, how, 0);
            assert_eq!(to, Ok(0));
        });
        let probe = probe(&store);
        mover.join().unwrap();
        shows(world.space(), 0);
        let mover = world.run(1, move |cpu| {
            let to = cpu.space().mremap(0, 2 * PAGE, 2 * PAGE, how, 8 * PAGE);
            assert_eq!(to, Ok(8 * PAGE));
        });
        drop(probe);
        mover.join().unwrap();
        assert_eq!(met(world.space(), 8), 0, "a breakpoint outlived its probe");
        finish(world, store, Vec::new());
    });
}

/// A check, made because of a mapping that has gone, does not miss a new mapping elsewhere.
fn comes_beside_a_check(policy: Policy) {
    let world = World::new(3, policy);
    let store = store(&world);
    let probe = probe(&store);
    map(world.space(), &store, 4);
    world.space().munmap(4 * PAGE, 2 * PAGE).unwrap();
    let mapper = {
        let store = store.clone();
        world.run(1, move |cpu| map(cpu.space(), &store, 0))
    };
    let looker = world.run(2, |cpu| {
        assert_eq!(cpu.space().probe_at(5 * PAGE), None);
    });
    mapper.join().unwrap();
    looker.join().unwrap();
    shows(world.space(), 0);
    drop(probe);
    finish(world, store, Vec::new());
}

#[test]
fn what_comes_elsewhere_is_not_forgotten() {
    explore_under(SPECULATIVE, 3000, comes_beside_a_check);
}

#[test]
#[should_panic(expected = "a breakpoint has no probe")]
fn broken_probes_forgotten() {
    with_flaw(Mutant::ProbesForgotten, || {
        explore_under(SPECULATIVE, 3000, comes_beside_a_check);
    });
}

/// Nor does a check miss a mapping that moves to where it has already looked.
#[test]
fn what_moves_elsewhere_is_not_forgotten() {
    explore_under(SPECULATIVE, 2000, |policy| {
        let world = World::new(3, policy);
        let store = store(&world);
        let probe = probe(&store);
        map(world.space(), &store, 4);
        map(world.space(), &store, 8);
        world.space().munmap(4 * PAGE, 2 * PAGE).unwrap();
        let mover = world.run(1, |cpu| {
            let how = remap_flags::MAYMOVE | remap_flags::FIXED;
            let to = cpu.space().mremap(8 * PAGE, 2 * PAGE, 2 * PAGE, how, 0);
            assert_eq!(to, Ok(0));
        });
        let looker = world.run(2, |cpu| {
            let space = cpu.space();
            (0..2).for_each(|_| assert_eq!(space.probe_at(5 * PAGE), None));
            assert!(space.may_show_probes(), "a breakpoint has no probe");
        });
        mover.join().unwrap();
        looker.join().unwrap();
        shows(world.space(), 0);
        drop(probe);
        finish(world, store, Vec::new());
    });
}

/// A mapping with probes is unmapped in two phases, and all operations go on beside the second. The space
/// checks again whether it shows breakpoints, with the right result, while pages are still being zapped.
#[test]
fn what_is_zapped_is_checked_meanwhile() {
    explore_under(SPECULATIVE, 400, |policy| {
        let world = World::with_others(2, 1, policy);
        let store = store(&world);
        world.map(8, 4, RW);
        world.cpu().store(8 * PAGE, 1).unwrap();
        let probe = probe(&store);
        map(world.space(), &store, 4);
        // So that a TLB has to be flushed.
        world.cpu().load(5 * PAGE).unwrap();
        let machine = world.space().memory().machine();
        machine.shut_gate(1);
        let zapper = world.run(1, |cpu| cpu.space().munmap(4 * PAGE, 2 * PAGE).unwrap());
        machine.await_gate();
        let space = world.space();
        assert!(space.may_show_probes());
        assert_eq!(space.probe_at(5 * PAGE), None);
        assert!(!space.may_show_probes(), "nothing shows one");
        // A mapping elsewhere shows the breakpoint immediately.
        map(space, &store, 0);
        shows(space, 0);
        space.mlockall(lock_all_flags::CURRENT).unwrap();
        space.munlockall();
        space.munmap(9 * PAGE, PAGE).unwrap();
        let child = space.fork().unwrap();
        shows(&child, 0);
        assert!(child.lookup(4 * PAGE).is_none());
        machine.open_gate();
        zapper.join().unwrap();
        shows(space, 0);
        map(space, &store, 4);
        shows(space, 4);
        drop(probe);
        assert_eq!([met(space, 0), met(space, 4), met(&child, 0)], [0; 3]);
        finish(world, store, vec![child]);
    });
}
