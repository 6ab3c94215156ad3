//! What a guest's faults do, counted.

use faultless_mm::{Access, Counter, Errno, HugeMode, Outcome, advice};
use faultless_soft::{Exit, SoftSpace};
use faultless_tdp::{GuestOutcome, Options, Slot, SlotFlags};
use faultless_tests::counting::counted;
use faultless_tests::guest::{BASE, OneSlot};
use faultless_tests::{available, machine};

const PAGE: u64 = 4096;

fn both(pages: u64, test: impl Fn(&OneSlot)) {
    for tdp_mmu in [true, false] {
        let memory = machine(2, 16);
        let before = available(memory);
        let options = Options {
            tdp_mmu,
            ..Options::default()
        };
        let slot = OneSlot::new(memory, pages, options);
        test(&slot);
        end((slot, before));
    }
}

fn end((slot, before): (OneSlot, u64)) {
    let memory = slot.space.memory();
    slot.run(0, |_, _| {
        slot.guest.verify().unwrap_or_else(|v| panic!("{v}"))
    });
    slot.destroy();
    faultless_soft::SoftCpu::attend(memory, 0, || {
        memory.expedite();
        memory.expedite();
        memory.expedite();
        memory.drain();
    });
    assert_eq!(available(memory), before, "frames are lost");
}

#[test]
fn a_guest_reads_and_writes_its_host() {
    both(8, |test| {
        test.run(0, |cpu, vcpu| {
            vcpu.store(BASE + 8, 7).unwrap();
            assert_eq!(cpu.load(test.host + 8), Ok(7));
            cpu.store(test.host + PAGE, 9).unwrap();
            assert_eq!(vcpu.load(BASE + PAGE), Ok(9));
            let outside = Exit::Device {
                address: BASE + 8 * PAGE,
            };
            assert_eq!(vcpu.load(BASE + 8 * PAGE), Err(outside));
            assert_eq!(vcpu.store(0, 1), Err(Exit::Device { address: 0 }));
            // The tables do not reach so far, and their indices would repeat.
            let address = BASE + (1 << 48);
            assert_eq!(vcpu.load(address), Err(Exit::Device { address }));
        });
    });
}

#[test]
fn each_page_faults_once() {
    both(64, |test| {
        let memory = test.space.memory();
        test.run(0, |_, vcpu| {
            let write = || (0..64).for_each(|page| vcpu.store(BASE + page * PAGE, page).unwrap());
            let (counts, ()) = counted(memory, write);
            assert_eq!(counts.get(Counter::PfTaken), 64);
            assert_eq!(counts.get(Counter::PfFixed), 64);
            assert_eq!(counts.get(Counter::PfFast), 0);
            assert_eq!(counts.get(Counter::Faults), 64, "the host's own");
            let (counts, ()) = counted(memory, write);
            assert_eq!(counts.get(Counter::PfTaken), 0);
        });
    });
}

#[test]
fn pages_beside_are_mapped_with_one_fault() {
    both(64, |test| {
        let memory = test.space.memory();
        test.run(0, |cpu, vcpu| {
            (0..64).for_each(|page| cpu.store(test.host + page * PAGE, page).unwrap());
            let read =
                || (0..64).for_each(|page| assert_eq!(vcpu.load(BASE + page * PAGE), Ok(page)));
            let (counts, ()) = counted(memory, read);
            assert_eq!(counts.get(Counter::PfTaken), 8);
            assert_eq!(counts.get(Counter::Faults), 0, "the host has nothing to do");
            let write = || (0..64).for_each(|page| vcpu.store(BASE + page * PAGE, 1).unwrap());
            let (counts, ()) = counted(memory, write);
            assert_eq!(counts.get(Counter::PfTaken), 0);
        });
    });
}

#[test]
fn a_write_after_logging_takes_the_fast_path() {
    both(64, |test| {
        let memory = test.space.memory();
        test.run(0, |_, vcpu| {
            let write = |page: u64| vcpu.store(BASE + page * PAGE, page).unwrap();
            (0..64).for_each(write);
            test.set(SlotFlags::LOG_DIRTY_PAGES);
            assert_eq!(test.dirty(false), []);
            let (counts, ()) = counted(memory, || [3, 5, 63].into_iter().for_each(write));
            assert_eq!(counts.get(Counter::PfTaken), 3);
            assert_eq!(counts.get(Counter::PfFast), 3);
            assert_eq!(counts.get(Counter::PfFixed), 3);
            assert_eq!(counts.get(Counter::Faults), 0, "the host has nothing to do");
            assert_eq!(test.dirty(false), [3, 5, 63]);
            assert_eq!(test.dirty(true), [3, 5, 63]);
            assert_eq!(test.dirty(true), []);
            let (counts, ()) = counted(memory, || write(5));
            assert_eq!(counts.get(Counter::PfFast), 1);
            assert_eq!(test.dirty(true), [5]);
        });
    });
}

#[test]
fn a_page_that_was_read_is_copied_with_one_fault() {
    both(1, |test| {
        let memory = test.space.memory();
        test.run(0, |cpu, vcpu| {
            let (counts, value) = counted(memory, || vcpu.load(BASE));
            assert_eq!(value, Ok(0));
            assert_eq!(counts.get(Counter::PfTaken), 1);
            assert_eq!(counts.get(Counter::ZeroPageMaps), 1);
            let (counts, result) = counted(memory, || vcpu.store(BASE, 1));
            assert_eq!(result, Ok(()));
            assert_eq!(counts.get(Counter::PfTaken), 1);
            assert_eq!(cpu.load(test.host), Ok(1));
        });
    });
}

#[test]
fn a_guest_loses_what_its_host_gives_up() {
    both(16, |test| {
        test.run(0, |cpu, vcpu| {
            (0..16).for_each(|page| vcpu.store(BASE + page * PAGE, page + 1).unwrap());
            let host = |page: u64| test.host + page * PAGE;
            let space = cpu.space();
            space.madvise(host(0), 4 * PAGE, advice::DONTNEED).unwrap();
            assert_eq!(vcpu.load(BASE), Ok(0));
            assert_eq!(vcpu.load(BASE + 4 * PAGE), Ok(5));
            space.mprotect(host(4), PAGE, 1).unwrap();
            assert_eq!(vcpu.load(BASE + 4 * PAGE), Ok(5));
            assert!(matches!(
                vcpu.store(BASE + 4 * PAGE, 1),
                Err(Exit::Host(Outcome::Segv(_)))
            ));
            space.munmap(host(5), PAGE).unwrap();
            assert!(matches!(
                vcpu.load(BASE + 5 * PAGE),
                Err(Exit::Host(Outcome::Segv(_)))
            ));
            let child = space.fork().unwrap();
            vcpu.store(BASE + 6 * PAGE, 70).unwrap();
            assert_eq!(cpu.load(host(6)), Ok(70));
            let frame = |space: &faultless_soft::SoftSpace| {
                let mut word = 0;
                let machine = space.memory().machine();
                space
                    .access(host(6), faultless_mm::Access::Read, &mut |frame| {
                        use faultless_mm::PhysicalMemory;
                        // SAFETY: a frame of the machine, read while it is claimed.
                        word = unsafe { machine.pointer(frame).cast::<u64>().read() };
                    })
                    .unwrap();
                word
            };
            assert_eq!(frame(&child), 7, "the child sees a store of the guest");
            child.destroy();
        });
    });
}

#[test]
fn dirty_bits_log_without_faults() {
    let memory = machine(2, 16);
    let options = Options {
        dirty_bits: true,
        ..Options::default()
    };
    let test = OneSlot::new(memory, 8, options);
    test.run(0, |_, vcpu| {
        (0..8).for_each(|page| vcpu.store(BASE + page * PAGE, 1).unwrap());
        test.set(SlotFlags::LOG_DIRTY_PAGES);
        assert_eq!(test.dirty(true), []);
        let (counts, ()) = counted(memory, || {
            vcpu.store(BASE + PAGE, 2).unwrap();
            vcpu.load(BASE + 2 * PAGE).map(drop).unwrap();
        });
        assert_eq!(counts.get(Counter::PfTaken), 0);
        assert_eq!(test.dirty(true), [1]);
        assert_eq!(test.dirty(true), []);
        let (counts, ()) = counted(memory, || vcpu.store(BASE + PAGE, 3).unwrap());
        assert_eq!(counts.get(Counter::PfTaken), 0, "clearing took access away");
        assert_eq!(test.dirty(true), [1]);
    });
    test.destroy();
}

#[test]
fn clearing_accessed_bits_makes_a_guest_fault_anew() {
    both(16, |test| {
        let memory = test.space.memory();
        test.run(0, |cpu, vcpu| {
            (0..16).for_each(|page| vcpu.store(BASE + page * PAGE, 1).unwrap());
            cpu.space().clear_accessed(faultless_mm::AgingMode::All);
            let (counts, ()) = counted(memory, || vcpu.store(BASE, 2).unwrap());
            assert_eq!(counts.get(Counter::PfTaken), 1);
            assert_eq!(counts.get(Counter::PfFast), 0, "the host has to know");
        });
    });
}

#[test]
fn without_the_fast_path_the_result_is_the_same() {
    let memory = machine(2, 16);
    let options = Options {
        fast_page_fault: false,
        ..Options::default()
    };
    let test = (OneSlot::new(memory, 4, options), available(memory));
    test.0.run(0, |_, vcpu| {
        (0..4).for_each(|page| vcpu.store(BASE + page * PAGE, 1).unwrap());
        test.0.set(SlotFlags::LOG_DIRTY_PAGES);
        let (counts, ()) = counted(memory, || vcpu.store(BASE, 2).unwrap());
        assert_eq!(counts.get(Counter::PfTaken), 1);
        assert_eq!(counts.get(Counter::PfFast), 0);
        assert_eq!(test.0.dirty(true), [0]);
    });
    test.0.destroy();
}

/// Without the fast path, and without accessed bits: an entry of which access is tracked remembers that it was written.
#[test]
fn a_tracked_page_stays_in_the_log() {
    for fast_page_fault in [false, true] {
        let memory = machine(2, 16);
        let options = Options {
            fast_page_fault,
            accessed_bits: false,
            ..Options::default()
        };
        let test = OneSlot::new(memory, 1, options);
        test.run(0, |cpu, vcpu| {
            test.set(SlotFlags::LOG_DIRTY_PAGES);
            vcpu.store(BASE, 1).unwrap();
            let frame = cpu.space().translate(test.host).unwrap();
            memory.set_idle(frame);
            assert_eq!(vcpu.load(BASE), Ok(1));
            assert_eq!(test.dirty(true), [0]);
        });
        test.destroy();
    }
}

#[test]
fn a_slot_that_moves_keeps_its_log() {
    both(4, |test| {
        test.run(0, |_, vcpu| {
            test.set(SlotFlags::LOG_DIRTY_PAGES);
            vcpu.store(BASE + PAGE, 1).unwrap();
            vcpu.store(BASE + 2 * PAGE, 1).unwrap();
            let moved = Slot {
                guest_address: BASE + PAGE,
                size: 4 * PAGE,
                host_address: test.host,
                flags: SlotFlags::LOG_DIRTY_PAGES,
            };
            test.guest.set_slot(0, &moved).unwrap();
            assert_eq!(test.dirty(false), [1, 2]);
            assert_eq!(vcpu.load(BASE + 2 * PAGE), Ok(1));
            vcpu.store(BASE + PAGE, 1).unwrap();
            assert_eq!(test.dirty(true), [0, 1, 2]);
            assert_eq!(test.dirty(true), []);
        });
    });
}

#[test]
fn addresses_end_with_the_tables() {
    both(1, |test| {
        let beyond = Slot {
            guest_address: 1 << 48,
            size: PAGE,
            host_address: test.host,
            flags: SlotFlags::empty(),
        };
        assert_eq!(test.guest.set_slot(1, &beyond), Err(Errno::EINVAL));
        test.run(0, |_, vcpu| {
            vcpu.store(BASE, 1).unwrap();
            let outcome = test.guest.fault((1 << 48) + BASE, Access::Write);
            assert_eq!(outcome, GuestOutcome::Device);
        });
    });
}

#[test]
fn a_hypervisor_marks_what_it_writes_itself() {
    both(70, |test| {
        test.run(0, |_, vcpu| {
            test.guest.mark_dirty(BASE, 4096);
            assert!(!test.guest.is_dirty(BASE), "nothing is logged");
            test.set(SlotFlags::LOG_DIRTY_PAGES);
            // From the middle of a page to the middle of another, and outside.
            test.guest.mark_dirty(BASE + 63 * PAGE + 100, 2 * PAGE);
            test.guest.mark_dirty(BASE + 69 * PAGE, u64::MAX);
            test.guest.mark_dirty(BASE - PAGE, PAGE);
            vcpu.store(BASE + PAGE, 1).unwrap();
            let dirty = Vec::from_iter((0..72).filter(|p| test.guest.is_dirty(BASE + p * PAGE)));
            assert_eq!(dirty, [1, 63, 64, 65, 69]);
            assert_eq!(test.dirty(true), dirty);
            assert!(!test.guest.is_dirty(BASE + PAGE));
        });
    });
}

#[test]
fn no_slot_lies_where_the_tables_do_not_reach() {
    both(1, |test| {
        test.run(0, |_, _| {
            let slot = |guest_address| Slot {
                guest_address,
                size: PAGE,
                host_address: test.host,
                flags: SlotFlags::empty(),
            };
            let set = |at| test.guest.set_slot(1, &slot(at));
            assert_eq!(set(1 << 48), Err(Errno::EINVAL));
            assert_eq!(set((1 << 48) - PAGE), Ok(()));
        });
    });
}

/// A guest shows the pages of its host's huge page, and of the huge zero page, and splits neither.
#[test]
fn a_guest_of_huge_pages() {
    const PAGES: u64 = 2048;
    both(PAGES, |test| {
        let memory = test.space.memory();
        memory.set_huge_mode(HugeMode::Always);
        let huge = test.host.next_multiple_of(2 << 20);
        let guest = BASE + huge - test.host;
        test.run(0, |cpu, vcpu| {
            let (counts, ()) = counted(memory, || {
                for page in 0..1024 {
                    assert_eq!(vcpu.load(guest + page * PAGE), Ok(0));
                }
                for page in 0..512 {
                    vcpu.store(guest + page * PAGE, page + 1).unwrap();
                }
            });
            assert_eq!(counts.get(Counter::ThpSplit), 0);
            assert_eq!(counts.get(Counter::ThpZeroPageMaps), 2);
            assert_eq!(counts.get(Counter::ThpFaultAlloc), 1);
            for page in 0..512 {
                assert_eq!(cpu.load(huge + page * PAGE), Ok(page + 1));
            }
            test.guest.verify().unwrap();
            // Behind the split of one, and of the other, it shows the same.
            for at in [huge, huge + (2 << 20)] {
                test.space.madvise(at, PAGE, advice::COLD).unwrap();
            }
            test.guest.verify().unwrap();
            vcpu.store(guest + (2 << 20), 7).unwrap();
            assert_eq!(cpu.load(huge + (2 << 20)), Ok(7));
            assert_eq!(vcpu.load(guest + 5 * PAGE), Ok(6));
            test.space.madvise(huge, 2 << 20, advice::DONTNEED).unwrap();
            assert_eq!(vcpu.load(guest + 5 * PAGE), Ok(0));
            let space: &SoftSpace = &test.space;
            let child = space.fork().unwrap();
            vcpu.store(guest + 6 * PAGE, 1).unwrap();
            assert_eq!(child.verify().unwrap().pages, 1);
            child.destroy();
        });
    });
}
