//! The end of a device's use: everything comes back, or nothing is lost.

use faultless_mm::MemoryObject;
use faultless_soft::Options;

use super::*;

/// A test with a device that is given to the machine by itself, and can be added again.
fn with_device(
    megabytes: u64,
    test: impl Fn(
        &SoftCpu<'_>,
        &SoftSpace,
        &'static SoftMemory,
        &dyn Fn() -> Result<u32, Errno>,
        &Store,
    ),
) {
    for &policy in Policy::ALL {
        let memory = machine(2, megabytes);
        let (store, cpus) = new_device(memory, SLOTS);
        let on = || memory.swap_on(store, cpus, None);
        SoftCpu::attend(memory, 0, || assert_eq!(on(), Ok(0)));
        let before = available(memory);
        let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap();
        SoftCpu::run(&space, 0, |cpu| test(cpu, &space, memory, &on, store));
        verify_and_destroy(space, before);
        assert_eq!(store.used(), 0, "slots were lost");
    }
}

#[test]
fn all_pages_come_back_and_the_device_can_be_used_again() {
    with_device(32, |cpu, space, memory, on, store| {
        map(cpu, 100);
        page_out(space, 0, 60);
        // Pages that nothing may access, and pages that a child has, too.
        assert_eq!(space.mprotect(page(10), 10 * PAGE, 0), Ok(()));
        let child = space.fork().unwrap();
        assert_eq!(store.used(), 60);
        let faults = during(memory, Counter::Faults, || {
            assert_eq!(memory.swap_off(0, &|| Ok(())), Ok(()));
        });
        assert_eq!((faults, memory.total(Counter::MajorFaults)), (0, 0));
        assert_eq!((store.used(), memory.swap_usage()), (0, (0, 0)));
        sound(&[space, &child]);
        assert!(cpu.load(page(10)).is_err());
        assert_eq!(space.mprotect(page(10), 10 * PAGE, RW), Ok(()));
        for number in 0..100 {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
        on_another(&child, |cpu| {
            for number in (0..10).chain(20..100) {
                assert_eq!(cpu.load(page(number)), Ok(number + 1));
            }
        });
        child.destroy();
        page_out(space, 0, 100);
        assert_eq!(store.used(), 0);
        assert_eq!(on(), Ok(0));
        page_out(space, 0, 100);
        assert_eq!((store.used(), memory.swap_usage()), (100, (SLOTS, 100)));
        assert_eq!(memory.swap_off(0, &|| Ok(())), Ok(()));
        assert_eq!(on(), Ok(0));
    });
}

#[test]
fn without_memory_the_device_stays_in_use() {
    with_device(8, |cpu, space, memory, _, store| {
        let all = 1500;
        map(cpu, all);
        page_out(space, 0, all);
        // Others have taken the memory meanwhile.
        let other = Soft::space(memory, Policy::Speculative).unwrap();
        on_another(&other, |cpu| map(cpu, 1000));
        let swapped = store.used();
        assert_eq!(memory.swap_off(0, &|| Ok(())), Err(Errno::ENOMEM));
        assert!((1..swapped).contains(&store.used()));
        assert_eq!(memory.swap_usage(), (SLOTS, store.used() as u64));
        sound(&[space, &other]);
        other.destroy();
        // Still in use: pages go there, and come back.
        page_out(space, 0, 100);
        assert_eq!(memory.swap_off(0, &|| Ok(())), Ok(()));
        for number in 0..all {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
        sound(&[space]);
    });
}

#[test]
fn a_page_that_cannot_be_read_keeps_the_device_in_use() {
    with_device(32, |cpu, space, memory, _, store| {
        map(cpu, 10);
        page_out(space, 0, 10);
        store.broken.store(1, Ordering::Relaxed);
        assert_eq!(memory.swap_off(0, &|| Ok(())), Err(Errno::EIO));
        assert_eq!(store.used(), 10);
        store.broken.store(0, Ordering::Relaxed);
        assert_eq!(memory.swap_off(0, &|| Err(Errno::EINTR)), Err(Errno::EINTR));
        sound(&[space]);
        assert_eq!(memory.swap_off(0, &|| Ok(())), Ok(()));
        assert_eq!(cpu.load(page(9)), Ok(10));
    });
}

/// Pages that the device did not take are in memory already.
#[test]
fn kept_pages_come_back() {
    with_device(32, |cpu, space, memory, _, store| {
        store.writable.store(2, Ordering::Relaxed);
        map(cpu, 10);
        page_out(space, 0, 10);
        assert_eq!(memory.swap_off(0, &|| Ok(())), Ok(()));
        for number in 0..10 {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
        sound(&[space]);
    });
}

#[test]
fn a_device_begins_and_ends_once() {
    with_device(32, |_, _, memory, on, _| {
        assert_eq!(on(), Err(Errno::EBUSY));
        assert_eq!(memory.swap_off(1, &|| Ok(())), Err(Errno::EINVAL));
        assert_eq!(memory.swap_off(0, &|| Ok(())), Ok(()));
        assert_eq!(memory.swap_off(0, &|| Ok(())), Err(Errno::EINVAL));
        assert_eq!(on(), Ok(0));
    });
}

/// Pages of shared memory come back into their object.
#[test]
fn shared_memory_comes_back() {
    const PAGES: u64 = 800;
    let memory = Soft::start(Options {
        cpus: 1,
        memory: 8 << 20,
        check: true,
        reclaims: true,
        ..Options::default()
    })
    .unwrap();
    let store = swap_on(memory);
    let before = available(memory);
    let space = SoftCpu::attend(memory, 0, || Soft::space(memory, Policy::Speculative)).unwrap();
    SoftCpu::run(&space, 0, |cpu| {
        let object = MemoryObject::new(memory, PAGES * PAGE, None, 0).unwrap();
        let opened = Opened {
            store: Ok(&object),
            offset: 0,
            file: 0,
            writable: true,
        };
        let how = flags::SHARED | flags::FIXED;
        assert_eq!(
            space.mmap_object(AT, PAGES * PAGE, RW, how, &opened),
            Ok(AT)
        );
        (0..PAGES).for_each(|number| cpu.store(page(number), number + 1).unwrap());
        let (other, pages) = (AT + (1 << 30), 1800);
        let how = ANON | flags::NORESERVE;
        assert_eq!(space.mmap(other, pages * PAGE, RW, how), Ok(other));
        for round in 0..4 {
            (0..pages).for_each(|page| cpu.store(other + page * PAGE, round).unwrap());
        }
        assert_eq!(space.munmap(other, pages * PAGE), Ok(()));
        assert!(store.used() > 100, "{} pages are out", store.used());
        assert_eq!(memory.swap_off(0, &|| Ok(())), Ok(()));
        assert_eq!(store.used(), 0);
        sound(&[&space]);
        (0..PAGES).for_each(|number| assert_eq!(cpu.load(page(number)), Ok(number + 1)));
    });
    verify_and_destroy(space, before);
}
