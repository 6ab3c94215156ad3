//! What pages that go out and come back cost.

use std::sync::Barrier;

use super::*;

#[test]
fn a_page_that_comes_back_by_a_read_is_written_without_a_fault() {
    each_policy(2, 32, |cpu, space, memory, store| {
        map(cpu, 100);
        page_out(space, 0, 100);
        assert_eq!((space.resident(), store.used()), (0, 100));
        assert_eq!(memory.total(Counter::SwapOut), 100);
        assert!(memory.total(Counter::TlbRemoteFlush) <= 1 + 100 / 32);
        sound(&[space]);
        let reads = during(memory, Counter::Faults, || {
            for number in 0..100 {
                assert_eq!(cpu.load(page(number)), Ok(number + 1));
            }
        });
        assert_eq!(reads, 100);
        assert_eq!(memory.total(Counter::SwapIn), 100);
        assert_eq!(memory.total(Counter::MajorFaults), 100);
        // Nothing is left on the device.
        assert_eq!((space.resident(), store.used()), (100, 0));
        let counters = [Counter::Faults, Counter::Copies, Counter::TlbRemoteFlush];
        let before = counters.map(|counter| memory.total(counter));
        for number in 0..100 {
            cpu.store(page(number), number + 2).unwrap();
        }
        assert_eq!(counters.map(|counter| memory.total(counter)), before);
        sound(&[space]);
    });
}

/// All CPUs run the space and have read the pages, so that each has translations that a copy would have to flush.
#[test]
fn the_write_costs_nothing_beside_cpus_that_have_read_the_page() {
    for cpus in [2, 4] {
        each_policy(cpus, 32, |cpu, space, memory, store| {
            map(cpu, 100);
            let (read, written) = (Barrier::new(cpus), Barrier::new(cpus));
            std::thread::scope(|scope| {
                for number in 1..cpus as u32 {
                    let (read, written) = (&read, &written);
                    scope.spawn(move || {
                        SoftCpu::run(space, number, |cpu| {
                            for round in 0..10 {
                                cpu.pause(|| read.wait());
                                for number in 0..100 {
                                    assert_eq!(cpu.load(page(number)), Ok(number + 1 + round));
                                }
                                // Running, and in no access: a flush would not wait.
                                read.wait();
                                written.wait();
                            }
                        });
                    });
                }
                for round in 0..10 {
                    page_out(space, 0, 100);
                    assert_eq!((space.resident(), store.used()), (0, 100));
                    cpu.pause(|| read.wait());
                    for number in 0..100 {
                        assert_eq!(cpu.load(page(number)), Ok(number + 1 + round));
                    }
                    cpu.pause(|| read.wait());
                    let counters = [Counter::Faults, Counter::Copies, Counter::TlbRemoteFlush];
                    let before = counters.map(|counter| memory.total(counter));
                    for number in 0..100 {
                        cpu.store(page(number), number + 2 + round).unwrap();
                    }
                    assert_eq!(counters.map(|counter| memory.total(counter)), before);
                    cpu.pause(|| written.wait());
                }
            });
            sound(&[space]);
        });
    }
}

#[test]
fn a_write_brings_a_page_back_by_one_fault() {
    each_policy(2, 32, |cpu, space, memory, store| {
        map(cpu, 10);
        page_out(space, 0, 10);
        let faults = during(memory, Counter::Faults, || {
            for number in 0..10 {
                cpu.store(page(number) + 8, 7).unwrap();
            }
        });
        assert_eq!((faults, store.used()), (10, 0));
        for number in 0..10 {
            let seen = (cpu.load(page(number)), cpu.load(page(number) + 8));
            assert_eq!(seen, (Ok(number + 1), Ok(7)));
        }
        sound(&[space]);
    });
}

#[test]
fn pages_that_will_be_needed_come_back() {
    each_policy(2, 32, |cpu, space, memory, store| {
        map(cpu, 100);
        page_out(space, 0, 100);
        let advised = space.madvise(page(10), 80 * PAGE, advice::WILLNEED);
        assert_eq!((advised, store.used()), (Ok(()), 20));
        let faults = during(memory, Counter::Faults, || {
            for number in 10..90 {
                cpu.store(page(number) + 8, 1).unwrap();
                assert_eq!(cpu.load(page(number)), Ok(number + 1));
            }
        });
        assert_eq!(faults, 0);
        // What cannot be read is no error yet.
        store.broken.store(1, Ordering::Relaxed);
        assert_eq!(space.madvise(page(0), 10 * PAGE, advice::WILLNEED), Ok(()));
        assert!(cpu.load(page(0)).is_err());
        store.broken.store(0, Ordering::Relaxed);
        assert_eq!(cpu.load(page(0)), Ok(1));
        sound(&[space]);
    });
}
