//! Reclaim of a host's memory that guests use: it asks them first, and what it takes comes back with its content.

use faultless_mm::Counter;
use faultless_soft::{SoftCpu, SoftMemory};
use faultless_tdp::{Options, SlotFlags};
use faultless_tests::available;
use faultless_tests::guest::{BASE, OneSlot};

use crate::reclaim::overcommit::{ANON, FRAMES, RW, machine};
use crate::reclaim::swap::Store;

const PAGE: u64 = 4096;
/// Where the host has memory that the guest has not.
const OTHER: u64 = 1 << 36;

/// Runs a test with each way of finding entries and of seeing accesses, over `pages` of memory for the guest.
fn each_option(pages: u64, test: impl Fn(&OneSlot, &'static SoftMemory, &'static Store)) {
    for (tdp_mmu, accessed_bits) in [(true, true), (true, false), (false, true), (false, false)] {
        let (memory, store) = machine(1);
        let before = available(memory);
        let options = Options {
            tdp_mmu,
            accessed_bits,
            ..Options::default()
        };
        let guest = OneSlot::new(memory, pages, options);
        test(&guest, memory, store);
        SoftCpu::attend(memory, 0, || guest.guest.verify())
            .unwrap_or_else(|violation| panic!("{violation}"));
        guest.destroy();
        assert_eq!(available(memory), before, "frames are lost");
        assert_eq!(store.used(), 0, "slots were lost");
    }
}

/// Pages that only the guest uses stay, while the host's own, which nothing uses, leave.
#[test]
fn pages_that_only_a_guest_uses_stay() {
    let hot = FRAMES / 4;
    each_option(hot, |guest, memory, store| {
        guest.run(0, |cpu, vcpu| {
            (0..hot).for_each(|page| vcpu.store(BASE + page * PAGE, page).unwrap());
            let pages = 5 * FRAMES / 2;
            cpu.space().mmap(OTHER, pages * PAGE, RW, ANON).unwrap();
            for page in 0..pages {
                cpu.store(OTHER + page * PAGE, page).unwrap();
                // Each of the guest's pages is used several times in a generation.
                for used in [page * 7 % hot, page * 13 % hot] {
                    assert_eq!(vcpu.load(BASE + used * PAGE), Ok(used));
                }
            }
            let came_back = memory.total(Counter::SwapIn);
            assert!(came_back < hot, "{came_back} swap-ins of {hot} pages");
            assert!(store.used() as u64 >= pages - FRAMES, "nothing has left");
            cpu.space().munmap(OTHER, pages * PAGE).unwrap();
        });
    });
}

/// A guest with more memory than there is runs to the end, and each page comes back as it was.
#[test]
fn a_guest_with_more_memory_than_there_is() {
    let pages = 3 * FRAMES / 2;
    each_option(pages, |guest, memory, _| {
        guest.run(0, |cpu, vcpu| {
            let at = |page: u64| BASE + page * PAGE + page % 512 * 8;
            (0..pages).for_each(|page| vcpu.store(at(page), page + 1).unwrap());
            assert!(memory.total(Counter::SwapOut) >= pages - FRAMES);
            (0..pages).for_each(|page| assert_eq!(vcpu.load(at(page)), Ok(page + 1)));
            assert!(memory.total(Counter::SwapIn) >= pages - FRAMES);
            // What the host changes in between, the guest sees, and the other way round.
            for page in (0..pages).step_by(3) {
                let host = guest.host + at(page) - BASE;
                assert_eq!(cpu.load(host), Ok(page + 1));
                cpu.store(host, page + 2).unwrap();
            }
            for page in 0..pages {
                let expected = page + 1 + u64::from(page.is_multiple_of(3));
                assert_eq!(vcpu.load(at(page)), Ok(expected));
            }
        });
    });
}

/// A page that leaves is in the dirty log if it was written, and again after it has come back and was written.
#[test]
fn the_dirty_log_knows_pages_that_leave() {
    let pages = FRAMES / 4;
    each_option(pages, |guest, _, store| {
        guest.run(0, |cpu, vcpu| {
            let write = |page: u64| vcpu.store(BASE + page * PAGE, page + 1).unwrap();
            (0..pages).for_each(write);
            guest.set(SlotFlags::LOG_DIRTY_PAGES);
            assert_eq!(guest.dirty(true), []);
            let even = || (0..pages).step_by(2);
            even().for_each(write);
            let press = || {
                let length = 2 * FRAMES * PAGE;
                cpu.space().mmap(OTHER, length, RW, ANON).unwrap();
                (0..length / PAGE).for_each(|page| cpu.store(OTHER + page * PAGE, 1).unwrap());
                cpu.space().munmap(OTHER, length).unwrap();
            };
            (0..2).for_each(|_| press());
            assert!(store.used() as u64 >= pages / 2, "{} slots", store.used());
            assert_eq!(guest.dirty(true), even().collect::<Vec<_>>());
            (0..pages).for_each(|page| assert_eq!(vcpu.load(BASE + page * PAGE), Ok(page + 1)));
            assert_eq!(guest.dirty(true), [], "reads come back clean");
            [1, 4].into_iter().for_each(write);
            assert_eq!(guest.dirty(true), [1, 4]);
        });
    });
}
