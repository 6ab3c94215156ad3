//! A device is revoked beside all operations on its mappings. After the revocation no CPU reaches the device,
//! including a CPU that was unmapping it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::model::{FIXED, Model, PAGE, Processor, RW, Space, World, explore, explore_under};
use faultless_mm::{Caching, Device, Errno, Frame, Outcome, PROT_READ, Pager, Policy, remap_flags};
use faultless_sync::{Mutant, with_flaw};

/// A world with a device mapped at pages 2 to 5, two of which are touched.
fn mapped(policy: Policy, others: u32) -> (Arc<World>, Device<Model>) {
    let world = World::with_others(2, others, policy);
    let device = world.device();
    world.map_device(&device, 2, 4);
    world.cpu().store(2 * PAGE, 1).unwrap();
    world.cpu().store(4 * PAGE, 1).unwrap();
    (world, device)
}

fn is_unreached(world: &World) {
    let machine = world.space().memory().machine();
    assert!(
        !machine.is_device_cached(),
        "a device is reached that was revoked"
    );
}

/// Runs `act` on CPU 1 beside a revocation.
fn revoked(policy: Policy, act: fn(&Processor<'_>)) {
    let (world, device) = mapped(policy, 0);
    let other = world.run(1, move |cpu| act(cpu));
    device.revoke();
    is_unreached(&world);
    other.join().unwrap();
    is_unreached(&world);
    for page in 0..16 {
        let seen = world.cpu().load_file(page * PAGE);
        let is_device = world.space().lookup(page * PAGE);
        if is_device.is_some_and(|of| of.flags.device) {
            assert_eq!(seen, Err(Outcome::Bus), "page {page}");
        }
    }
    device.restore();
    drop(device);
    world.finish();
}

fn touch(cpu: &Processor<'_>) {
    let seen = cpu.load_file(3 * PAGE);
    assert!(matches!(seen, Ok(_) | Err(Outcome::Bus)), "{seen:?}");
    let stored = cpu.store_file(4 * PAGE, 2);
    assert!(matches!(stored, Ok(()) | Err(Outcome::Bus)), "{stored:?}");
}

fn unmap(cpu: &Processor<'_>) {
    cpu.space().munmap(2 * PAGE, 3 * PAGE).unwrap();
}

fn unmap_all(cpu: &Processor<'_>) {
    cpu.space().munmap(0, 8 * PAGE).unwrap();
}

fn replace(cpu: &Processor<'_>) {
    cpu.space().mmap(2 * PAGE, 3 * PAGE, RW, FIXED).unwrap();
    assert_eq!(cpu.load(2 * PAGE), Ok(0));
}

fn move_away(cpu: &Processor<'_>) {
    let how = remap_flags::MAYMOVE | remap_flags::FIXED;
    let moved = cpu
        .space()
        .mremap(2 * PAGE, 4 * PAGE, 3 * PAGE, how, 9 * PAGE);
    assert_eq!(moved, Ok(9 * PAGE));
    let _ = cpu.load_file(9 * PAGE);
}

fn move_down(cpu: &Processor<'_>) {
    let how = remap_flags::MAYMOVE | remap_flags::FIXED;
    let moved = cpu.space().mremap(4 * PAGE, 2 * PAGE, 2 * PAGE, how, 0);
    assert_eq!(moved, Ok(0));
}

fn protect(cpu: &Processor<'_>) {
    cpu.space().mprotect(2 * PAGE, 2 * PAGE, PROT_READ).unwrap();
    let _ = cpu.load_file(2 * PAGE);
    cpu.space().mprotect(2 * PAGE, 2 * PAGE, RW).unwrap();
    let _ = cpu.store_file(2 * PAGE, 3);
}

#[test]
fn whatever_is_done_beside_it() {
    explore(400, |policy| {
        for act in [
            touch, unmap, unmap_all, replace, move_away, move_down, protect,
        ] {
            revoked(policy, act);
        }
    });
}

/// A child that is forked beside the revocation does not reach the device either.
#[test]
fn a_child_that_comes_beside_it() {
    explore(600, |policy| {
        let (world, device) = mapped(policy, 1);
        let forker = world.run(1, |cpu| cpu.space().fork().unwrap());
        device.revoke();
        is_unreached(&world);
        let child: Arc<Space> = Arc::new(forker.join().unwrap());
        let seen = world.run_in(&child, 2, |cpu| cpu.load_file(2 * PAGE));
        assert_eq!(seen.join().unwrap(), Err(Outcome::Bus));
        is_unreached(&world);
        let Ok(child) = Arc::try_unwrap(child) else {
            panic!("a thread still runs");
        };
        drop(device);
        world.finish_with(vec![child]);
    });
}

/// Two concurrent revocations, beside a new mapping.
#[test]
fn revoked_twice() {
    explore(400, |policy| {
        let (world, device) = mapped(policy, 0);
        let other = {
            let device = device.clone();
            world.run(1, move |cpu| {
                device.revoke();
                assert_eq!(cpu.load_file(4 * PAGE), Err(Outcome::Bus));
            })
        };
        world.space().munmap(2 * PAGE, PAGE).unwrap();
        world.map_device(&device, 2, 1);
        device.revoke();
        is_unreached(&world);
        other.join().unwrap();
        drop(device);
        world.finish();
    });
}

/// The revocation waits for a pending unmap; no other operation waits for that.
fn waits_for_zap(policy: Policy) {
    let (world, device) = mapped(policy, 1);
    let machine = world.space().memory().machine();
    world
        .run(1, |cpu| cpu.load(4 * PAGE))
        .join()
        .unwrap()
        .unwrap();
    machine.shut_gate(1);
    let zapper = world.run(1, unmap);
    machine.await_gate();
    let opened = Arc::new(AtomicBool::new(false));
    let revoker = {
        let (opened, device) = (opened.clone(), device.clone());
        let world = world.clone();
        thread_on(2, move || {
            device.revoke();
            assert!(opened.load(Relaxed), "a device is reached that was revoked");
            is_unreached(&world);
        })
    };
    world.map(9, 2, RW);
    world.cpu().store(9 * PAGE, 1).unwrap();
    let child = world.space().fork().unwrap();
    world.space().munmap(9 * PAGE, PAGE).unwrap();
    opened.store(true, Relaxed);
    machine.open_gate();
    zapper.join().unwrap();
    revoker.join().unwrap();
    drop(device);
    world.finish_with(vec![child]);
}

/// Runs `work` in a thread on a CPU that runs no space.
fn thread_on(cpu: u32, work: impl FnOnce() + Send + 'static) -> shuttle::thread::JoinHandle<()> {
    shuttle::thread::spawn(move || {
        crate::model::set_cpu(cpu);
        work();
    })
}

#[test]
fn what_is_being_unmapped_is_waited_for() {
    explore_under(&[Policy::Speculative], 400, waits_for_zap);
}

#[test]
#[should_panic(expected = "a device is reached that was revoked")]
fn broken_departures_not_awaited() {
    with_flaw(Mutant::DeparturesNotAwaited, || {
        explore_under(&[Policy::Speculative], 400, waits_for_zap);
    });
}

/// Repeated revocations of another device do not shorten a revocation's wait.
#[test]
fn others_revoke_meanwhile() {
    explore_under(&[Policy::Speculative], 1500, |policy| {
        let (world, device) = mapped(policy, 2);
        let other = {
            let memory = world.space().memory();
            let frames = memory.machine().device_frames();
            let frames = frames.start + 1..frames.end;
            Device::new(memory, frames, Caching::Uncached, None, 0).unwrap()
        };
        let zapper = world.run(1, unmap);
        let others = thread_on(2, move || (0..2).for_each(|_| other.revoke()));
        let revoker = {
            let (world, device) = (world.clone(), device.clone());
            thread_on(3, move || {
                device.revoke();
                is_unreached(&world);
            })
        };
        zapper.join().unwrap();
        others.join().unwrap();
        revoker.join().unwrap();
        drop(device);
        world.finish();
    });
}

/// A pager that is told when its device is gone.
struct Told;

/// One for each test, because tests run concurrently.
static IS_GONE: [AtomicBool; 4] = [const { AtomicBool::new(false) }; 4];

impl Pager for Told {
    fn fill(&self, _: u64, _: u64, _: Frame) -> Result<(), Errno> {
        unreachable!("a device is not filled")
    }

    fn gone(&self, test: u64) {
        IS_GONE[test as usize].store(true, Relaxed);
    }
}

/// A device is gone once its last mapping has been flushed, not before. `acts` run on CPUs 1 and 2 and unmap
/// pages 2 to 5.
fn gone_with(test: u64, acts: [fn(&Processor<'_>); 2]) {
    let is_gone = &IS_GONE[test as usize];
    let world = World::new(3, Policy::Speculative);
    is_gone.store(false, Relaxed);
    let memory = world.space().memory();
    let frames = memory.machine().device_frames();
    let device = Device::new(memory, frames, Caching::Uncached, Some(&Told), test).unwrap();
    world.map_device(&device, 2, 4);
    world.cpu().store(2 * PAGE, 1).unwrap();
    world.cpu().store(4 * PAGE, 1).unwrap();
    drop(device);
    let zappers = [1, 2].map(|cpu| world.run(cpu, move |own| acts[cpu as usize - 1](own)));
    for _ in 0..6 {
        memory.expedite();
        if is_gone.load(Relaxed) {
            is_unreached(&world);
        }
    }
    zappers
        .into_iter()
        .for_each(|zapper| zapper.join().unwrap());
    (0..4).for_each(|_| memory.expedite());
    assert!(is_gone.load(Relaxed));
    world.finish();
}

fn unmap_some(cpu: &Processor<'_>, first: u64, count: u64) {
    cpu.space().munmap(first * PAGE, count * PAGE).unwrap();
}

fn unmap_first(cpu: &Processor<'_>) {
    unmap_some(cpu, 2, 2);
}

fn unmap_second(cpu: &Processor<'_>) {
    unmap_some(cpu, 4, 2);
}

fn replace_second(cpu: &Processor<'_>) {
    cpu.space().mmap(4 * PAGE, 2 * PAGE, RW, FIXED).unwrap();
}

fn move_second(cpu: &Processor<'_>) {
    let how = remap_flags::MAYMOVE | remap_flags::FIXED;
    let moved = cpu
        .space()
        .mremap(4 * PAGE, 2 * PAGE, 2 * PAGE, how, 9 * PAGE);
    assert_eq!(moved, Ok(9 * PAGE));
    unmap_some(cpu, 9, 2);
}

fn protect_second(cpu: &Processor<'_>) {
    cpu.space().mprotect(4 * PAGE, 2 * PAGE, PROT_READ).unwrap();
    unmap_second(cpu);
}

#[test]
fn it_is_gone_when_nothing_reaches_it() {
    explore_under(&[Policy::Speculative], 1500, |_| {
        gone_with(0, [unmap_all, |_| ()]);
    });
}

/// The writer that detaches the last mapping need not be the last to flush.
#[test]
fn it_is_gone_when_all_have_flushed() {
    explore_under(&[Policy::Speculative], 600, |_| {
        for second in [unmap_second, replace_second, move_second, protect_second] {
            gone_with(1, [unmap_first, second]);
        }
        gone_with(
            1,
            [|cpu| unmap_some(cpu, 2, 1), |cpu| unmap_some(cpu, 3, 3)],
        );
        // One CPU unmaps its half in two steps.
        gone_with(
            1,
            [unmap_first, |cpu| {
                unmap_some(cpu, 5, 1);
                unmap_some(cpu, 4, 1);
            }],
        );
    });
}

#[test]
#[should_panic(expected = "a device is reached that was revoked")]
fn broken_gone_with_first_flush() {
    with_flaw(Mutant::DeviceGoneWithFirstFlush, || {
        explore_under(&[Policy::Speculative], 3000, |_| {
            gone_with(2, [unmap_first, unmap_second]);
        });
    });
}

/// A device that two spaces map.
#[test]
fn it_is_gone_when_both_spaces_have_flushed() {
    explore_under(&[Policy::Speculative], 1000, |_| {
        let is_gone = &IS_GONE[3];
        let world = World::with_others(2, 1, Policy::Speculative);
        is_gone.store(false, Relaxed);
        let memory = world.space().memory();
        let frames = memory.machine().device_frames();
        let device = Device::new(memory, frames, Caching::Uncached, Some(&Told), 3).unwrap();
        world.map_device(&device, 2, 4);
        world.cpu().store(2 * PAGE, 1).unwrap();
        drop(device);
        let child: Arc<Space> = Arc::new(world.space().fork().unwrap());
        let one = world.run(1, |cpu| unmap_all(cpu));
        let other = world.run_in(&child, 2, |cpu| {
            let _ = cpu.load_file(4 * PAGE);
            unmap_first(cpu);
            unmap_second(cpu);
        });
        for _ in 0..4 {
            memory.expedite();
            if is_gone.load(Relaxed) {
                is_unreached(&world);
            }
        }
        one.join().unwrap();
        other.join().unwrap();
        (0..4).for_each(|_| memory.expedite());
        assert!(is_gone.load(Relaxed));
        let Ok(child) = Arc::try_unwrap(child) else {
            panic!("a thread still runs");
        };
        world.finish_with(vec![child]);
    });
}
