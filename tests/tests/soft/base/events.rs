//! Events: recorded per CPU while a tracer is on, not while it is off.

use faultless_mm::{Event, How, Kind, Latency, Mask, PAGE_SIZE, Policy, Reason, flags};
use faultless_soft::{Options, Soft, SoftCpu, SoftMemory};
use faultless_trace::Measure;

const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
const ALL: Mask = Mask::from_bits(u64::MAX);

/// Maps four pages and performs a few operations on them.
fn work(events: usize, record: Mask) -> &'static SoftMemory {
    perform(events, record, |cpu| {
        let at = cpu.space().mmap(0, 4 * PAGE_SIZE, 3, ANON).unwrap();
        cpu.store(at, 1).unwrap();
        cpu.load(at + PAGE_SIZE).unwrap();
        cpu.store(at + PAGE_SIZE, 1).unwrap();
        cpu.space().mprotect(at, PAGE_SIZE, 1).unwrap();
        assert!(cpu.store(at, 2).is_err());
        assert!(cpu.space().munmap(at + 1, PAGE_SIZE).is_err());
        // One page stays mapped, so the tables stay too.
        cpu.space().munmap(at, 3 * PAGE_SIZE).unwrap();
    })
}

/// Runs a program on one CPU that records.
fn perform(events: usize, record: Mask, program: impl FnOnce(&SoftCpu<'_>)) -> &'static SoftMemory {
    let options = Options {
        cpus: 1,
        memory: 16 << 20,
        record,
        events,
        ..Options::default()
    };
    let memory = Soft::start(options).unwrap();
    let space = SoftCpu::attend(memory, 0, || {
        Soft::space(memory, Policy::default()).unwrap()
    });
    SoftCpu::run(&space, 0, program);
    memory
}

/// The events but those of threads, and the number of lost ones.
fn events(memory: &'static SoftMemory) -> (Vec<Event>, u64) {
    let mut events = Vec::new();
    let ring = memory.cpus()[0].tracer().ring();
    let written = ring.collect(0, |_, event| events.push(event));
    let lost = written - events.len() as u64;
    events.retain(|event| event.kind != Kind::Switch);
    (events, lost)
}

fn kinds(size: usize, record: Mask) -> (Vec<Kind>, u64) {
    let (events, lost) = events(work(size, record));
    (events.iter().map(|event| event.kind).collect(), lost)
}

#[test]
fn a_ring_keeps_what_happened_in_the_order_in_which_it_ended() {
    use Kind::{Fault, Flush, Mmap, Mprotect, Munmap, RangeHold, SpfVmaAccess, Zap};
    let (kinds, lost) = kinds(64, ALL);
    let expected = [
        Mmap,
        Fault,
        Fault,
        Flush,
        Fault,
        Flush,
        Mprotect,
        SpfVmaAccess,
        Fault,
        Munmap,
        Flush,
        Zap,
        RangeHold,
        Munmap,
    ];
    assert_eq!((kinds, lost), (expected.to_vec(), 0));
}

/// A mapping in a hole, and an unmap of one, hold up no other writer for what was mapped.
#[test]
fn an_operation_in_a_hole_records_no_hold() {
    let memory = perform(64, ALL, |cpu| {
        let (at, fixed) = (1 << 30, ANON | flags::FIXED);
        assert_eq!(cpu.space().mmap(at, PAGE_SIZE, 3, fixed), Ok(at));
        assert_eq!(cpu.space().munmap(at + PAGE_SIZE, PAGE_SIZE), Ok(()));
        assert!(cpu.space().munmap(at + (1 << 30), 1 << 30).is_ok());
    });
    let (events, _) = events(memory);
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [Kind::Mmap, Kind::Munmap, Kind::Munmap]);
}

#[test]
fn events_say_what_happened_where_and_how_it_went() {
    let (events, _) = events(work(64, ALL));
    let faults: Vec<_> = events
        .iter()
        .filter(|event| event.kind == Kind::Fault)
        .collect();
    let hows: Vec<_> = faults
        .iter()
        .map(|event| (event.how(), event.has_table()))
        .collect();
    let expected = [
        (How::FirstTouch, true),
        (How::ZeroPage, false),
        (How::ZeroReplaced, false),
        (How::Segv, false),
    ];
    assert_eq!(hows, expected);
    assert!(faults.iter().all(|event| event.reason() == Reason::None));
    let at = events[0].address;
    let second = at + PAGE_SIZE;
    let addresses: Vec<_> = faults.iter().map(|event| event.address).collect();
    assert_eq!(addresses, [at, second, second, at]);
    assert_eq!(events[0].value, 4 * PAGE_SIZE);
    let unmaps: Vec<_> = events
        .iter()
        .filter(|event| event.kind == Kind::Munmap)
        .collect();
    assert_eq!((unmaps[0].code(), unmaps[1].code()), (22, 0));
    assert_eq!((unmaps[1].address, unmaps[1].value), (at, 3 * PAGE_SIZE));
    // Events of one CPU are in the order of their ends.
    assert!(events.is_sorted_by_key(|event| event.start + event.duration()));
}

#[test]
fn a_small_ring_keeps_the_newest_and_says_how_many_are_lost() {
    let options = Mask::NONE.with(Kind::Mmap).with(Kind::Munmap);
    assert_eq!(kinds(3, options), (vec![Kind::Munmap, Kind::Munmap], 1));
}

#[test]
fn only_what_is_asked_for_is_kept() {
    assert_eq!(
        kinds(64, Mask::NONE.with(Kind::Fault)),
        (vec![Kind::Fault; 4], 0)
    );
    assert_eq!(kinds(64, Mask::NONE), (vec![], 0));
    assert_eq!(kinds(64, Mask::LATENCIES), (vec![], 0));
    assert_eq!(kinds(0, ALL), (vec![], 0), "no memory, no events");
}

#[test]
fn latencies_are_counted_for_each_thing_that_takes_time() {
    for (record, is_on) in [(Mask::LATENCIES, true), (ALL, true), (Mask::NONE, false)] {
        let tracer = work(64, record).cpus()[0].tracer();
        for measure in Measure::all() {
            let mut latency = Latency::default();
            tracer.latencies().add_to(measure, &mut latency);
            let expected = match measure {
                _ if !is_on => 0,
                Measure::Fault(How::FirstTouch | How::ZeroPage | How::ZeroReplaced | How::Segv) => {
                    1
                }
                Measure::Operation(Kind::Mmap | Kind::Mprotect | Kind::Zap | Kind::RangeHold) => 1,
                Measure::Operation(Kind::Munmap) => 2,
                Measure::Operation(Kind::Flush) => 3,
                _ => 0,
            };
            assert_eq!(latency.count(), expected, "{measure:?} {record:?}");
            assert!(latency.total >= latency.max && latency.percentile(1.0) == latency.max);
        }
    }
}

#[test]
fn shootdowns_have_a_sender_and_a_receiver() {
    let options = Options {
        cpus: 2,
        memory: 16 << 20,
        record: ALL,
        ..Options::default()
    };
    let memory = Soft::start(options).unwrap();
    let space = SoftCpu::attend(memory, 0, || {
        Soft::space(memory, Policy::default()).unwrap()
    });
    SoftCpu::run(&space, 0, |cpu| {
        let at = space.mmap(0, 4 * PAGE_SIZE, 3, ANON).unwrap();
        cpu.store(at, 1).unwrap();
        std::thread::scope(|scope| {
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            let (ready, is_ready) = std::sync::mpsc::channel::<()>();
            let space = &space;
            let other = scope.spawn(move || {
                SoftCpu::run(space, 1, |other| {
                    other.load(at).unwrap();
                    ready.send(()).unwrap();
                    let _ = stopped.recv();
                    // The access answers pending shootdowns.
                    other.load(at + 3 * PAGE_SIZE).unwrap();
                });
            });
            is_ready.recv().unwrap();
            space.mprotect(at, PAGE_SIZE, 1).unwrap();
            stop.send(()).unwrap();
            other.join().unwrap();
        });
    });
    let of = |cpu: usize, kind| {
        let mut events = Vec::new();
        let ring = memory.cpus()[cpu].tracer().ring();
        ring.collect(0, |_, event| events.push(event));
        events.retain(|event: &Event| event.kind == kind);
        events
    };
    let sent = of(0, Kind::ShootdownSent);
    let sent: Vec<_> = sent
        .iter()
        .map(|event| (event.address, event.value))
        .collect();
    assert_eq!(sent, [(1, 1)], "to CPU 1, its first request");
    let received = of(1, Kind::ShootdownReceived);
    let received: Vec<_> = received
        .iter()
        .map(|event| (event.address, event.value))
        .collect();
    assert_eq!(received, [(0, 1)], "requests after 0, up to 1");
    let switches = of(1, Kind::Switch);
    let threads: Vec<_> = switches
        .iter()
        .map(|event| event.to_thread().thread)
        .collect();
    assert!(
        threads.len() == 2 && threads[0] > 0 && threads[1] == 0,
        "{threads:?}"
    );
}
