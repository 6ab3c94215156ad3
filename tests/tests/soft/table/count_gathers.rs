//! One flush for each operation, whatever it unmaps: counted on pages that another CPU has loaded.

use std::sync::mpsc::channel;

use faultless_mm::{AgingMode, advice, remap_flags};
use faultless_soft::SoftSpace;
use faultless_tests::cpus::{AT, Cpus, FIXED, with_cpus};

const PAGE: u64 = 4096;
const RW: u32 = 3;
/// Pages that are present, and that CPU 1 has loaded.
const PAGES: u64 = 6;

/// Populates the pages again and loads them on CPUs 0 and 1.
fn share(cpus: &Cpus) {
    for page in 0..PAGES {
        cpus.store(0, AT + page * PAGE);
        cpus.load(1, AT + page * PAGE);
    }
}

/// Asserts that an operation flushes once.
#[track_caller]
fn once(cpus: &Cpus, what: &str, work: impl FnOnce(&SoftSpace) + Send + 'static) {
    cpus.asks(what, &[1, 2], work);
}

fn advise(space: &SoftSpace, what: i32) {
    assert_eq!(space.madvise(AT, PAGES * PAGE, what), Ok(()));
}

#[test]
fn what_takes_pages_away() {
    with_cpus(|cpus| {
        share(cpus);
        once(cpus, "DONTNEED", |space| advise(space, advice::DONTNEED));
        share(cpus);
        once(cpus, "guards", |space| advise(space, advice::GUARD_INSTALL));
        cpus.asks("no guards", &[], |space| {
            advise(space, advice::GUARD_REMOVE)
        });
        share(cpus);
        once(cpus, "FIXED", |space| {
            assert_eq!(space.mmap(AT, PAGES * PAGE, RW, FIXED), Ok(AT));
        });
        share(cpus);
        once(cpus, "munmap", |space| {
            space.munmap(AT, PAGES * PAGE).unwrap()
        });
    });
}

#[test]
fn what_lowers_pages() {
    with_cpus(|cpus| {
        share(cpus);
        once(cpus, "mprotect", |space| {
            space.mprotect(AT, PAGES * PAGE, 1).unwrap()
        });
        cpus.asks("and back", &[], |space| {
            space.mprotect(AT, PAGES * PAGE, RW).unwrap()
        });
        share(cpus);
        once(cpus, "FREE", |space| advise(space, advice::FREE));
        share(cpus);
        once(cpus, "clear_refs 4", |space| space.clear_soft_dirty());
        share(cpus);
        once(cpus, "clear_refs 1", |space| {
            space.clear_accessed(AgingMode::All)
        });
    });
}

#[test]
fn what_moves_pages() {
    with_cpus(|cpus| {
        share(cpus);
        let to = AT + 100 * PAGE;
        once(cpus, "mremap", move |space| {
            let fixed = remap_flags::MAYMOVE | remap_flags::FIXED;
            let moved = space.mremap(AT, PAGES * PAGE, PAGES * PAGE, fixed, to);
            assert_eq!(moved, Ok(to));
        });
        (0..PAGES).for_each(|page| cpus.load(1, to + page * PAGE));
        once(cpus, "shrunk", move |space| {
            let kept = space.mremap(to, PAGES * PAGE, PAGE, 0, 0);
            assert_eq!(kept, Ok(to));
        });
    });
}

#[test]
fn a_family() {
    with_cpus(|cpus| {
        share(cpus);
        // One flush for all tables, to the CPUs that have walked any of them.
        once(cpus, "fork", |space| {
            let child = space.fork().unwrap();
            // The child's destruction, which unmaps pages, flushes nothing.
            child.destroy();
        });
    });
}

/// Empty tables are freed with the flush of the pages, however many levels of them there are, and also if
/// a child maps the pages.
#[test]
fn what_empties_tables() {
    // Nothing else is mapped within 512 GiB.
    const FAR: u64 = 0x5000_0000_0000;
    let go = |space: &SoftSpace| space.munmap(FAR, PAGES * PAGE).unwrap();
    let load = |cpus: &Cpus| (0..PAGES).for_each(|page| cpus.load(1, FAR + page * PAGE));
    let come = |cpus: &Cpus| {
        cpus.on(0, |cpu| {
            let mapped = cpu.space().mmap(FAR, PAGES * PAGE, RW, FIXED);
            assert_eq!(mapped, Ok(FAR));
        });
        (0..PAGES).for_each(|page| cpus.store(0, FAR + page * PAGE));
        load(cpus);
    };
    with_cpus(|cpus| {
        come(cpus);
        once(cpus, "munmap", go);
        come(cpus);
        let (send, receive) = channel();
        cpus.on(0, move |cpu| {
            send.send(cpu.space().fork().unwrap()).unwrap()
        });
        let child = receive.recv().unwrap();
        load(cpus);
        once(cpus, "munmap of pages that a child maps, too", go);
        cpus.on(0, move |_| {
            assert!(child.lookup(FAR).is_some());
            child.destroy();
        });
    });
}
