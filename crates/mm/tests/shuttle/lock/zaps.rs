//! Operations beside a zap: only a new mapping in the zapped range waits.
//!
//! The zap is stopped in its flush. An operation that waits for it waits for ever, which shuttle reports as a
//! deadlock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::model::{FIXED, PAGE, Processor, RW, Space, World, explore, explore_under};
use faultless_mm::{
    Access, Errno, Limits, Locked, Outcome, PROT_READ, Policy, SegvCode, advice, flags,
    lock_all_flags, remap_flags,
};

/// The other policies serialise writers, as Linux does.
const POLICIES: &[Policy] = &[Policy::Speculative];
const ANYWHERE: u32 = flags::PRIVATE | flags::ANONYMOUS;

/// CPU 1 runs `zap`, and is stopped in its flush. CPU 0 runs `act`, then lets the flush go on, and runs
/// `check`.
fn beside(
    policy: Policy,
    zap: fn(&Processor<'_>),
    act: fn(&World, &mut Vec<Space>),
    check: fn(&World),
) {
    let world = World::new(2, policy);
    world.map(0, 12, RW);
    (0..12).for_each(|page| world.cpu().store(page * PAGE, 1).unwrap());
    beside_in(world, zap, act, check);
}

/// Like `beside`, in a world with mappings.
fn beside_in(
    world: Arc<World>,
    zap: fn(&Processor<'_>),
    act: fn(&World, &mut Vec<Space>),
    check: fn(&World),
) {
    let machine = world.space().memory().machine();
    machine.shut_gate(1);
    let zapper = world.run(1, move |cpu| zap(cpu));
    machine.await_gate();
    let mut children = Vec::new();
    act(&world, &mut children);
    machine.open_gate();
    zapper.join().unwrap();
    check(&world);
    world.finish_with(children);
}

fn unmap(cpu: &Processor<'_>) {
    cpu.space().munmap(2 * PAGE, 4 * PAGE).unwrap();
}

/// Operations that go on beside the zap of pages 2 to 5.
fn go_on_elsewhere(world: &World, _: &mut Vec<Space>) {
    let (cpu, space) = (world.cpu(), world.space());
    // A CPU with the page in its TLB may use it until the flush.
    let fault = space.fault(2 * PAGE, Access::Read);
    assert_eq!(fault, Outcome::Segv(SegvCode::MapErr));
    cpu.store(PAGE, 2).unwrap();
    let at = space.mmap(0, 2 * PAGE, RW, ANYWHERE).unwrap();
    cpu.store(at, 3).unwrap();
    space.mprotect(0, 2 * PAGE, PROT_READ).unwrap();
    space.mlock(0, PAGE, 0).unwrap();
    space.madvise(6 * PAGE, PAGE, advice::DONTNEED).unwrap();
    assert_eq!(cpu.load(6 * PAGE), Ok(0));
    space.munmap(at, PAGE).unwrap();
    space.mmap(7 * PAGE, PAGE, RW, FIXED).unwrap();
    assert_eq!(cpu.load(7 * PAGE), Ok(0));
    let (from, to) = (8 * PAGE, 16 * PAGE);
    let moved = space.mremap(from, PAGE, 2 * PAGE, remap_flags::MAYMOVE, to);
    assert!(moved.is_ok(), "{moved:?}");
    space.set_brk(40 * PAGE);
    assert_eq!(space.brk(42 * PAGE), 42 * PAGE);
    assert_eq!(space.brk(41 * PAGE), 41 * PAGE);
}

#[test]
fn faults_and_writers_elsewhere_go_on() {
    explore_under(POLICIES, 300, |policy| {
        beside(policy, unmap, go_on_elsewhere, |world| {
            assert_eq!(world.cpu().load(11 * PAGE), Ok(1));
        });
    });
}

/// Locked mappings and a device's mappings are zapped in the same way.
#[test]
fn special_mappings_hold_nothing_up() {
    fn act(world: &World, children: &mut Vec<Space>) {
        go_on_elsewhere(world, children);
        let child = world.space().fork().unwrap();
        assert!(child.lookup(2 * PAGE).is_none() && child.lookup(4 * PAGE).is_none());
        children.push(child);
        world.space().mlockall(lock_all_flags::CURRENT).unwrap();
        world.space().munlockall();
    }
    explore_under(POLICIES, 300, |policy| {
        let world = World::new(2, policy);
        world.map(0, 12, RW);
        let device = world.device();
        world.map_device(&device, 4, 2);
        drop(device);
        world.space().mlock(2 * PAGE, 4 * PAGE, 0).unwrap();
        (0..12).for_each(|page| world.cpu().store(page * PAGE, 1).unwrap());
        let flags = |page| world.space().lookup(page * PAGE).unwrap().flags;
        assert!(flags(2).locked == Locked::Yes && flags(5).device);
        beside_in(world, unmap, act, |world| {
            // Only the new mapping uses the device.
            world.map_device(&world.device(), 2, 2);
            assert_eq!(world.cpu().load(2 * PAGE), Ok(1));
        });
    });
}

/// Few pages are detached by a brief operation, and zapped like any others.
#[test]
fn few_hold_nothing_up() {
    explore_under(POLICIES, 300, |policy| {
        beside(
            policy,
            |cpu| cpu.space().munmap(2 * PAGE, 2 * PAGE).unwrap(),
            |world, children| {
                go_on_elsewhere(world, children);
                let child = world.space().fork().unwrap();
                assert!(child.lookup(2 * PAGE).is_none());
                assert_eq!(child.mmap(2 * PAGE, PAGE, RW, FIXED), Ok(2 * PAGE));
                children.push(child);
                world.space().mlockall(lock_all_flags::CURRENT).unwrap();
                world.space().munlockall();
            },
            |world| {
                assert_eq!(world.cpu().load(4 * PAGE), Ok(1));
                world.map(2, 1, RW);
                assert_eq!(world.cpu().load(2 * PAGE), Ok(0));
            },
        );
    });
}

#[test]
fn whole_spaces_go_on() {
    explore_under(POLICIES, 300, |policy| {
        beside(
            policy,
            unmap,
            |world, children| {
                let space = world.space();
                let child = space.fork().unwrap();
                assert!(child.lookup(2 * PAGE).is_none());
                assert_eq!(world.word_of(&child, 2), 0);
                assert_eq!(world.word_of(&child, 6), 1);
                children.push(child);
                // The child has no marks of the zap.
                let child = &children[0];
                assert_eq!(child.mmap(2 * PAGE, PAGE, RW, FIXED), Ok(2 * PAGE));
                space.mlockall(lock_all_flags::CURRENT).unwrap();
                space.munlockall();
                space.clear_soft_dirty();
                assert_eq!(world.cpu().load(6 * PAGE), Ok(1));
            },
            |world| world.map(2, 4, RW),
        );
    });
}

#[test]
fn what_overlaps_goes_on_and_finds_holes() {
    explore_under(POLICIES, 300, |policy| {
        beside(
            policy,
            unmap,
            |world, _| {
                let space = world.space();
                let none = Err(Errno::ENOMEM);
                assert_eq!(space.mprotect(2 * PAGE, PAGE, PROT_READ), none);
                assert_eq!(space.mprotect(0, 4 * PAGE, PROT_READ), none);
                assert_eq!(world.cpu().store(PAGE, 1), Err(SegvCode::AccErr));
                assert_eq!(space.mlock(2 * PAGE, PAGE, 0), none);
                assert_eq!(space.madvise(2 * PAGE, PAGE, advice::DONTNEED), none);
                assert_eq!(space.madvise(2 * PAGE, PAGE, advice::DONTFORK), none);
                assert_eq!(space.mseal(2 * PAGE, PAGE, 0), none);
                let moved = space.mremap(2 * PAGE, PAGE, 2 * PAGE, remap_flags::MAYMOVE, 0);
                assert_eq!(moved, Err(Errno::EFAULT));
                // Mappings on either side are unmapped, and can be mapped again immediately.
                assert_eq!(space.munmap(0, 2 * PAGE), Ok(()));
                assert_eq!(space.munmap(6 * PAGE, 2 * PAGE), Ok(()));
                world.map(0, 2, RW);
                world.map(6, 2, RW);
                world.cpu().store(PAGE, 9).unwrap();
                world.cpu().store(6 * PAGE, 9).unwrap();
            },
            |world| {
                assert_eq!(world.cpu().load(PAGE), Ok(9), "it was zapped by another");
                assert_eq!(
                    world.cpu().load(6 * PAGE),
                    Ok(9),
                    "it was zapped by another"
                );
                assert_eq!(world.cpu().load(2 * PAGE), Err(SegvCode::MapErr));
            },
        );
    });
}

/// The heap shrinks; a mapping is shortened.
#[test]
fn what_is_cut_off_holds_nothing_up() {
    fn act(world: &World, children: &mut Vec<Space>) {
        world.space().mprotect(0, PAGE, PROT_READ).unwrap();
        world.cpu().store(PAGE, 2).unwrap();
        children.push(world.space().fork().unwrap());
    }
    explore_under(POLICIES, 200, |policy| {
        let shorten = |cpu: &Processor<'_>| {
            let space = cpu.space();
            let shortened = space.mremap(4 * PAGE, 4 * PAGE, PAGE, 0, 0);
            assert_eq!(shortened, Ok(4 * PAGE));
        };
        beside(policy, shorten, act, |world| world.map(5, 3, RW));
        let shrink = |cpu: &Processor<'_>| {
            let space = cpu.space();
            space.set_brk(20 * PAGE);
            space.brk(24 * PAGE);
            cpu.store(22 * PAGE, 1).unwrap();
            assert_eq!(space.brk(21 * PAGE), 21 * PAGE);
        };
        beside(policy, shrink, act, |world| {
            assert_eq!(world.space().brk(23 * PAGE), 23 * PAGE);
        });
    });
}

/// Discarded pages are claimed until they are flushed, but no range is held.
#[test]
fn what_is_discarded_holds_no_range() {
    explore_under(POLICIES, 200, |policy| {
        let discard = |cpu: &Processor<'_>| {
            let discarded = cpu.space().madvise(2 * PAGE, 4 * PAGE, advice::DONTNEED);
            assert_eq!(discarded, Ok(()));
            assert_eq!(cpu.load(2 * PAGE), Ok(0));
        };
        beside(
            policy,
            discard,
            |world, _| {
                let space = world.space();
                space.mprotect(0, 2 * PAGE, PROT_READ).unwrap();
                space.munlockall();
                space.munmap(6 * PAGE, PAGE).unwrap();
                space.mmap(7 * PAGE, PAGE, RW, FIXED).unwrap();
                let move_it = remap_flags::MAYMOVE | remap_flags::FIXED;
                let moved = space.mremap(8 * PAGE, PAGE, PAGE, move_it, 16 * PAGE);
                assert_eq!(moved, Ok(16 * PAGE));
                // The flags of the discarded pages' mapping change, too.
                let named = space.madvise(2 * PAGE, 4 * PAGE, advice::DONTDUMP);
                assert_eq!(named, Ok(()));
            },
            |world| assert_eq!(world.cpu().load(3 * PAGE), Ok(0)),
        );
    });
}

/// Where a mapping replaces another, faults wait until the old pages are zapped. Operations that have all
/// ranges do not wait, and a child has the new mapping and none of the old pages.
#[test]
fn what_is_replaced_holds_no_fork_up() {
    explore_under(POLICIES, 300, |policy| {
        let replace = |cpu: &Processor<'_>| {
            cpu.space().mmap(2 * PAGE, 4 * PAGE, RW, FIXED).unwrap();
            assert_eq!(cpu.load(2 * PAGE), Ok(0));
        };
        beside(
            policy,
            replace,
            |world, children| {
                let space = world.space();
                let child = space.fork().unwrap();
                assert!(child.lookup(2 * PAGE).is_some());
                assert_eq!(world.word_of(&child, 2), 0);
                assert_eq!(world.word_of(&child, 6), 1);
                children.push(child);
                space
                    .mlockall(lock_all_flags::CURRENT | lock_all_flags::ONFAULT)
                    .unwrap();
                space.mprotect(6 * PAGE, PAGE, PROT_READ).unwrap();
                assert_eq!(space.totals().mapped, 12);
            },
            |world| {
                let locked = world.space().lookup(2 * PAGE).unwrap().flags.locked;
                assert_ne!(locked, Locked::No, "mlockall came after the mapping");
                world.space().munlockall();
                assert_eq!(world.cpu().load(5 * PAGE), Ok(0));
            },
        );
    });
}

/// A new mapping in the range waits, whichever call makes it, and shows no old page.
#[test]
fn only_something_new_waits() {
    explore_under(POLICIES, 400, |policy| {
        let world = World::new(4, policy);
        world.map(0, 12, RW);
        (0..12).for_each(|page| world.cpu().store(page * PAGE, 1).unwrap());
        let machine = world.space().memory().machine();
        machine.shut_gate(1);
        let zapper = world.run(1, |cpu| unmap(cpu));
        machine.await_gate();
        let opened = Arc::new(AtomicBool::new(false));
        let mapper = {
            let opened = opened.clone();
            world.run(2, move |cpu| {
                let at = cpu.space().mmap(PAGE, 2 * PAGE, RW, FIXED);
                assert!(opened.load(Relaxed), "something new came too early");
                assert_eq!(at, Ok(PAGE));
                assert_eq!(cpu.load(2 * PAGE), Ok(0));
                cpu.store(2 * PAGE, 5).unwrap();
            })
        };
        let mover = {
            let opened = opened.clone();
            world.run(3, move |cpu| {
                let to = remap_flags::MAYMOVE | remap_flags::FIXED;
                let at = cpu.space().mremap(8 * PAGE, PAGE, PAGE, to, 5 * PAGE);
                assert!(opened.load(Relaxed), "something moved there too early");
                assert_eq!(at, Ok(5 * PAGE));
                assert_eq!(cpu.load(5 * PAGE), Ok(1));
            })
        };
        // The waiting operations keep no other operation out.
        world.space().mprotect(0, PAGE, PROT_READ).unwrap();
        let child = world.space().fork().unwrap();
        opened.store(true, Relaxed);
        machine.open_gate();
        [zapper, mapper, mover]
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(world.cpu().load(2 * PAGE), Ok(5));
        assert_eq!(world.cpu().load(5 * PAGE), Ok(1));
        assert_eq!(world.cpu().load(4 * PAGE), Err(SegvCode::MapErr));
        world.finish_with(vec![child]);
    });
}

/// A stack grows over a range that is being zapped, after the zap.
#[test]
fn a_stack_waits_for_what_is_in_its_way() {
    explore_under(POLICIES, 300, |policy| {
        let world = World::new(3, policy);
        world.map(0, 6, RW);
        (0..6).for_each(|page| world.cpu().store(page * PAGE, 1).unwrap());
        let stack = FIXED | flags::GROWSDOWN;
        world.space().mmap(6 * PAGE, PAGE, RW, stack).unwrap();
        let machine = world.space().memory().machine();
        machine.shut_gate(1);
        let zapper = world.run(1, |cpu| unmap(cpu));
        machine.await_gate();
        let grower = world.run(2, |cpu| {
            assert_eq!(cpu.load(5 * PAGE), Ok(0));
            cpu.store(4 * PAGE, 3).unwrap();
        });
        world.cpu().store(6 * PAGE, 1).unwrap();
        machine.open_gate();
        zapper.join().unwrap();
        grower.join().unwrap();
        assert_eq!(world.cpu().load(4 * PAGE), Ok(3));
        world.finish();
    });
}

/// An access is refused immediately where no stack could grow to, although a stack is the next mapping above.
#[test]
fn too_far_from_a_stack_no_fault_waits() {
    explore_under(POLICIES, 300, |policy| {
        let world = World::new(3, policy);
        world.map(0, 6, RW);
        (0..6).for_each(|page| world.cpu().store(page * PAGE, 1).unwrap());
        let stack = FIXED | flags::GROWSDOWN;
        world.space().mmap(20 * PAGE, PAGE, RW, stack).unwrap();
        world.space().munmap(0, 2 * PAGE).unwrap();
        world.space().set_limits(&Limits {
            stack: 15 * PAGE,
            ..Limits::NONE
        });
        let machine = world.space().memory().machine();
        machine.shut_gate(1);
        let zapper = world.run(1, |cpu| cpu.space().munmap(2 * PAGE, 4 * PAGE).unwrap());
        machine.await_gate();
        // Not CPU 0, because its TLB is still to be flushed.
        let late = world.run(2, |cpu| [1, 4, 5].map(|page| cpu.load(page * PAGE)));
        assert_eq!(late.join().unwrap(), [Err(SegvCode::MapErr); 3]);
        machine.open_gate();
        zapper.join().unwrap();
        assert_eq!(world.cpu().load(6 * PAGE), Ok(0), "as long as it may be");
        assert_eq!(world.cpu().load(5 * PAGE), Err(SegvCode::MapErr));
        world.finish();
    });
}

/// If the only free range is still being zapped, mmap waits and gets that range.
#[test]
fn room_that_is_being_freed_is_room() {
    explore_under(POLICIES, 300, |policy| {
        let world = World::new(3, policy);
        let last = world.space().layout().end / PAGE;
        world.map(0, last, RW);
        world.cpu().store(2 * PAGE, 1).unwrap();
        let machine = world.space().memory().machine();
        machine.shut_gate(1);
        let zapper = world.run(1, |cpu| unmap(cpu));
        machine.await_gate();
        let mapper = world.run(2, |cpu| {
            let at = cpu.space().mmap(0, 4 * PAGE, RW, ANYWHERE);
            assert_eq!(at, Ok(2 * PAGE));
            assert_eq!(cpu.load(2 * PAGE), Ok(0));
        });
        world.cpu().store(PAGE, 1).unwrap();
        machine.open_gate();
        zapper.join().unwrap();
        mapper.join().unwrap();
        world.finish();
    });
}

/// A `munmap` of pages that another `munmap` is still zapping: when it returns, the pages are not usable.
#[test]
fn a_second_munmap_is_final() {
    explore(1000, |policy| {
        let world = World::new(2, policy);
        world.map(0, 8, RW);
        (0..8).for_each(|page| world.cpu().store(page * PAGE, 1).unwrap());
        let zapper = world.run(1, |cpu| cpu.space().munmap(2 * PAGE, 2 * PAGE));
        world.space().munmap(2 * PAGE, 3 * PAGE).unwrap();
        let late = world.cpu().store(2 * PAGE, 7);
        assert_eq!(late, Err(SegvCode::MapErr), "a page outlived the writer");
        zapper.join().unwrap().unwrap();
        world.finish();
    });
}

/// A stack may grow whatever a move beside it does: there is room both before the move and afterwards.
#[test]
fn a_stack_grows_beside_a_move() {
    explore(1000, |policy| {
        let world = World::new(2, policy);
        world.map(20, 1, 0);
        let stack = FIXED | flags::GROWSDOWN;
        world.space().mmap(8 * PAGE, PAGE, RW, stack).unwrap();
        let grower = world.run(1, |cpu| cpu.store(6 * PAGE, 3));
        let to = remap_flags::MAYMOVE | remap_flags::FIXED;
        let moved = world.space().mremap(20 * PAGE, PAGE, PAGE, to, 5 * PAGE);
        assert_eq!(moved, Ok(5 * PAGE));
        assert_eq!(grower.join().unwrap(), Ok(()), "a stack could not grow");
        world.finish();
    });
}

/// Once a large enough hole was seen, mmap finds room.
#[test]
fn a_hole_that_was_seen_is_room() {
    explore(1000, |policy| {
        let world = World::new(2, policy);
        let last = world.space().layout().end / PAGE;
        world.map(0, last, RW);
        world.cpu().store(2 * PAGE, 1).unwrap();
        let zapper = world.run(1, |cpu| cpu.space().munmap(2 * PAGE, 4 * PAGE));
        let space = world.space();
        if space.lookup(2 * PAGE).is_none() {
            let at = space.mmap(0, 4 * PAGE, RW, ANYWHERE);
            assert_eq!(at, Ok(2 * PAGE), "a hole was seen");
        }
        zapper.join().unwrap().unwrap();
        world.finish();
    });
}

/// A stack grows into a range that is being unmapped, or the fault still finds the old mapping.
#[test]
fn a_stack_grows_over_what_is_unmapped() {
    explore(1000, |policy| {
        let world = World::new(2, policy);
        world.map(0, 6, RW);
        (0..6).for_each(|page| world.cpu().store(page * PAGE, 1).unwrap());
        let stack = FIXED | flags::GROWSDOWN;
        world.space().mmap(6 * PAGE, PAGE, RW, stack).unwrap();
        let grower = world.run(1, |cpu| cpu.space().fault(5 * PAGE, Access::Write));
        world.space().munmap(2 * PAGE, 4 * PAGE).unwrap();
        assert_eq!(grower.join().unwrap(), Outcome::Resolved);
        world.finish();
    });
}

/// Neighbours are replaced, within a mapping that equals both, while everything is locked and unlocked.
#[test]
fn neighbours_are_replaced_beside_mlockall() {
    explore_under(POLICIES, 2000, |policy| {
        let world = World::new(3, policy);
        world.map(0, 24, RW);
        (8..16).for_each(|page| world.cpu().store(page * PAGE, 1).unwrap());
        let replacers = [1, 2].map(|number| {
            world.run(number, move |cpu| {
                let at = (4 + 4 * u64::from(number)) * PAGE;
                assert_eq!(cpu.space().mmap(at, 4 * PAGE, RW, FIXED), Ok(at));
                assert_eq!(cpu.load(at), Ok(0), "an old page");
            })
        });
        let how = lock_all_flags::CURRENT | lock_all_flags::ONFAULT;
        world.space().mlockall(how).unwrap();
        world.space().munlockall();
        replacers.into_iter().for_each(|t| t.join().unwrap());
        (8..16).for_each(|page| assert_eq!(world.cpu().load(page * PAGE), Ok(0)));
        world.finish();
    });
}
