//! Dirty rings on the soft machine.

use faultless_mm::{Access, Counter, Errno};
use faultless_soft::{Exit, SoftCpu, SoftVcpu};
use faultless_tdp::{DirtyPage, DirtyRing, GuestOutcome, Options, RingFull, SlotFlags};
use faultless_tests::counting::counted;
use faultless_tests::guest::{BASE, OneSlot};
use faultless_tests::machine;

const PAGE: u64 = 4096;

/// Runs `test` with a guest of 64 pages that are logged in rings, and one ring of 16 places, 4 of which are reserved.
fn each_mmu(test: impl Fn(&OneSlot, &DirtyRing<'_>)) {
    for tdp_mmu in [true, false] {
        let memory = machine(2, 16);
        let options = Options {
            tdp_mmu,
            // Has no effect beside rings.
            dirty_bits: true,
            ..Options::default()
        };
        let slot = OneSlot::new(memory, 64, options);
        SoftCpu::attend(memory, 0, || {
            slot.guest.use_rings().unwrap();
            assert_eq!(slot.guest.use_rings(), Err(Errno::EINVAL));
            slot.set(SlotFlags::LOG_DIRTY_PAGES);
        });
        let places = [(); 16].map(|()| DirtyPage::default());
        test(&slot, &DirtyRing::new(&places, 4).unwrap());
        slot.run(0, |_, _| {
            slot.guest.verify().unwrap_or_else(|v| panic!("{v}"))
        });
        slot.destroy();
    }
}

fn harvest(ring: &DirtyRing<'_>, next: &mut u64) -> Vec<u64> {
    let page = || ring.harvest(next);
    std::iter::from_fn(page)
        .inspect(|&(slot, _)| assert_eq!(slot, 0))
        .map(|(_, page)| page)
        .collect()
}

fn reset(test: &OneSlot, ring: &DirtyRing<'_>) -> u64 {
    let mut reset = test.guest.begin_reset();
    reset.ring(ring);
    reset.finish()
}

#[test]
fn a_page_is_in_the_ring_once_until_it_is_reset() {
    each_mmu(|test, ring| {
        let memory = test.space.memory();
        test.run(0, |cpu, _| {
            let vcpu = SoftVcpu::with_ring(cpu, &test.guest, ring);
            let mut next = 0;
            let write = |page: u64| vcpu.store(BASE + page * PAGE, page).unwrap();
            [9, 3, 5, 3, 9].into_iter().for_each(write);
            assert_eq!(vcpu.load(BASE + 7 * PAGE), Ok(0));
            assert_eq!(harvest(ring, &mut next), [9, 3, 5]);
            // Harvested, and not reset: they are dirty still.
            [9, 3, 5].into_iter().for_each(write);
            assert_eq!(harvest(ring, &mut next), []);
            assert_eq!(reset(test, ring), 3);
            assert_eq!(reset(test, ring), 0);
            let (counts, ()) = counted(memory, || [5, 5, 3].into_iter().for_each(write));
            assert_eq!(counts.get(Counter::PfTaken), 2);
            assert_eq!(counts.get(Counter::PfFast), 2);
            assert_eq!(harvest(ring, &mut next), [5, 3]);
            assert_eq!(reset(test, ring), 2);
        });
    });
}

#[test]
fn a_full_ring_refuses_stores() {
    each_mmu(|test, ring| {
        test.run(0, |cpu, _| {
            let vcpu = SoftVcpu::with_ring(cpu, &test.guest, ring);
            let (mut next, mut found) = (0, Vec::new());
            let write = |page: u64| vcpu.store(BASE + page * PAGE, page);
            for page in 0..16 {
                assert_eq!(ring.is_nearly_full(), page >= 12);
                assert_eq!(write(page), Ok(()));
            }
            // Both an empty entry and one that the fast path would repair.
            assert_eq!(write(40), Err(Exit::RingFull));
            assert_eq!(vcpu.load(BASE + 40 * PAGE), Ok(0));
            assert_eq!(write(40), Err(Exit::RingFull));
            assert_eq!(write(7), Ok(()), "it is in the ring");
            found.push(ring.harvest(&mut next).unwrap());
            assert_eq!(reset(test, ring), 1);
            assert_eq!(write(40), Ok(()));
            assert_eq!(write(0), Err(Exit::RingFull), "it was reset");
            found.extend(std::iter::from_fn(|| ring.harvest(&mut next)));
            let pages = (0..16).chain([40]).map(|page| (0, page));
            assert_eq!(found, Vec::from_iter(pages));
            assert_eq!(reset(test, ring), 16);
            assert_eq!(write(0), Ok(()));
        });
    });
}

#[test]
fn what_is_not_logged_needs_no_place() {
    each_mmu(|test, ring| {
        test.run(0, |cpu, plain| {
            assert_eq!(plain.store(BASE, 1), Err(Exit::RingFull));
            assert_eq!(
                test.guest.fault(BASE, Access::Write),
                GuestOutcome::RingFull
            );
            test.set(SlotFlags::empty());
            let vcpu = SoftVcpu::with_ring(cpu, &test.guest, ring);
            (0..64).for_each(|page| vcpu.store(BASE + page * PAGE, 1).unwrap());
            plain.store(BASE, 2).unwrap();
            assert_eq!(ring.harvest(&mut 0), None);
            test.set(SlotFlags::LOG_DIRTY_PAGES);
            assert_eq!(plain.store(BASE, 3), Err(Exit::RingFull));
            vcpu.store(BASE + PAGE, 3).unwrap();
            assert_eq!(harvest(ring, &mut 0), [1]);
            let get = test.guest.get_dirty_log(0, true, &mut |_| Ok(()));
            assert_eq!(get, Err(Errno::ENXIO));
            let clear = test.guest.clear_dirty_log(0, 0, 64, &mut || Ok(1));
            assert_eq!(clear, Err(Errno::ENXIO));
        });
    });
}

#[test]
fn a_device_model_marks_pages() {
    each_mmu(|test, ring| {
        test.run(0, |_, _| {
            let mut next = 0;
            let mark = |page: u64, bytes| test.guest.mark_dirty_in(ring, BASE + page * PAGE, bytes);
            assert_eq!(mark(2, PAGE + 1), Ok(()));
            assert_eq!(mark(2, 1), Ok(()));
            assert_eq!(harvest(ring, &mut next), [2, 3, 2]);
            assert_eq!(reset(test, ring), 3);
            assert_eq!(mark(50, u64::MAX), Ok(()), "14 pages are left");
            assert_eq!(mark(0, 3 * PAGE), Err(RingFull));
            let pages = Vec::from_iter((50..64).chain([0, 1]));
            assert_eq!(harvest(ring, &mut next), pages);
        });
    });
}

#[test]
fn a_ring_has_a_power_of_two_of_places() {
    let places = [(); 12].map(|()| DirtyPage::default());
    let error = |count: usize, reserved| DirtyRing::new(&places[..count], reserved).err();
    assert_eq!(error(12, 0), Some(Errno::EINVAL));
    assert_eq!(error(0, 0), Some(Errno::EINVAL));
    assert_eq!(error(8, 8), Some(Errno::EINVAL));
    assert_eq!(error(8, 7), None);
}
