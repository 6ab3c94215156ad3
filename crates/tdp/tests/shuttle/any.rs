//! Random operations of a guest, its slots and its log, beside random operations on the memory of its host.
//!
//! * The machine checks that no vCPU has cached a frame that is freed, and `World::finish` the host's invariants; at the end the
//!   guest's entries show nothing that its host does not ([`Guest::verify`](faultless_tdp::Guest::verify)).
//! * A vCPU that has stored a word to a logged page finds the page in the log, unless it was cleared since.

use std::sync::Arc;

use faultless_mm::{
    AgingMode, Cpu, FrameSource, MemoryObject, Mover, Opened, PROT_READ, Policy, advice, flags,
    remap_flags,
};
use faultless_tdp::{Options, Slot, SlotFlags};
use shuttle::rand::{Rng, thread_rng};

use crate::model::{FIXED, Model, PAGE, Processor, RW, World, explore_under};
use crate::vcpu::{ModelGuest, Vcpu, finish, guest_with};

/// Pages of the host that slots show.
const PAGES: u64 = 8;
/// Guest pages.
const GUEST_PAGES: u64 = 16;

struct Scene {
    guest: Arc<ModelGuest>,
    store: MemoryObject<Model>,
}

/// Migrates the page at an address to another frame.
fn migrate(cpu: &Processor<'_>, at: u64) {
    let (space, number) = (cpu.space(), Cpu(cpu.number()));
    let machine = space.memory().machine();
    let Some(from) = space.translate(at) else {
        return;
    };
    let Ok(to) = machine.allocate(number) else {
        return;
    };
    let moved = Mover::new(space.memory()).is_ok_and(|mut mover| mover.migrate(from, to).is_ok());
    machine.free(number, if moved { from } else { to });
}

fn of_the_host(cpu: &Processor<'_>, scene: &Scene) {
    let space = cpu.space();
    let mut rng = thread_rng();
    let (page, pages, other) = (
        rng.gen_range(0..PAGES),
        rng.gen_range(1..5),
        rng.gen_range(0..PAGES),
    );
    let (at, length, to, one) = (page * PAGE, pages * PAGE, other * PAGE, rng.r#gen::<bool>());
    // Errors are effects of the other threads.
    let _ = match rng.gen_range(0..18) {
        0 => space.munmap(at, length),
        1 | 2 => space.mmap(at, length, RW, FIXED).map(drop),
        3 => space.mprotect(at, length, if one { RW } else { PROT_READ }),
        4 => {
            let how = remap_flags::MAYMOVE | remap_flags::FIXED;
            space.mremap(at, length, length, how, to).map(drop)
        }
        5 | 6 => space.fork().map(|child| {
            if one {
                let _ = child.madvise(at, length, advice::PAGEOUT);
            }
            child.destroy();
        }),
        7 => space.madvise(at, length, advice::DONTNEED),
        8 | 9 => space.madvise(at, length, advice::PAGEOUT),
        10 => space.madvise(at, length, advice::FREE),
        11 if one => space.madvise(at, length, advice::GUARD_INSTALL),
        11 => space.madvise(at, length, advice::COLD),
        12 if one => {
            space.clear_soft_dirty();
            Ok(())
        }
        12 => {
            space.clear_accessed(AgingMode::All);
            Ok(())
        }
        13 => {
            space.memory().reclaim_some();
            Ok(())
        }
        14 => {
            migrate(cpu, at);
            Ok(())
        }
        15 => {
            let opened = Opened {
                store: Ok(&scene.store),
                offset: to,
                file: 0,
                writable: true,
            };
            let how = if one { flags::SHARED } else { flags::PRIVATE };
            space
                .mmap_object(at, length, RW, how | flags::FIXED, &opened)
                .map(drop)
        }
        16 => {
            let _ = scene.store.punch(at..at + length);
            Ok(())
        }
        _ => {
            if let Some(frame) = space.translate(at) {
                space.memory().set_idle(frame);
                space.memory().is_idle(frame);
            }
            Ok(())
        }
    };
    let _ = cpu.store_file(at, 1);
    let _ = cpu.load_file(to);
}

fn of_the_guest(cpu: &Processor<'_>, scene: &Scene) {
    let guest = &scene.guest;
    let vcpu = Vcpu::new(guest, cpu.number());
    let mut rng = thread_rng();
    let number = rng.gen_range(0..2);
    match rng.gen_range(0..8) {
        0 => {
            let size = rng.gen_range(0..5);
            let flags = SlotFlags::from_bits_truncate([0, 1, 1, 2, 0x1_0001][rng.gen_range(0..5)]);
            let slot = Slot {
                guest_address: rng.gen_range(0..GUEST_PAGES - 4) * PAGE,
                size: size * PAGE,
                host_address: rng.gen_range(0..PAGES - 4) * PAGE,
                flags,
            };
            let _ = guest.set_slot(number, &slot);
        }
        1 => {
            let _ = guest.get_dirty_log(number, rng.r#gen(), &mut |_| Ok(()));
        }
        2 => {
            let bits = rng.r#gen();
            let count = rng.gen_range(1..5);
            let _ = guest.clear_dirty_log(number, 0, count, &mut || Ok(bits));
        }
        3 => {
            // A slot that changes nothing but its log, or moves by a page.
            let slot = Slot {
                guest_address: (2 + rng.gen_range(0..2)) * PAGE,
                size: 4 * PAGE,
                host_address: 0,
                flags: SlotFlags::from_bits_truncate(rng.gen_range(0..2)),
            };
            let _ = guest.set_slot(number, &slot);
        }
        4 => {
            vcpu.load(rng.gen_range(0..GUEST_PAGES));
        }
        _ => {
            vcpu.store(rng.gen_range(0..GUEST_PAGES), rng.r#gen());
        }
    }
}

fn several(policy: Policy, failing: u32) {
    const THREADS: u32 = 3;
    const STEPS: usize = 8;
    let world = World::with_frames(200, THREADS, 0, policy);
    world.map(0, PAGES, RW);
    (0..PAGES).for_each(|page| world.cpu().store(page * PAGE, 1).unwrap());
    let _swap = world.swap(12);
    let memory = world.space().memory();
    let store = MemoryObject::new(memory, PAGES * PAGE, None, 0).unwrap();
    let mut rng = thread_rng();
    let guest = guest_with(
        &world,
        Options {
            tdp_mmu: rng.r#gen(),
            fast_page_fault: rng.gen_range(0..4) != 0,
            accessed_bits: rng.r#gen(),
            dirty_bits: rng.gen_range(0..4) == 0,
        },
    );
    let slot = Slot {
        guest_address: 2 * PAGE,
        size: 4 * PAGE,
        host_address: 0,
        flags: SlotFlags::LOG_DIRTY_PAGES,
    };
    guest.set_slot(0, &slot).unwrap();
    let scene = Arc::new(Scene { guest, store });
    memory.machine().fail_one_in(failing);
    let step = |cpu: &Processor<'_>, scene: &Scene| match thread_rng().gen_range(0..5) {
        0 | 1 => of_the_host(cpu, scene),
        _ => of_the_guest(cpu, scene),
    };
    let others = [1, 2].map(|number| {
        let scene = scene.clone();
        world.run(number, move |cpu| {
            (0..STEPS).for_each(|_| step(cpu, &scene));
        })
    });
    (0..STEPS).for_each(|_| step(&world.cpu(), &scene));
    others.into_iter().for_each(|thread| thread.join().unwrap());
    memory.machine().fail_one_in(0);
    let Ok(scene) = Arc::try_unwrap(scene) else {
        panic!("a thread still runs");
    };
    scene.guest.verify().unwrap();
    drop(scene.store);
    finish(scene.guest, world);
}

#[test]
fn any_operations() {
    explore_under(Policy::ALL, 400, |policy| several(policy, 0));
}

#[test]
fn where_allocations_fail() {
    explore_under(Policy::ALL, 400, |policy| several(policy, 12));
}

/// Stores are in the log, or in what a clearing of it has returned: one vCPU stores to four pages in turn and reads the log, which
/// only it clears, while the host changes what holds the pages.
fn logged(policy: Policy) {
    let world = World::with_frames(200, 3, 0, policy);
    world.map(0, PAGES, RW);
    let _swap = world.swap(12);
    let memory = world.space().memory();
    let mut rng = thread_rng();
    let guest = guest_with(
        &world,
        Options {
            tdp_mmu: rng.r#gen(),
            fast_page_fault: rng.gen_range(0..4) != 0,
            accessed_bits: rng.r#gen(),
            dirty_bits: false,
        },
    );
    let place = |first: u64, is_logged: bool| Slot {
        guest_address: first * PAGE,
        size: 4 * PAGE,
        host_address: 0,
        flags: match is_logged {
            true => SlotFlags::LOG_DIRTY_PAGES,
            false => SlotFlags::empty(),
        },
    };
    guest.set_slot(0, &place(4, true)).unwrap();
    let changer = world.run(1, |cpu| {
        let space = cpu.space();
        let mut rng = thread_rng();
        for _ in 0..6 {
            let (page, pages) = (rng.gen_range(0..4), rng.gen_range(1..4));
            let (at, length) = (page * PAGE, pages * PAGE);
            let _ = match rng.gen_range(0..7) {
                0 => space.madvise(at, length, advice::DONTNEED),
                1 => space.madvise(at, length, advice::PAGEOUT),
                2 => space.fork().map(|child| {
                    child.destroy();
                }),
                3 => {
                    migrate(cpu, at);
                    Ok(())
                }
                4 => {
                    space.clear_soft_dirty();
                    Ok(())
                }
                5 => {
                    if let Some(frame) = space.translate(at) {
                        space.memory().set_idle(frame);
                    }
                    Ok(())
                }
                _ => space.mmap(at, length, RW, FIXED).map(drop),
            };
        }
    });
    let reader = {
        let guest = guest.clone();
        world.run(2, move |_| {
            let vcpu = Vcpu::new(&guest, 2);
            for _ in 0..6 {
                vcpu.load(4 + thread_rng().gen_range(0..4));
            }
        })
    };
    let vcpu = Vcpu::new(&guest, 0);
    let (mut first, mut stored) = (4, 0u64);
    let log = |clears| {
        let mut bits = 0;
        let mut give = |word| {
            bits = word;
            Ok(())
        };
        guest.get_dirty_log(0, clears, &mut give).unwrap();
        bits
    };
    for _ in 0..8 {
        match rng.gen_range(0..8) {
            0..=3 => {
                let page = rng.gen_range(0..4);
                if vcpu.store(first + page, 1).is_some() {
                    stored |= 1 << page;
                }
            }
            4 => {
                assert_eq!(log(true) & stored, stored, "a store is not in the log");
                stored = 0;
            }
            5 => assert_eq!(log(false) & stored, stored, "a store is not in the log"),
            6 => {
                first = 9 - first;
                guest.set_slot(0, &place(first, true)).unwrap();
                continue;
            }
            _ => {
                guest.set_slot(0, &place(first, false)).unwrap();
                guest.set_slot(0, &place(first, true)).unwrap();
                stored = 0;
            }
        }
        if rng.r#gen() {
            let bits = log(true);
            assert_eq!(bits & stored, stored, "a store is not in the log");
            stored = 0;
        }
    }
    changer.join().unwrap();
    reader.join().unwrap();
    assert_eq!(log(false) & stored, stored, "a store is not in the log");
    guest.verify().unwrap();
    let _ = memory;
    finish(guest, world);
}

#[test]
fn stores_are_logged() {
    explore_under(Policy::ALL, 1000, logged);
}
