//! Faults against writers, in random interleavings of whole operations.
//!
//! Once a writer has returned, no CPU can use what the writer has removed, whatever a TLB holds. What the
//! writer has not removed is never missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::model::{FIXED, PAGE, Processor, RW, World, explore, with_lazy_tlbs};
use faultless_mm::{PROT_READ, Policy, SegvCode, advice, flags};
use faultless_sync::{Mutant, with_flaw};

/// Entries of a table.
const ENTRIES: u64 = faultless_paging::ENTRIES as u64;

/// Set when a writer has returned. From std: shuttle switches no threads at it.
#[derive(Clone, Default)]
struct Returned(Arc<AtomicBool>);

impl Returned {
    fn set(&self) {
        self.0.store(true, Relaxed);
    }
    fn get(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Stores to `pages` in turn, `rounds` times. Returns the first error, if any; a store that begins after the
/// writer has returned must fail.
fn store_until(
    cpu: &Processor<'_>,
    pages: u64,
    rounds: u64,
    returned: &Returned,
) -> Option<SegvCode> {
    for round in 0..rounds {
        let late = returned.get();
        match cpu.store(round % pages * PAGE, round) {
            Ok(()) => assert!(!late, "a store outlived the writer"),
            Err(code) => return Some(code),
        }
    }
    None
}

fn munmap_against_stores() {
    explore(2500, |policy| {
        let world = World::new(3, policy);
        world.map(0, 4, RW);
        world.cpu().store(3 * PAGE, 7).unwrap();
        let returned = Returned::default();
        let threads = [1, 2].map(|number| {
            let returned = returned.clone();
            world.run(number, move |cpu| {
                let end = store_until(cpu, 2, 8, &returned);
                assert!(matches!(end, None | Some(SegvCode::MapErr)), "{end:?}");
                assert_eq!(cpu.load(3 * PAGE), Ok(7));
            })
        });
        world.space().munmap(0, 2 * PAGE).unwrap();
        returned.set();
        threads.into_iter().for_each(|t| t.join().unwrap());
        for at in [0, PAGE] {
            let stored = world.cpu().store(at, 1);
            assert_eq!(stored, Err(SegvCode::MapErr), "a page outlived the writer");
        }
        let left = if world.has_huge() { 2 } else { 1 };
        let census = world.finish();
        assert_eq!((census.pages, census.mapped), (left, 2));
    });
}

#[test]
fn munmap_is_final() {
    munmap_against_stores();
}

#[test]
#[should_panic(expected = "a TLB holds a frame that is freed")]
fn broken_munmap_without_a_flush() {
    with_lazy_tlbs(munmap_against_stores);
}

/// Which thread finds the page first depends on the interleaving.
#[test]
#[should_panic(expected = "outlived the writer")]
fn broken_munmap_without_validation() {
    with_flaw(Mutant::MappingNotValidated, munmap_against_stores);
}

fn mprotect_against_stores() {
    explore(2500, |policy| {
        let world = World::new(3, policy);
        world.map(0, 4, RW);
        let returned = Returned::default();
        let threads = [1, 2].map(|number| {
            let returned = returned.clone();
            world.run(number, move |cpu| {
                let end = store_until(cpu, 2, 8, &returned);
                assert!(matches!(end, None | Some(SegvCode::AccErr)), "{end:?}");
                // Stored content stays readable.
                cpu.load(0).unwrap();
                cpu.load(PAGE).unwrap();
            })
        });
        world.space().mprotect(0, 2 * PAGE, PROT_READ).unwrap();
        returned.set();
        let kept = world.cpu().load(0);
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(
            world.cpu().load(0),
            kept,
            "a store outlived the writer: the page was read-only"
        );
        assert_eq!(world.cpu().store(0, 1), Err(SegvCode::AccErr));
        world.finish();
    });
}

#[test]
fn mprotect_is_final() {
    mprotect_against_stores();
}

#[test]
#[should_panic(expected = "a store outlived the writer")]
fn broken_mprotect_without_a_flush() {
    with_lazy_tlbs(mprotect_against_stores);
}

/// Two CPUs write while the protection is lowered and raised again. Successful writes are not lost.
#[test]
fn mprotect_down_and_up_loses_nothing() {
    explore(1500, |policy| {
        let world = World::new(3, policy);
        world.map(0, 3, RW);
        let threads = [1u32, 2].map(|number| {
            world.run(number, move |cpu| {
                let mut written = 0;
                for round in 0..6 {
                    let bit = 1u64 << (8 * number + round);
                    match cpu.set_bits(PAGE, bit) {
                        Ok(()) => written |= bit,
                        Err(code) => assert_eq!(code, SegvCode::AccErr),
                    }
                }
                written
            })
        });
        world.space().mprotect(PAGE, PAGE, PROT_READ).unwrap();
        world.space().mprotect(PAGE, PAGE, 0).unwrap();
        world.space().mprotect(0, 2 * PAGE, RW).unwrap();
        let written = threads.into_iter().map(|t| t.join().unwrap());
        let written = written.fold(0, |all, some| all | some);
        assert_eq!(world.cpu().load(PAGE), Ok(written));
        world.finish();
    });
}

/// Stores bits of this CPU to pages 0 and 1; every store must succeed. Returns the bits of stores that began
/// after the writer had returned: they must be there in the end.
fn store_all(cpu: &Processor<'_>, returned: &Returned) -> [u64; 2] {
    let mut must = [0; 2];
    for round in 0..6 {
        let page = round as usize % 2;
        let bit = 1 << (8 * cpu.number() + round);
        let late = returned.get();
        cpu.set_bits(page as u64 * PAGE, bit)
            .expect("the page is always mapped");
        must[page] |= if late { bit } else { 0 };
    }
    must
}

fn replaces_contents(policy: Policy, replace: fn(&Processor<'_>)) {
    let world = World::new(3, policy);
    world.map(0, 3, RW);
    world.cpu().store(0, 1).unwrap();
    let returned = Returned::default();
    let threads = [1, 2].map(|number| {
        let returned = returned.clone();
        world.run(number, move |cpu| store_all(cpu, &returned))
    });
    replace(&world.cpu());
    returned.set();
    let [one, other] = threads.map(|t| t.join().unwrap());
    for page in 0..2 {
        let must = one[page] | other[page];
        let word = world.cpu().load(page as u64 * PAGE).unwrap();
        assert_eq!(word & must, must, "a store after the return is lost");
        assert_eq!(word & 1, 0, "what was there before is back");
    }
    world.finish();
}

/// Rule R11: faults wait while a mapping is replaced, and do not end in SIGSEGV.
#[test]
fn mmap_over_a_mapping_kills_no_thread() {
    explore(2500, |policy| {
        replaces_contents(policy, |cpu| {
            cpu.space().mmap(0, 2 * PAGE, RW, FIXED).unwrap();
        });
    });
}

#[test]
fn dont_need_discards_once() {
    explore(2500, |policy| {
        replaces_contents(policy, |cpu| {
            cpu.space().madvise(0, 2 * PAGE, advice::DONTNEED).unwrap();
        });
    });
}

/// Neighbours in one table are mapped and unmapped, so that the table is freed and installed again, beside a
/// page that stays.
#[test]
fn tables_come_and_go_beside_a_neighbour() {
    explore(2000, |policy| {
        let world = World::new(4, policy);
        world.map(7, 1, RW);
        let threads = [1, 2].map(|number| {
            world.run(number, move |cpu| {
                let at = u64::from(number) * PAGE;
                for round in 1..4 {
                    cpu.space().mmap(at, PAGE, RW, FIXED).unwrap();
                    assert_eq!(cpu.load(at), Ok(0));
                    cpu.store(at, round).unwrap();
                    assert_eq!(cpu.load(at), Ok(round));
                    cpu.space().munmap(at, PAGE).unwrap();
                    assert_eq!(cpu.load(at), Err(SegvCode::MapErr));
                }
            })
        });
        let neighbour = world.run(3, |cpu| {
            for round in 0..6 {
                cpu.set_bits(7 * PAGE, 1 << round).unwrap();
                if round == 2 {
                    let space = cpu.space();
                    space.madvise(7 * PAGE, PAGE, advice::DONTNEED).unwrap();
                }
            }
        });
        threads.into_iter().for_each(|t| t.join().unwrap());
        neighbour.join().unwrap();
        assert_eq!(world.cpu().load(7 * PAGE), Ok(0b111000));
        assert_eq!(world.finish().pages, 1);
    });
}

/// The same under an upper table, which is freed after both of its tables: no walk cache keeps a freed table.
fn upper_tables_come_and_go() {
    explore(1000, |policy| {
        let world = World::new(3, policy);
        let threads = [1, 2].map(|number| {
            world.run(number, move |cpu| {
                let at = u64::from(number) * ENTRIES * PAGE;
                for round in 1..4 {
                    cpu.space().mmap(at, PAGE, RW, FIXED).unwrap();
                    cpu.store(at, round).unwrap();
                    assert_eq!(cpu.load(at), Ok(round));
                    cpu.space().munmap(at, PAGE).unwrap();
                    cpu.space().memory().expedite();
                    // The other CPU's page, or none.
                    let beside = cpu.load((3 - u64::from(number)) * ENTRIES * PAGE);
                    assert!(matches!(beside, Ok(0..4) | Err(SegvCode::MapErr)));
                }
            })
        });
        threads.into_iter().for_each(|t| t.join().unwrap());
        let census = world.finish();
        assert_eq!((census.pages, census.mapped), (0, 0));
    });
}

#[test]
fn unused_upper_tables_are_freed() {
    upper_tables_come_and_go();
}

#[test]
#[should_panic(expected = "a walk cache holds a table that is freed")]
fn broken_tables_not_flushed() {
    with_flaw(Mutant::TableNotFlushed, upper_tables_come_and_go);
}

/// While `munmap` zaps with its lock downgraded, other CPUs map, protect, fault and unmap elsewhere. The
/// range is not reused before its pages are freed.
#[test]
fn writers_beside_a_zap() {
    explore(2000, |policy| {
        const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
        let world = World::new(4, policy);
        world.map(0, 20, RW);
        (0..20).for_each(|page| world.cpu().store(page * PAGE, 9).unwrap());
        let mapper = world.run(1, |cpu| {
            let at = cpu.space().mmap(4 * PAGE, 4 * PAGE, RW, ANON).unwrap();
            for page in 0..4 {
                assert_eq!(cpu.load(at + page * PAGE), Ok(0), "an old page");
                cpu.store(at + page * PAGE, 5).unwrap();
            }
            cpu.space().mprotect(at, 2 * PAGE, PROT_READ).unwrap();
            assert_eq!(cpu.store(at, 1), Err(SegvCode::AccErr));
            assert_eq!(cpu.load(at + 3 * PAGE), Ok(5));
        });
        let user = world.run(2, |cpu| {
            for page in [16, 30, 17] {
                let expected = if page == 30 {
                    Err(SegvCode::MapErr)
                } else {
                    Ok(9)
                };
                assert_eq!(cpu.load(page * PAGE), expected);
            }
        });
        let other = world.run(3, |cpu| cpu.space().munmap(18 * PAGE, 2 * PAGE));
        world.space().munmap(2 * PAGE, 12 * PAGE).unwrap();
        mapper.join().unwrap();
        user.join().unwrap();
        other.join().unwrap().unwrap();
        assert_eq!(world.finish().mapped, 20 - 12 - 2 + 4);
    });
}
