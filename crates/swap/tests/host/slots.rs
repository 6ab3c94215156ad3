//! Slots: each is allocated once, the last use frees it, and a full device is full.

use std::collections::HashSet;
use std::thread;

use faultless_frames::NoMemory;
use faultless_swap::{DeviceError, NotAdded, Scratch, SlotCache, Slots, SwapDevice};

use crate::machine::{Machine, device, leak, set_cpu};
use crate::pages::{Random, any};

fn slots(count: u64, cpus: usize) -> (&'static Machine, Slots<&'static Machine>) {
    let machine = Machine::new(4096, cpus);
    let slots = Slots::new(machine, leak::<SlotCache>(cpus), count).unwrap();
    (machine, slots)
}

#[test]
fn every_slot_is_allocated_once() {
    for count in [0, 1, 255, 256, 257, 20_000] {
        let (_, slots) = slots(count, 2);
        let mut seen = HashSet::new();
        let mut turn = 0;
        while let Some(slot) = slots.allocate() {
            assert!(slot < count && seen.insert(slot));
            turn += 1;
            // The other CPU keeps a cluster, whose slots this one takes in the end.
            set_cpu(u32::from(turn % 300 == 0));
        }
        set_cpu(0);
        assert_eq!(seen.len() as u64, count);
        assert_eq!(slots.used(), count);
        slots.verify().unwrap();
        for slot in 0..count {
            assert!(slots.remove_use(slot, || ()));
        }
        assert_eq!(slots.used(), 0);
        assert_eq!(slots.next_used(0), None);
        slots.verify().unwrap();
        assert_eq!(slots.allocate().is_some(), count != 0);
    }
}

#[test]
fn a_cpu_allocates_neighbours() {
    let (_, slots) = slots(10_000, 2);
    for at in 0..256 {
        set_cpu(0);
        assert_eq!(slots.allocate(), Some(at));
        set_cpu(1);
        assert_eq!(slots.allocate(), Some(256 + at));
    }
    set_cpu(0);
}

#[test]
fn the_last_use_frees_the_slot() {
    let (_machine, device) = device(64, 1, 10);
    let slots = Slots::new(Machine::new(64, 1), leak::<SlotCache>(1), 10).unwrap();
    let slot = slots.allocate().unwrap();
    device.write(slot, &any(3)).unwrap();
    assert_eq!(slots.add_use(slot), Ok(()));
    assert_eq!(slots.uses(slot), 2);
    assert!(!slots.remove_use(slot, || device.discard(slot)));
    assert_eq!(device.read(slot, &mut [0; 4096]), Ok(()));
    assert!(slots.remove_use(slot, || device.discard(slot)));
    assert_eq!(device.read(slot, &mut [0; 4096]), Err(DeviceError::Failed));
    assert_eq!(slots.add_use(slot), Err(NotAdded::Free));
    assert_eq!(slots.add_use(10), Err(NotAdded::Free));
    assert_eq!(slots.uses(slot), 0);
}

#[test]
fn the_walk_finds_the_slots_in_use() {
    let (_, slots) = slots(2000, 1);
    let all: Vec<u64> = std::iter::from_fn(|| slots.allocate()).collect();
    let kept = [0, 255, 256, 700, 1999];
    for slot in all.into_iter().filter(|slot| !kept.contains(slot)) {
        slots.remove_use(slot, || ());
    }
    let next = |slot: &u64| slots.next_used(slot + 1);
    let found: Vec<u64> = std::iter::successors(slots.next_used(0), next).collect();
    assert_eq!(found, kept);
}

#[test]
fn slots_that_cannot_be_made_leave_nothing() {
    let machine = Machine::new(64, 1);
    let before = machine.available();
    let cpus = leak::<SlotCache>(1);
    let mut allocations = 0;
    loop {
        machine.fail_after(allocations);
        match Slots::new(machine, cpus, 10_000) {
            Ok(slots) => {
                let mut frames = 0;
                slots.for_each_frame(&mut |_| frames += 1);
                assert_eq!(machine.available() + frames, before);
                break;
            }
            Err(NoMemory) => assert_eq!(machine.available(), before),
        }
        allocations += 1;
    }
    assert_eq!(machine.available(), before);
    // 10 frames of counts, 2 of clusters, 1 of the bitmap, and for each a root and names.
    assert_eq!(allocations, 10 + 2 + 1 + 6);
}

#[test]
fn slots_need_5_bytes_each() {
    let (machine, _slots) = slots(131_072, 1);
    assert_eq!(4095 - machine.available(), 128 + 16 + 1 + 6);
}

/// CPUs that allocate, write, share, read, and free, with slots for fewer pages than they want.
#[test]
fn cpus_share_slots() {
    const CPUS: u64 = 4;
    let machine = Machine::new(4096, CPUS as usize);
    let device =
        faultless_swap::Compressed::new(machine, leak::<Scratch>(CPUS as usize), 450).unwrap();
    let slots = Slots::new(machine, leak::<SlotCache>(CPUS as usize), 450).unwrap();
    let refused: u64 = thread::scope(|scope| {
        let cpus: Vec<_> = (0..CPUS)
            .map(|cpu| {
                let (slots, device) = (&slots, &device);
                scope.spawn(move || {
                    set_cpu(cpu as u32);
                    run(cpu, slots, device)
                })
            })
            .collect();
        cpus.into_iter().map(|cpu| cpu.join().unwrap()).sum()
    });
    assert!(refused > 0);
    slots.verify().unwrap();
    assert_eq!(slots.used(), 0);
    assert_eq!(device.usage().pages(), 0);
}

fn run(cpu: u64, slots: &Slots<&'static Machine>, device: &dyn SwapDevice) -> u64 {
    let mut random = Random(cpu);
    let mut held: Vec<(u64, u64)> = Vec::new();
    let mut refused = 0;
    for _ in 0..20_000 {
        let at = random.below(300) as usize;
        match held.get(at) {
            None => match slots.allocate() {
                Some(slot) => {
                    let seed = random.next();
                    device.write(slot, &any(seed)).unwrap();
                    held.push((slot, seed));
                }
                None => refused += 1,
            },
            Some(&(slot, _)) if random.below(4) == 0 => {
                slots.add_use(slot).unwrap();
                assert!(!slots.remove_use(slot, || device.discard(slot)));
            }
            Some(&(slot, seed)) => {
                let mut page = [0; 4096];
                device.read(slot, &mut page).unwrap();
                assert!(page == any(seed));
                assert!(slots.remove_use(slot, || device.discard(slot)));
                held.swap_remove(at);
            }
        }
    }
    for (slot, _) in held {
        assert!(slots.remove_use(slot, || device.discard(slot)));
    }
    refused
}
