//! Which lines the faults of a guest write, exactly (recording builds: `--cfg record`).
//!
//! Two vCPUs' faults more than 8 pages apart have no line in common, whether they only restore access or map a page that the
//! host has. With the legacy MMU they share its lock, which proves that the recorder works.

use std::collections::BTreeSet;

use faultless_mm::Access;
use faultless_soft::{SoftCpu, SoftMemory};
use faultless_sync::record;
use faultless_tdp::{GuestOutcome, Options, Repair, SlotFlags};
use faultless_tests::guest::{BASE, OneSlot};
use faultless_tests::machine;

const PAGE: u64 = 4096;
const PAGES: u64 = 512;
const DISTANCES: [u64; 4] = [8, 9, 64, 400];

/// The lines that one fault writes, on CPU `cpu`, without those of batched work.
fn lines(test: &OneSlot, cpu: u32, page: u64, access: Access, how: Repair) -> BTreeSet<usize> {
    let fault = || {
        let mut outcome = GuestOutcome::Device;
        let written = record::lines(|| outcome = test.guest.fault(BASE + page * PAGE, access));
        assert_eq!(outcome, GuestOutcome::Resolved(how));
        assert!(!written.is_empty(), "the recorder is off");
        let direct = written.into_iter().filter(|(_, w)| w.direct > 0);
        direct.map(|(line, _)| line).collect::<BTreeSet<_>>()
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| SoftCpu::run(&test.space, cpu, |_| fault()));
        thread.join().unwrap()
    })
}

/// Lines that a fault on CPU 0 and one on CPU 1 both write, for each distance.
fn shared(options: Options, prepare: impl Fn(&OneSlot), access: Access, how: Repair) -> [usize; 4] {
    DISTANCES.map(|distance| {
        let memory: &'static SoftMemory = machine(2, 16);
        let test = OneSlot::new(memory, PAGES, options);
        test.run(0, |cpu, _| {
            (0..PAGES).for_each(|page| cpu.store(test.host + page * PAGE, page).unwrap());
        });
        prepare(&test);
        let first = lines(&test, 0, 16, access, how);
        let second = lines(&test, 1, 16 + distance, access, how);
        let both = first.intersection(&second).count();
        test.destroy();
        both
    })
}

/// The tables are there.
fn first_page(test: &OneSlot) {
    test.run(0, |_, vcpu| drop(vcpu.load(BASE).unwrap()));
}

/// All pages are mapped, and protected.
fn logged(test: &OneSlot) {
    test.run(0, |_, vcpu| {
        (0..PAGES).for_each(|page| vcpu.store(BASE + page * PAGE, page).unwrap());
        test.set(SlotFlags::LOG_DIRTY_PAGES);
    });
}

/// All pages are mapped, and their rights taken away.
fn idle(test: &OneSlot) {
    test.run(0, |cpu, vcpu| {
        for page in 0..PAGES {
            vcpu.store(BASE + page * PAGE, page).unwrap();
            let frame = cpu.space().translate(test.host + page * PAGE).unwrap();
            cpu.space().memory().set_idle(frame);
        }
    });
}

#[test]
fn fast_faults_share_no_line() {
    let options = Options::default();
    let shared = |options| shared(options, logged, Access::Write, Repair::Fast);
    assert_eq!(shared(options), [0; 4]);
    let legacy = Options {
        tdp_mmu: false,
        ..options
    };
    assert_eq!(shared(legacy), [0; 4], "the fast path takes no lock");
}

#[test]
fn accesses_to_idle_memory_share_no_line() {
    let options = Options {
        accessed_bits: false,
        ..Options::default()
    };
    for access in [Access::Read, Access::Write] {
        assert_eq!(shared(options, idle, access, Repair::Fast), [0; 4]);
    }
}

#[test]
fn mapping_faults_share_no_line() {
    for access in [Access::Read, Access::Write] {
        let options = Options::default();
        assert_eq!(shared(options, first_page, access, Repair::Mapped), [0; 4]);
    }
}

#[test]
fn logged_mapping_faults_share_no_line() {
    let prepare = |test: &OneSlot| {
        test.run(0, |_, _| test.set(SlotFlags::LOG_DIRTY_PAGES));
        first_page(test);
    };
    for access in [Access::Read, Access::Write] {
        let options = Options::default();
        assert_eq!(shared(options, prepare, access, Repair::Mapped), [0; 4]);
    }
}

#[test]
fn the_lock_of_the_legacy_mmu_is_seen() {
    let legacy = Options {
        tdp_mmu: false,
        ..Options::default()
    };
    let both = shared(legacy, first_page, Access::Write, Repair::Mapped);
    assert!(both.iter().all(|&lines| lines > 0), "{both:?}");
}
