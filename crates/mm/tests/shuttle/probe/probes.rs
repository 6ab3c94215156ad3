//! Probes beside everything that changes mappings: whoever has one registered finds its breakpoint
//! wherever it belongs, whoever has ended it finds none, and a space that shows one says so.

use std::sync::Arc;

use crate::model::{Model, PAGE, RW, Space, World, explore, explore_under};
use faultless_mm::{
    Errno, MemoryObject, Opened, PROT_EXEC, PROT_READ, PhysicalMemory, Policy, Probe, flags,
    lock_all_flags, remap_flags,
};
use faultless_sync::{Mutant, with_flaw};

const RX: u32 = PROT_READ | PROT_EXEC;
const BREAKPOINT: u8 = 0xcc;
/// In the store's second page.
const BYTE: u64 = PAGE + 3;
const TAG: u64 = 5;
const SPECULATIVE: &[Policy] = &[Policy::Speculative];

/// Two pages of zeroes.
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

/// What is met in a mapping at page `first`: the file's byte where no page is.
fn met(space: &Space, first: u64) -> u8 {
    let frame = space.translate((first + 1) * PAGE);
    frame.map_or(0, |frame| {
        let start = space.memory().machine().pointer(frame).as_ptr();
        // SAFETY: inside the frame, which stays what it is: nobody else is at work.
        unsafe { start.add((BYTE % PAGE) as usize).read() }
    })
}

/// A space shows the breakpoint in a mapping, and knows that it does.
fn shows(space: &Space, first: u64) {
    assert_eq!(met(space, first), BREAKPOINT, "a breakpoint is missing");
    let at = first * PAGE + BYTE;
    assert_eq!(space.probe_at(at), Some(TAG), "a breakpoint is nobody's");
}

fn finish(world: Arc<World>, store: MemoryObject<Model>, children: Vec<Space>) {
    drop(store);
    world.finish_with(children);
}

/// Two mappings, one of which comes while the probe does.
#[test]
fn who_maps_while_it_is_registered() {
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

/// A mapping that comes while the probe goes shows none in the end.
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
fn who_maps_while_it_ends() {
    mapped_while_it_ends();
}

#[test]
#[should_panic(expected = "a breakpoint outlived its probe")]
fn broken_probe_outlived() {
    with_flaw(Mutant::ProbeOutlived, mapped_while_it_ends);
}

/// Who runs it while the probe goes meets a breakpoint that is the probe's, or that has gone since.
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
                    assert_ne!(met(space, 0), BREAKPOINT, "a breakpoint is nobody's");
                }
            }
        });
        drop(probe);
        runner.join().unwrap();
        let space = world.space();
        assert_eq!((met(space, 0), space.probe_at(BYTE)), (0, None));
        assert!(!space.may_show_probes(), "nobody looks again");
        finish(world, store, Vec::new());
    });
}

#[test]
fn who_runs_it_while_it_ends() {
    run_while_it_ends();
}

#[test]
#[should_panic(expected = "a breakpoint is nobody's")]
fn broken_probe_unlisted_first() {
    with_flaw(Mutant::ProbeUnlistedFirst, run_while_it_ends);
}

/// The next probe at the byte comes when the first has gone, with all that was its.
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
fn who_registers_while_another_ends() {
    registered_while_another_ends();
}

#[test]
#[should_panic(expected = "it was taken for another's")]
fn broken_probes_at_one_byte() {
    with_flaw(Mutant::ProbeUnlistedFirst, registered_while_another_ends);
}

/// What goes while a probe comes leaves no space that says for ever that it shows one.
#[test]
fn who_unmaps_while_it_is_registered() {
    explore(600, |policy| {
        let world = World::new(2, policy);
        let store = store(&world);
        map(world.space(), &store, 0);
        let unmapper = world.run(1, |cpu| cpu.space().munmap(0, 2 * PAGE).unwrap());
        let probe = probe(&store);
        unmapper.join().unwrap();
        let space = world.space();
        assert_eq!(space.probe_at(BYTE), None);
        assert!(!space.may_show_probes(), "nobody looks again");
        drop(probe);
        finish(world, store, Vec::new());
    });
}

/// A child that comes meanwhile has it, or has it not, as its parent.
#[test]
fn who_forks_meanwhile() {
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

/// What moves meanwhile takes it along, or gets it there.
#[test]
fn who_moves_meanwhile() {
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

/// What comes elsewhere is not forgotten by who looks because of what has gone.
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
#[should_panic(expected = "a breakpoint is nobody's")]
fn broken_probes_forgotten() {
    with_flaw(Mutant::ProbesForgotten, || {
        explore_under(SPECULATIVE, 3000, comes_beside_a_check);
    });
}

/// Nor is what moves to where they have looked already.
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
            assert!(space.may_show_probes(), "a breakpoint is nobody's");
        });
        mover.join().unwrap();
        looker.join().unwrap();
        shows(world.space(), 0);
        drop(probe);
        finish(world, store, Vec::new());
    });
}

/// A mapping with probes is unmapped in two phases: beside the second everybody goes on, and the
/// answer is checked again, and right, while pages are still being taken away.
#[test]
fn what_is_zapped_is_checked_meanwhile() {
    explore_under(SPECULATIVE, 400, |policy| {
        let world = World::with_others(2, 1, policy);
        let store = store(&world);
        world.map(8, 4, RW);
        world.cpu().store(8 * PAGE, 1).unwrap();
        let probe = probe(&store);
        map(world.space(), &store, 4);
        // So that there is somebody to flush.
        world.cpu().load(5 * PAGE).unwrap();
        let machine = world.space().memory().machine();
        machine.shut_gate(1);
        let zapper = world.run(1, |cpu| cpu.space().munmap(4 * PAGE, 2 * PAGE).unwrap());
        machine.await_gate();
        let space = world.space();
        assert!(space.may_show_probes());
        assert_eq!(space.probe_at(5 * PAGE), None);
        assert!(!space.may_show_probes(), "nothing shows one");
        // Elsewhere there is one at once.
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
