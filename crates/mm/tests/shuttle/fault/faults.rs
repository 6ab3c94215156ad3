//! Faults against faults, in random interleavings of whole operations: every first write survives, in
//! whatever order.

use crate::model::{FIXED, PAGE, RW, World, explore};
use faultless_mm::{Errno, PROT_READ, SegvCode, advice, flags};

/// Three CPUs each set a bit in the same two pages. One of them reads first, so that the shared zero page is
/// replaced under the other CPUs.
#[test]
fn every_first_write_survives() {
    explore(2500, |policy| {
        let world = World::new(4, policy);
        world.map(0, 4, RW);
        let touched = if world.has_huge() { 4 } else { 2 };
        let threads = [1, 2, 3].map(|number| {
            world.run(number, move |cpu| {
                for page in [0, 1] {
                    if number == 1 {
                        assert_eq!(cpu.load(page * PAGE).map(|word| word & 2), Ok(0));
                    }
                    cpu.set_bits(page * PAGE, 1 << number).unwrap();
                    assert_ne!(cpu.load(page * PAGE).unwrap() & (1 << number), 0);
                }
            })
        });
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(world.cpu().load(0), Ok(0b1110));
        assert_eq!(world.cpu().load(PAGE), Ok(0b1110));
        assert_eq!(world.finish().pages, touched);
    });
}

/// POPULATE faults like any access: it replaces no present page.
#[test]
fn populate_keeps_what_is_there() {
    explore(1500, |policy| {
        let world = World::new(4, policy);
        world.map(0, 10, RW);
        let populate =
            [(1, advice::POPULATE_WRITE), (2, advice::POPULATE_READ)].map(|(number, what)| {
                world.run(number, move |cpu| {
                    assert_eq!(cpu.space().madvise(0, 10 * PAGE, what), Ok(()));
                })
            });
        let writer = world.run(3, |cpu| {
            for page in (0..10).rev() {
                cpu.set_bits(page * PAGE, 1 << page).unwrap();
            }
        });
        populate.into_iter().for_each(|t| t.join().unwrap());
        writer.join().unwrap();
        for page in 0..10 {
            assert_eq!(world.cpu().load(page * PAGE), Ok(1 << page));
        }
        assert_eq!(world.finish().pages, 10);
    });
}

/// POPULATE reports a hole where pages were just unmapped.
#[test]
fn populate_against_munmap() {
    explore(1500, |policy| {
        let world = World::new(3, policy);
        world.map(0, 6, RW);
        let populate = world.run(1, |cpu| {
            let all = cpu.space().madvise(0, 6 * PAGE, advice::POPULATE_WRITE);
            assert!(all == Ok(()) || all == Err(Errno::ENOMEM), "{all:?}");
        });
        let mapper = world.run(2, |cpu| {
            let flags = flags::PRIVATE | flags::ANONYMOUS | flags::POPULATE;
            let at = cpu.space().mmap(0, 3 * PAGE, RW, flags).unwrap();
            (0..3).for_each(|page| assert_eq!(cpu.load(at + page * PAGE), Ok(0)));
        });
        world.space().munmap(2 * PAGE, 2 * PAGE).unwrap();
        populate.join().unwrap();
        mapper.join().unwrap();
        assert_eq!(world.finish().mapped, 4 + 3);
    });
}

/// A stack grows under several CPUs, while its top is unmapped and another mapping is placed in its way. The
/// guard gap holds, and no write is lost.
#[test]
fn a_stack_grows_beside_all_cpus() {
    explore(1500, |policy| {
        const TOP: u64 = 48;
        let world = World::new(4, policy);
        let flags = FIXED | flags::GROWSDOWN;
        let (at, size) = ((TOP - 4) * PAGE, 4 * PAGE);
        world.space().mmap(at, size, RW, flags).unwrap();
        let threads = [1, 2].map(|number| {
            world.run(number, move |cpu| {
                for below in [5, 6] {
                    cpu.set_bits((TOP - below) * PAGE, number.into()).unwrap();
                }
                cpu.set_bits((TOP - 9) * PAGE, number.into())
            })
        });
        let mapper = world.run(3, |cpu| {
            let (hint, flags) = ((TOP - 11) * PAGE, flags::PRIVATE | flags::ANONYMOUS);
            let at = cpu.space().mmap(hint, 2 * PAGE, PROT_READ, flags).unwrap();
            assert_eq!(cpu.load(at), Ok(0));
            assert_eq!(cpu.store(at, 1), Err(SegvCode::AccErr));
            at / PAGE
        });
        world.space().munmap((TOP - 1) * PAGE, PAGE).unwrap();
        let grown = threads.map(|t| t.join().unwrap().is_ok());
        let other = mapper.join().unwrap();
        for below in [5, 6] {
            assert_eq!(world.cpu().load((TOP - below) * PAGE), Ok(3));
        }
        let way_is_free = other != TOP - 11;
        assert_eq!(grown, [way_is_free; 2], "growth ignores what is in its way");
        let stack = if way_is_free { 8 } else { 5 };
        if way_is_free {
            assert_eq!(world.cpu().load((TOP - 9) * PAGE), Ok(3));
            assert!(other >= TOP, "mapped into the guard gap");
        }
        assert_eq!(world.finish().mapped, stack + 2);
    });
}
