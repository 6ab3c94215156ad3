//! Devices that are full, and which device is used.

use super::*;

#[test]
fn a_full_device_leaves_pages_in_memory() {
    each_policy(1, 64, |cpu, space, memory, store| {
        let more = SLOTS + 100;
        map(cpu, more);
        page_out(space, 0, more);
        assert_eq!(store.used() as u64, SLOTS);
        assert_eq!(space.resident(), 100);
        assert_eq!(memory.swap_usage(), (SLOTS, SLOTS));
        for number in 0..more {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
        assert_eq!(memory.swap_usage(), (SLOTS, 0));
        page_out(space, 0, 10);
        assert_eq!(store.used(), 10);
        sound(&[space]);
    });
}

/// The first device is full in the middle of a batch.
#[test]
fn the_rest_of_a_batch_goes_to_the_next_device() {
    let memory = machine(1, 32);
    let stores = [3, 100].map(|slots| (slots, slots == 100));
    let stores = stores.map(|(slots, second)| add_device(memory, second.into(), slots));
    let before = available(memory);
    let space = SoftCpu::attend(memory, 0, || Soft::space(memory, Policy::Speculative)).unwrap();
    SoftCpu::run(&space, 0, |cpu| {
        map(cpu, 10);
        page_out(&space, 0, 10);
        assert_eq!(stores.map(Store::used), [3, 7]);
        sound(&[&space]);
        for number in 0..10 {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
    });
    verify_and_destroy(space, before);
    assert_eq!(stores.map(Store::used), [0, 0]);
}

/// Devices with a higher priority are used first; those without one last, in the order in which they came.
#[test]
fn a_higher_priority_is_used_first() {
    let memory = machine(1, 32);
    let priorities = [None, Some(1), None, Some(7)];
    let devices = priorities.map(|priority| (new_device(memory, 10), priority));
    SoftCpu::attend(memory, 0, || {
        for (number, ((store, cpus), priority)) in (0..).zip(devices) {
            assert_eq!(memory.swap_on(store, cpus, priority), Ok(number));
        }
        let (fifth, cpus) = new_device(memory, 10);
        assert_eq!(memory.swap_on(fifth, cpus, None), Err(Errno::EPERM));
        let (empty, cpus) = new_device(memory, 0);
        assert_eq!(memory.swap_on(empty, cpus, None), Err(Errno::EINVAL));
    });
    let seen = || {
        let mut seen = Vec::new();
        memory.for_each_swap(&mut |swap| seen.push((swap.priority, swap.used)));
        seen
    };
    assert_eq!(seen(), [(-2, 0), (1, 0), (-3, 0), (7, 0)]);
    let before = available(memory);
    let space = SoftCpu::attend(memory, 0, || Soft::space(memory, Policy::Speculative)).unwrap();
    SoftCpu::run(&space, 0, |cpu| {
        map(cpu, 35);
        for (pages, used) in [
            (5, [0, 0, 0, 5]),
            (15, [0, 5, 0, 10]),
            (25, [5, 10, 0, 10]),
            (35, [10, 10, 5, 10]),
        ] {
            page_out(&space, 0, pages);
            assert_eq!(seen().iter().map(|seen| seen.1).collect::<Vec<_>>(), used);
        }
        assert_eq!(memory.swap_off(0, &|| Ok(())), Ok(()));
        assert_eq!(seen(), [(1, 10), (-2, 5), (7, 10)]);
        for number in 0..35 {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
    });
    verify_and_destroy(space, before);
}
