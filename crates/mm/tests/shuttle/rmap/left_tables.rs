//! Tables that leave whole, with `MREMAP_DONTUNMAP`, beside a truncation and a migration.
//!
//! Their old place stays mapped, so that the state of a page there says nothing about an entry of the table.
//! Neither operation keeps a claim where it would not release it. (A discard: `ops/whole_tables.rs`.)

use crate::model::{PAGE, RW, World, explore_under};
use faultless_mm::{
    Cpu, Errno, FrameSource, MemoryObject, Mover, Opened, Outcome, Policy, advice, flags,
    remap_flags,
};
use faultless_sync::{Mutant, with_flaw};

/// Under the other policies the wait for a fork or a move differs.
const POLICIES: &[Policy] = &[Policy::Speculative];
const COPY: u32 = remap_flags::MAYMOVE | remap_flags::FIXED | remap_flags::DONTUNMAP;
const PAGES: u64 = 8;
const TO: u64 = 32;

/// A truncation waits for an entry of a table that then leaves, and finds the next entries at their new place.
fn truncates_where_a_table_was(policy: Policy) {
    let world = World::new(4, policy);
    let store = MemoryObject::new(world.space().memory(), PAGES * PAGE, None, 0).unwrap();
    let opened = Opened {
        store: Ok(&store),
        offset: 0,
        file: 0,
        writable: true,
    };
    let how = flags::SHARED | flags::FIXED;
    let mapped = world.space().mmap_object(0, PAGES * PAGE, RW, how, &opened);
    assert_eq!(mapped, Ok(0));
    for page in 0..PAGES {
        world.cpu().store_file(page * PAGE, 100 + page).unwrap();
    }
    let machine = world.space().memory().machine();
    machine.shut_gate(1);
    let first = world.run(1, |cpu| {
        assert_eq!(cpu.space().madvise(0, PAGE, advice::DONTNEED), Ok(()));
    });
    machine.await_gate();
    let truncated = {
        let store = store.clone();
        world.run(2, move |_| store.truncate(0))
    };
    world.run(3, |cpu| {
        while cpu.space().lookup(TO * PAGE).is_none() {
            shuttle::thread::yield_now();
        }
        (0..30).for_each(|_| shuttle::thread::yield_now());
        cpu.space().memory().machine().open_gate();
    });
    let moved = world
        .space()
        .mremap(0, PAGES * PAGE, PAGES * PAGE, COPY, TO * PAGE);
    assert_eq!(moved, Ok(TO * PAGE));
    first.join().unwrap();
    truncated.join().unwrap().unwrap();
    for page in (0..PAGES).chain(TO..TO + PAGES) {
        assert_eq!(world.cpu().load_file(page * PAGE), Err(Outcome::Bus));
    }
    drop(store);
    world.finish();
}

#[test]
fn a_truncation_claims_nothing_of_a_table_that_left() {
    explore_under(POLICIES, 1000, truncates_where_a_table_was);
}

/// A claim stays where no operation releases it.
#[test]
#[should_panic(expected = "exceeded max_steps")]
fn broken_truncation_of_a_table_that_left() {
    with_flaw(Mutant::PlaceNotValidated, || {
        explore_under(POLICIES, 1000, truncates_where_a_table_was);
    });
}

/// Pages are migrated while their table leaves.
fn migrates_where_a_table_was(policy: Policy) {
    let world = World::new(2, policy);
    world.map(0, PAGES, RW);
    (0..PAGES).for_each(|page| world.cpu().store(page * PAGE, 100 + page).unwrap());
    let migrating = world.run(1, |cpu| {
        let memory = cpu.space().memory();
        let machine = memory.machine();
        let mut mover = Mover::new(memory).ok()?;
        for page in [1, 2, 1, 2] {
            let from = cpu.space().translate(page * PAGE);
            let from = from.or_else(|| cpu.space().translate((TO + page) * PAGE))?;
            let to = machine.allocate(Cpu(1)).ok()?;
            let moved = mover.migrate(from, to);
            machine.free(Cpu(1), if moved.is_ok() { from } else { to });
        }
        Some(())
    });
    let moved = world
        .space()
        .mremap(0, PAGES * PAGE, PAGES * PAGE, COPY, TO * PAGE);
    assert!([Ok(TO * PAGE), Err(Errno::ENOMEM)].contains(&moved));
    migrating.join().unwrap();
    let at = if moved.is_ok() { TO } else { 0 };
    for page in 0..PAGES {
        assert_eq!(world.cpu().load((at + page) * PAGE), Ok(100 + page));
        world.cpu().store((at + page) * PAGE, 1).unwrap();
    }
    world.finish();
}

#[test]
fn a_migration_claims_nothing_of_a_table_that_left() {
    explore_under(POLICIES, 3000, migrates_where_a_table_was);
}

/// The claim is looked for at the table's old place.
#[test]
#[should_panic(expected = "exceeded max_steps")]
fn broken_migration_of_a_table_that_left() {
    with_flaw(Mutant::PlaceNotValidated, || {
        explore_under(POLICIES, 3000, migrates_where_a_table_was);
    });
}
