//! Brief operations, in random interleavings: few pages are unmapped or replaced, beside another CPU that
//! holds their range and more, or uses the pages.

use crate::model::{FIXED, PAGE, RW, World, explore_under};
use faultless_mm::{Errno, PROT_READ, Policy, remap_flags};
use faultless_sync::{Mutant, with_flaw};

/// Under the other policies no operation is brief.
const POLICIES: &[Policy] = &[Policy::Speculative];

/// Few pages are unmapped while another CPU, which holds their range and more, changes the mappings.
fn few_beside_a_change() {
    explore_under(POLICIES, 1000, |policy| {
        let world = World::new(2, policy);
        world.map(0, 4, RW);
        (0..4).for_each(|page| world.cpu().store(page * PAGE, 1).unwrap());
        let other = world.run(1, |cpu| {
            let changed = cpu.space().mprotect(0, 4 * PAGE, PROT_READ);
            assert!(matches!(changed, Ok(()) | Err(Errno::ENOMEM)));
        });
        world.space().munmap(PAGE, 2 * PAGE).unwrap();
        other.join().unwrap();
        assert!(world.space().lookup(PAGE).is_none() && world.space().lookup(2 * PAGE).is_none());
        assert_eq!(world.cpu().load(3 * PAGE), Ok(1));
        world.finish();
    });
}

#[test]
fn few_go_beside_a_change() {
    few_beside_a_change();
}

#[test]
#[should_panic]
fn broken_few_go_beside_a_holder() {
    with_flaw(Mutant::AtOnceBesideHolder, few_beside_a_change);
}

/// Few pages are replaced while another CPU moves them and more.
fn few_replaced_beside_a_move() {
    explore_under(POLICIES, 1000, |policy| {
        let world = World::new(2, policy);
        world.map(0, 4, RW);
        (0..4).for_each(|page| world.cpu().store(page * PAGE, 1).unwrap());
        let other = world.run(1, |cpu| {
            let (size, to) = (4 * PAGE, 16 * PAGE);
            let how = remap_flags::MAYMOVE | remap_flags::FIXED;
            // `mremap` moves neither of two mappings.
            let moved = cpu.space().mremap(0, size, size, how, to);
            assert!(moved == Ok(to) || moved == Err(Errno::EFAULT), "{moved:?}");
            moved.is_ok()
        });
        let only_read = PROT_READ;
        let space = world.space();
        assert_eq!(space.mmap(PAGE, 2 * PAGE, only_read, FIXED), Ok(PAGE));
        assert_eq!(
            world.cpu().load(PAGE),
            Ok(0),
            "an old page in a new mapping"
        );
        let is_moved = other.join().unwrap();
        let kept = world.cpu().load(if is_moved { 16 * PAGE } else { 0 });
        assert_eq!(kept, Ok(1));
        assert_eq!(world.cpu().load(PAGE), Ok(0), "what was mapped is gone");
        world.finish();
    });
}

#[test]
fn few_are_replaced_beside_a_move() {
    few_replaced_beside_a_move();
}

#[test]
#[should_panic]
fn broken_few_are_replaced_beside_a_holder() {
    with_flaw(Mutant::AtOnceBesideHolder, few_replaced_beside_a_move);
}

/// Pages that one CPU has used are zapped under the edit lock, while another CPU begins to use them. A new
/// mapping replaces them, and a page that was left.
fn taken_beside_a_user() {
    explore_under(POLICIES, 1000, |policy| {
        let world = World::new(2, policy);
        world.map(0, 3, RW);
        (0..3).for_each(|page| world.cpu().store(page * PAGE, 1).unwrap());
        let other = world.run(1, |cpu| {
            for page in [1, 0, 1] {
                let seen = cpu.load(page * PAGE);
                assert!(matches!(seen, Ok(0 | 1 | 2) | Err(_)), "{seen:?}");
            }
        });
        let space = world.space();
        space.munmap(PAGE, PAGE).unwrap();
        assert!(
            world.cpu().load(PAGE).is_err(),
            "what was unmapped is there"
        );
        space.mmap(0, 2 * PAGE, RW, FIXED).unwrap();
        assert_eq!(world.cpu().load(0), Ok(0), "an old page in a new mapping");
        world.cpu().store(PAGE, 2).unwrap();
        other.join().unwrap();
        assert_eq!(world.cpu().load(2 * PAGE), Ok(1));
        world.finish();
    });
}

#[test]
fn few_are_taken_beside_a_user() {
    taken_beside_a_user();
}

#[test]
#[should_panic]
fn broken_taken_from_under_another() {
    with_flaw(Mutant::FlushedHereAlone, taken_beside_a_user);
}
