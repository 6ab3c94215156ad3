//! Events: kept per CPU while a ring is on, nothing while it is off.

use faultless_mm::{Kind, PAGE_SIZE, Policy, flags};
use faultless_soft::{Options, Soft, SoftCpu};

const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;

fn kinds(events: usize, on: bool) -> (Vec<Kind>, u64) {
    let options = Options {
        cpus: 1,
        memory: 16 << 20,
        events,
        ..Options::default()
    };
    let memory = Soft::start(options).unwrap();
    let space = SoftCpu::attend(memory, 0, || {
        Soft::space(memory, Policy::default()).unwrap()
    });
    let ring = memory.cpus()[0].ring();
    ring.enable(on);
    SoftCpu::run(&space, 0, |cpu| {
        let at = cpu.space().mmap(0, 4 * PAGE_SIZE, 3, ANON).unwrap();
        cpu.store(at, 1).unwrap();
        cpu.load(at + PAGE_SIZE).unwrap();
        cpu.space().mprotect(at, PAGE_SIZE, 1).unwrap();
        assert!(cpu.store(at, 2).is_err());
        // One page stays, and with it the tables.
        cpu.space().munmap(at, 3 * PAGE_SIZE).unwrap();
    });
    ring.enable(false);
    let (kept, lost) = ring.read();
    let kept: Vec<_> = kept.collect();
    assert!(
        kept.is_sorted_by_key(|event| event.time),
        "events in order of time"
    );
    (kept.into_iter().map(|event| event.kind).collect(), lost)
}

#[test]
fn a_ring_keeps_what_happened_in_order() {
    use Kind::{Fault, Flush, Map, Protect, SpfVmaAccess, Unmap};
    let (kinds, lost) = kinds(64, true);
    assert_eq!(
        kinds,
        [
            Map,
            Fault,
            Fault,
            Flush,
            Protect,
            SpfVmaAccess,
            Fault,
            Flush,
            Unmap
        ]
    );
    assert_eq!(lost, 0);
}

#[test]
fn a_small_ring_keeps_the_newest_and_says_how_many_are_lost() {
    let (kinds, lost) = kinds(2, true);
    assert_eq!((kinds, lost), (vec![Kind::Flush, Kind::Unmap], 7));
}

#[test]
fn a_ring_that_is_off_keeps_nothing() {
    assert_eq!(kinds(64, false), (vec![], 0));
    assert_eq!(kinds(0, true), (vec![], 0), "no memory, no events");
}
