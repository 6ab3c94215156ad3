//! The event of a guest's fault: what the fast path has found, and what it has made of it.

use faultless_mm::{Kind, Mask};
use faultless_paging::EntryFormat;
use faultless_soft::{Options as Machine, Soft, SoftMemory};
use faultless_tdp::{Npt, Options, SecondLevel, SlotFlags};
use faultless_tests::guest::{BASE, OneSlot};
use faultless_trace::FastPageFault;

const PAGE: u64 = 4096;

fn machine(record: Mask) -> &'static SoftMemory {
    let options = Machine {
        cpus: 1,
        memory: 16 << 20,
        record,
        events: 64,
        ..Machine::default()
    };
    Soft::start(options).unwrap()
}

fn faults(memory: &'static SoftMemory) -> Vec<FastPageFault> {
    let mut faults = Vec::new();
    let ring = memory.cpus()[0].tracer().ring();
    ring.collect(0, |_, event| {
        if event.kind == Kind::FastPageFault {
            faults.push(event.to_fast_page_fault());
        }
    });
    faults
}

#[test]
fn a_fault_is_shown_with_both_entries() {
    for tdp_mmu in [true, false] {
        let memory = machine(Mask::NONE.with(Kind::FastPageFault));
        let options = Options {
            tdp_mmu,
            ..Options::default()
        };
        let guest = OneSlot::new(memory, 2, options);
        guest.run(0, |_, vcpu| {
            vcpu.store(BASE + 8, 1).unwrap();
            guest.set(SlotFlags::LOG_DIRTY_PAGES);
            assert_eq!(guest.dirty(true), []);
            vcpu.store(BASE + 16, 1).unwrap();
            vcpu.load(BASE + PAGE).unwrap();
        });
        let faults = faults(memory);
        let [first, fast, other] = faults[..] else {
            panic!("{faults:?}");
        };
        let empty = |address, error_code| FastPageFault {
            address,
            error_code,
            ..FastPageFault::default()
        };
        assert_eq!(first, empty(BASE + 8, 6), "nothing there: mapped");
        assert_eq!(other, empty(BASE + PAGE, 4));
        assert_eq!((fast.address, fast.error_code), (BASE + 16, 6));
        assert!(fast.is_fixed && !fast.is_spurious);
        let format = Npt::FORMAT;
        assert!(!format.is_writable(fast.old) && Npt::may_write(fast.old));
        assert_eq!(fast.new, Npt::writable(fast.old));
        guest.destroy();
    }
}

#[test]
fn nothing_is_recorded_that_was_not_asked_for() {
    let memory = machine(Mask::NONE.with(Kind::Fault));
    let guest = OneSlot::new(memory, 1, Options::default());
    guest.run(0, |_, vcpu| vcpu.store(BASE, 1).unwrap());
    assert_eq!(faults(memory), []);
    guest.destroy();
}
