//! Random operations of a guest, its slots and its log, beside random operations on the memory of its host.
//!
//! * The machine checks that no vCPU has cached a frame that is freed, and `World::finish` the host's invariants; at the end the
//!   guest's entries show nothing that its host does not ([`Guest::verify`](faultless_tdp::Guest::verify)).
//! * A vCPU that has stored a word to a logged page finds the page in the log, unless it was cleared since.
//! * A copy of what is in rings, made after each reset, is at the end what vCPUs have stored.

use std::sync::Arc;

use faultless_mm::{
    AgingMode, Cpu, FrameSource, MemoryObject, Mover, Opened, PROT_READ, Policy, advice, flags,
    remap_flags,
};
use faultless_tdp::{DirtyRing, Options, Slot, SlotFlags};
use shuttle::rand::{Rng, thread_rng};

use crate::model::{FIXED, Model, PAGE, Processor, RW, World, explore_under};
use crate::vcpu::{ModelGuest, Vcpu, finish, guest_with, reset, ring};

/// Pages of the host that slots show.
const PAGES: u64 = 8;
/// Guest pages.
const GUEST_PAGES: u64 = 16;

struct Scene {
    guest: Arc<ModelGuest>,
    store: MemoryObject<Model>,
    /// Those of the CPUs' vCPUs, if the guest has rings.
    rings: Vec<Arc<DirtyRing<'static>>>,
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
    let _ = match rng.gen_range(0..20) {
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
        16 => space.madvise(page / 4 * 4 * PAGE, 4 * PAGE, advice::COLLAPSE),
        17 => space.madvise(page / 4 * 4 * PAGE, 4 * PAGE, advice::DONTNEED),
        18 => {
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
    let vcpu = match scene.rings.get(cpu.number() as usize) {
        Some(ring) => Vcpu::with_ring(guest, cpu.number(), ring),
        None => Vcpu::new(guest, cpu.number()),
    };
    let mut rng = thread_rng();
    let number = rng.gen_range(0..2);
    match rng.gen_range(0..8) {
        0 => {
            let flags = SlotFlags::from_bits_truncate([0, 1, 1, 2, 0x1_0001][rng.gen_range(0..5)]);
            // In half of them there may be a huge entry.
            let [first, size, host] = match rng.r#gen() {
                true => [4 * rng.gen_range(0..3), 4, 4 * rng.gen_range(0..2)],
                false => [
                    rng.gen_range(0..GUEST_PAGES - 4),
                    rng.gen_range(0..5),
                    rng.gen_range(0..PAGES - 4),
                ],
            };
            let slot = Slot {
                guest_address: first * PAGE,
                size: size * PAGE,
                host_address: host * PAGE,
                flags,
            };
            let _ = guest.set_slot(number, &slot);
        }
        1 if !scene.rings.is_empty() => {
            // Pages that nothing has harvested stay.
            let mut reset = guest.begin_reset();
            scene.rings.iter().for_each(|ring| reset.ring(ring));
        }
        1 => {
            let _ = guest.get_dirty_log(number, rng.r#gen(), &mut |_| Ok(()));
        }
        2 if !scene.rings.is_empty() => {
            // What another thread does at the same time is what a broken program does.
            let ring = &scene.rings[rng.gen_range(0..scene.rings.len())];
            ring.harvest(&mut rng.gen_range(0..4));
        }
        2 => {
            let bits = rng.r#gen();
            let count = rng.gen_range(1..5);
            let _ = guest.clear_dirty_log(number, 0, count, &mut || Ok(bits));
        }
        3 => {
            // A slot that changes nothing but its log, or moves by a page.
            let slot = Slot {
                guest_address: [2, 3, 4, 4][rng.gen_range(0..4)] * PAGE,
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
            eager_page_split: rng.gen_range(0..4) != 0,
            accessed_bits: rng.r#gen(),
            dirty_bits: rng.gen_range(0..4) == 0,
        },
    );
    let slot = Slot {
        guest_address: [2, 4][rng.gen_range(0..2)] * PAGE,
        size: 4 * PAGE,
        host_address: 0,
        flags: SlotFlags::from_bits_truncate(rng.gen_range(0..2)),
    };
    let has_rings = rng.gen_range(0..3) == 0;
    if has_rings {
        guest.use_rings().unwrap();
    }
    let rings = (0..THREADS).filter(|_| has_rings).map(|_| ring(4));
    let rings = Vec::from_iter(rings);
    guest.set_slot(0, &slot).unwrap();
    let scene = Arc::new(Scene {
        guest,
        store,
        rings,
    });
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
            eager_page_split: rng.gen_range(0..4) != 0,
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
                if rng.r#gen() {
                    vcpu.store(first + rng.gen_range(0..4), 1);
                }
                let mut slot = place(first, true);
                slot.flags.set(SlotFlags::LOG_BEGINS_FULL, rng.r#gen());
                guest.set_slot(0, &slot).unwrap();
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

/// Two vCPUs store to four pages, while a thread harvests and resets their rings, moves the slot and begins its log anew, and copies
/// pages; and the host changes what holds them.
fn logged_in_rings(policy: Policy) {
    let world = World::with_frames(200, 4, 0, policy);
    world.map(0, PAGES, RW);
    let _swap = world.swap(12);
    let mut rng = thread_rng();
    let guest = guest_with(
        &world,
        Options {
            tdp_mmu: rng.r#gen(),
            fast_page_fault: rng.gen_range(0..4) != 0,
            eager_page_split: rng.gen_range(0..4) != 0,
            accessed_bits: rng.r#gen(),
            dirty_bits: rng.r#gen(),
        },
    );
    guest.use_rings().unwrap();
    let place = |first: u64, flags| Slot {
        guest_address: first * PAGE,
        size: 4 * PAGE,
        host_address: 0,
        flags,
    };
    guest
        .set_slot(0, &place(4, SlotFlags::LOG_DIRTY_PAGES))
        .unwrap();
    let rings = [ring(8), ring(8)];
    let changer = world.run(3, |cpu| {
        let space = cpu.space();
        let mut rng = thread_rng();
        for _ in 0..5 {
            let (page, pages) = (rng.gen_range(0..4), rng.gen_range(1..4));
            let (at, length) = (page * PAGE, pages * PAGE);
            let _ = match rng.gen_range(0..5) {
                0 => space.madvise(at, length, advice::DONTNEED),
                1 => space.madvise(at, length, advice::PAGEOUT),
                2 => space.fork().map(|child| {
                    child.destroy();
                }),
                3 => {
                    migrate(cpu, at);
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
        }
    });
    let vcpus = [1, 2].map(|number| {
        let (guest, ring) = (guest.clone(), rings[number as usize - 1].clone());
        world.run(number, move |_| {
            let vcpu = Vcpu::with_ring(&guest, number, &ring);
            for word in 1..7 {
                vcpu.store(
                    4 + thread_rng().gen_range(0..5),
                    10 * u64::from(number) + word,
                );
            }
        })
    });
    let cpu = world.cpu();
    let load = |page: u64| cpu.load(page * PAGE).unwrap();
    let (mut first, mut copy, mut next) = (4, [0; 4], [0; 2]);
    let follow = |bits: u64, copy: &mut [u64; 4]| {
        for page in (0..4).filter(|page| bits >> page & 1 != 0) {
            copy[page as usize] = load(page);
        }
    };
    let all = |next: &mut [u64; 2]| {
        let each = rings.iter().zip(next);
        each.fold(0, |bits, (ring, next)| bits | reset(&guest, ring, next))
    };
    for _ in 0..6 {
        match rng.gen_range(0..6) {
            0 => {
                first = 9 - first;
                guest
                    .set_slot(0, &place(first, SlotFlags::LOG_DIRTY_PAGES))
                    .unwrap();
            }
            1 => {
                guest
                    .set_slot(0, &place(first, SlotFlags::empty()))
                    .unwrap();
                guest
                    .set_slot(0, &place(first, SlotFlags::LOG_DIRTY_PAGES))
                    .unwrap();
                follow(15, &mut copy);
            }
            _ => follow(all(&mut next), &mut copy),
        }
    }
    changer.join().unwrap();
    vcpus.into_iter().for_each(|vcpu| vcpu.join().unwrap());
    follow(all(&mut next), &mut copy);
    for page in 0..4 {
        let last = load(page);
        assert!(
            last == copy[page as usize] || last == 0,
            "a store is in no ring"
        );
    }
    guest.verify().unwrap();
    finish(guest, world);
}

#[test]
fn stores_are_in_rings() {
    explore_under(Policy::ALL, 1000, logged_in_rings);
}
