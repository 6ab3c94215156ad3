//! Mappings of a memory object in random interleavings of whole operations. Two CPUs write, while other CPUs
//! change the mappings, fork, truncate, punch holes, and end address spaces.
//!
//! * Writes to shared memory are in the object; writes to private memory are where they were made, or have
//!   moved to.
//! * Truncated pages are nowhere, and every frame is accounted for in the end.
//!
//! (More broken variants are in `loom/rmap/truncate.rs` and `truncate_writers.rs`.)

use std::sync::Arc;

use crate::model::{Model, PAGE, RW, World, explore};
use faultless_mm::{
    Errno, Frame, Memory, MemoryObject, Opened, Outcome, PROT_READ, Pager, Policy, advice, flags,
    remap_flags,
};
use faultless_sync::{Mutant, with_flaw};

const MOVE: u32 = remap_flags::MAYMOVE | remap_flags::FIXED;
const PAGES: u64 = 4;
/// The target of moved pages, in another table.
const TO: u64 = 16;
/// The initial content of each page of a file.
const BASE: u64 = 1 << 40;

fn filled(world: &World) -> MemoryObject<Model> {
    let store = MemoryObject::new(world.space().memory(), PAGES * PAGE, None, 0).unwrap();
    for index in 0..PAGES {
        let page = store.page_to_write(index).unwrap();
        world
            .space()
            .memory()
            .machine()
            .set_word(page.frame(), BASE);
    }
    store
}

fn map(world: &World, at: u64, store: &MemoryObject<Model>, how: u32) {
    let opened = Opened {
        store: Ok(store),
        offset: 0,
        file: 0,
        writable: true,
    };
    let (at, how) = (at * PAGE, how | flags::FIXED);
    let mapped = world
        .space()
        .mmap_object(at, PAGES * PAGE, RW, how, &opened);
    assert_eq!(mapped, Ok(at));
}

fn word(store: &MemoryObject<Model>, index: u64) -> u64 {
    let page = store.page(index).unwrap().expect("the store has the page");
    store.memory().machine().word(page.frame())
}

/// The bits that a CPU has written to each page.
type Written = [u64; PAGES as usize];

/// Writes to the pages at each of `places`, on CPUs 1 and 2, each with bits of its own. Returns the written
/// bits.
fn write(world: &Arc<World>, places: &'static [u64]) -> Vec<Written> {
    let writers = [1u32, 2].map(|number| {
        world.run(number, move |cpu| {
            let mut written = vec![[0; PAGES as usize]; places.len()];
            for round in 0..2 * PAGES {
                let page = (round + u64::from(number)) % PAGES;
                let bit = 1 << (8 * u64::from(number) + round);
                for (&at, written) in places.iter().zip(&mut written) {
                    match cpu.set_bits_file((at + page) * PAGE, bit) {
                        Ok(()) => written[page as usize] |= bit,
                        Err(Outcome::Segv(_) | Outcome::Bus) => {}
                        Err(outcome) => panic!("{outcome:?}"),
                    }
                }
            }
            written
        })
    });
    let mut all = vec![[0; PAGES as usize]; places.len()];
    for written in writers.map(|writer| writer.join().unwrap()) {
        for (all, written) in all.iter_mut().zip(written) {
            all.iter_mut().zip(written).for_each(|(a, w)| *a |= w);
        }
    }
    all
}

/// Changes that a third CPU makes meanwhile to the pages from page 0 on.
const CHANGES: [fn(&crate::model::Space); 5] = [
    |space| space.munmap(PAGE, 2 * PAGE).unwrap(),
    |space| {
        space.mprotect(0, 3 * PAGE, PROT_READ).unwrap();
        space.mprotect(PAGE, 3 * PAGE, RW).unwrap();
    },
    |space| {
        let moved = space.mremap(PAGE, 2 * PAGE, 2 * PAGE, MOVE, TO * PAGE);
        assert_eq!(moved, Ok(TO * PAGE));
    },
    |space| {
        space.fork().unwrap().destroy();
    },
    |space| space.madvise(0, PAGES * PAGE, advice::DONTNEED).unwrap(),
];

#[test]
fn what_is_shared_is_in_the_store() {
    explore(400, |policy| {
        for change in CHANGES {
            let world = World::new(4, policy);
            let store = filled(&world);
            map(&world, 0, &store, flags::SHARED);
            let changing = world.run(3, move |cpu| change(cpu.space()));
            let written = write(&world, &[0]);
            changing.join().unwrap();
            for index in 0..PAGES {
                let expected = BASE | written[0][index as usize];
                assert_eq!(word(&store, index), expected, "a write is lost");
            }
            drop(store);
            world.finish();
        }
    });
}

#[test]
fn what_is_private_stays_where_it_was_written() {
    explore(400, |policy| {
        // Unmapped or discarded content is lost on purpose.
        for change in &CHANGES[1..4] {
            let world = World::new(4, policy);
            let store = filled(&world);
            map(&world, 0, &store, flags::PRIVATE);
            let changing = world.run(3, move |cpu| change(cpu.space()));
            let written = write(&world, &[0]);
            changing.join().unwrap();
            for page in 0..PAGES {
                let moved = TO + page - u64::from(page > 0);
                let places = [page, moved].map(|page| world.cpu().load_file(page * PAGE));
                let seen = places.into_iter().find_map(Result::ok).unwrap();
                let expected = BASE | written[0][page as usize];
                assert_eq!(seen, expected, "a write is lost");
                assert_eq!(word(&store, page), BASE, "a private write is in the file");
            }
            drop(store);
            world.finish();
        }
    });
}

/// A truncation beside writers of a shared and of a private mapping, a fork and a move. When it returns,
/// nothing is left behind the end.
fn truncated(policy: Policy) {
    let world = World::new(4, policy);
    let store = filled(&world);
    map(&world, 8, &store, flags::PRIVATE);
    map(&world, 0, &store, flags::SHARED);
    let truncating = {
        let store = store.clone();
        world.run(0, move |cpu| {
            store.truncate(PAGE).unwrap();
            assert_eq!(store.pages(), 1);
            for page in (1..PAGES).chain(8 + 1..8 + PAGES).chain(TO..TO + 2) {
                let left = cpu.space().translate(page * PAGE);
                assert_eq!(left, None, "a page is left that was truncated");
            }
        })
    };
    let moving = world.run(3, |cpu| {
        let space = cpu.space();
        let child = space.fork().unwrap();
        let moved = space.mremap(9 * PAGE, 2 * PAGE, 2 * PAGE, MOVE, TO * PAGE);
        assert_eq!(moved, Ok(TO * PAGE));
        child
    });
    let written = write(&world, &[0, 8]);
    truncating.join().unwrap();
    let child = moving.join().unwrap();
    for page in 1..PAGES {
        assert_eq!(
            child.translate((8 + page) * PAGE),
            None,
            "the child has one"
        );
    }
    assert_eq!(word(&store, 0), BASE | written[0][0], "a write is lost");
    assert_eq!(world.cpu().load_file(8 * PAGE), Ok(BASE | written[1][0]));
    for page in [1, TO] {
        assert_eq!(world.cpu().load_file(page * PAGE), Err(Outcome::Bus));
    }
    drop(store);
    world.finish_with(vec![child]);
}

#[test]
fn what_is_truncated_is_nowhere() {
    explore(1500, truncated);
}

/// A CPU unmaps and maps again the pages that other CPUs write, while the object is cut and grows.
fn unmapped_and_cut(policy: Policy) {
    let world = World::new(4, policy);
    let store = filled(&world);
    map(&world, 0, &store, flags::SHARED);
    map(&world, 8, &store, flags::PRIVATE);
    let cutting = {
        let store = store.clone();
        world.run(0, move |_| {
            for _ in 0..2 {
                store.truncate(PAGE).unwrap();
                store.extend(PAGES * PAGE);
                store.punch(0..2 * PAGE).unwrap();
            }
        })
    };
    let mapping = {
        let (world, store) = (world.clone(), store.clone());
        let runner = world.clone();
        runner.run(3, move |cpu| {
            for _ in 0..2 {
                cpu.space().munmap(0, 2 * PAGE).unwrap();
                map(&world, 8, &store, flags::PRIVATE);
                map(&world, 0, &store, flags::SHARED);
            }
            drop(store);
        })
    };
    let _ = write(&world, &[0, 8]);
    cutting.join().unwrap();
    mapping.join().unwrap();
    for page in 0..PAGES {
        let has = store.page(page).unwrap().map(|page| page.frame());
        let shows = world.space().translate(page * PAGE);
        assert!(shows.is_none() || shows == has, "another page is shown");
    }
    drop(store);
    world.finish();
}

#[test]
fn cut_beside_unmapping() {
    explore(1500, unmapped_and_cut);
}

/// An address space ends while a truncation walks its mappings.
fn ended_beside_a_truncation(policy: Policy) {
    let world = World::new(3, policy);
    let store = filled(&world);
    map(&world, 0, &store, flags::SHARED);
    map(&world, 8, &store, flags::PRIVATE);
    for page in 0..PAGES {
        world.cpu().store_file((8 + page) * PAGE, 1).unwrap();
    }
    let child = world.space().fork().unwrap();
    let forking = world.run(2, |cpu| cpu.space().fork().unwrap().destroy());
    let ending = world.run(1, move |_| child.destroy());
    store.truncate(0).unwrap();
    ending.join().unwrap();
    forking.join().unwrap();
    assert_eq!(store.pages(), 0);
    drop(store);
    assert_eq!(world.cpu().load_file(0), Err(Outcome::Bus));
    world.finish();
}

#[test]
fn a_space_ends_beside_a_truncation() {
    explore(1500, ended_beside_a_truncation);
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_end_of_a_walk() {
    with_flaw(Mutant::LastWakesNone, || {
        explore(1500, ended_beside_a_truncation);
    });
}

/// A slow device, which fails for the last page.
struct Device(&'static Memory<Model>);

impl Pager for Device {
    fn fill(&self, _tag: u64, index: u64, frame: Frame) -> Result<(), Errno> {
        let machine = self.0.machine();
        machine.step();
        machine.set_word(frame, BASE + index);
        machine.step();
        match index {
            3 => Err(Errno::EFAULT),
            _ => Ok(()),
        }
    }
}

/// Pages are read in while the object is cut and grows, and part of a mapping is unmapped. A load sees the
/// device's page, and never one that is not filled.
#[test]
fn pages_are_read_in_beside_a_truncation() {
    explore(1500, |policy| {
        let world = World::new(4, policy);
        let memory = world.space().memory();
        let device: &'static Device = Box::leak(Box::new(Device(memory)));
        let store = MemoryObject::new(memory, PAGES * PAGE, Some(device), 0).unwrap();
        map(&world, 0, &store, flags::SHARED);
        map(&world, 8, &store, flags::PRIVATE);
        let readers = [1u64, 2].map(|number| {
            world.run(number as u32, move |cpu| {
                for page in [0, 1, number, 2, 3] {
                    match cpu.load_file((8 * (number - 1) + page) * PAGE) {
                        Ok(word) => assert_eq!(word, BASE + page, "not filled"),
                        Err(Outcome::Bus | Outcome::Segv(_)) => {}
                        Err(outcome) => panic!("{outcome:?}"),
                    }
                }
            })
        });
        let unmapping = world.run(3, |cpu| cpu.space().munmap(8 * PAGE, 2 * PAGE).unwrap());
        store.truncate(PAGE).unwrap();
        store.extend(PAGES * PAGE);
        drop(store);
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
        unmapping.join().unwrap();
        world.finish();
    });
}
