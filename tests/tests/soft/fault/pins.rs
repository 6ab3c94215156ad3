//! Pinned pages on the soft machine: the pinning caller and the program see each other's stores, whatever happens
//! to the mapping, and the frame is freed once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use faultless_mm::{
    AddressSpace, Counter, Errno, Frame, FrameSource, MOST_PINS, Machine, MemoryObject, Opened,
    Outcome, Pager, PhysicalMemory, SegvCode, Taken, UserPage, advice, flags, remap_flags,
};
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace};
use faultless_tests::{available, budget, each_policy, machine, space};

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
const AT: u64 = 1 << 36;

fn map(cpu: &SoftCpu<'_>, pages: u64, prot: u32) {
    assert_eq!(cpu.space().mmap(AT, pages * PAGE, prot, ANON), Ok(AT));
}

/// The first word of a pinned page.
fn word(memory: &'static SoftMemory, page: &UserPage<Soft>) -> &'static AtomicU64 {
    word_in(memory, page.frame())
}

fn word_in(memory: &'static SoftMemory, frame: Frame) -> &'static AtomicU64 {
    let start = memory.machine().pointer(frame).cast::<AtomicU64>();
    // SAFETY: the machine's memory stays; the frame is not freed while it is pinned.
    unsafe { start.as_ref() }
}

fn store_by(memory: &'static SoftMemory, page: &UserPage<Soft>, value: u64) {
    word(memory, page).store(value, Ordering::SeqCst);
}

fn load_by(memory: &'static SoftMemory, page: &UserPage<Soft>) -> u64 {
    word(memory, page).load(Ordering::SeqCst)
}

fn pins(memory: &'static SoftMemory, frame: Frame) -> u32 {
    memory.machine().frames().descriptor(frame).pins()
}

#[test]
fn both_see_each_others_stores() {
    each_policy(1, 32, |cpu, space, memory| {
        map(cpu, 3, RW);
        // Populated by the pin, once for writing and once for a long-term read.
        for (at, taken) in [(AT, Taken::ToWrite), (AT + PAGE, Taken::ToReadForLong)] {
            let page = space.pin(at + 8, taken).ok().unwrap();
            assert_eq!(Some(page.frame()), space.translate(at));
            assert_eq!(load_by(memory, &page), 0);
            cpu.store(at, 5).unwrap();
            assert_eq!(load_by(memory, &page), 5);
            store_by(memory, &page, 6);
            assert_eq!(cpu.load(at), Ok(6));
            let again = space.pin(at, taken).ok().unwrap();
            assert_eq!(again.frame(), page.frame());
            assert_eq!(pins(memory, page.frame()), 2);
            drop(again);
            assert_eq!(pins(memory, page.frame()), 1);
        }
        // For a short read the zero page suffices, and it is not counted.
        let zero = memory.machine().frames().zero_frame();
        let page = space.pin(AT + 2 * PAGE, Taken::ToRead).ok().unwrap();
        assert_eq!((page.frame(), pins(memory, zero)), (zero, 0));
        cpu.store(AT + 2 * PAGE, 7).unwrap();
        assert_eq!(load_by(memory, &page), 0);
    });
}

#[test]
fn a_range_is_pinned_as_far_as_it_goes() {
    each_policy(1, 32, |cpu, space, _| {
        map(cpu, 8, RW);
        space.munmap(AT + 5 * PAGE, PAGE).unwrap();
        let mut pages = [const { None }; 8];
        assert_eq!(space.pin_pages(AT, Taken::ToWrite, &mut pages), Ok(5));
        assert_eq!(pages.iter().flatten().count(), 5);
        for (page, at) in pages.iter().flatten().zip((AT..).step_by(PAGE as usize)) {
            assert_eq!(Some(page.frame()), space.translate(at));
        }
        let none = space.pin_pages(AT + 5 * PAGE, Taken::ToWrite, &mut [None]);
        assert_eq!(none, Err(Outcome::Segv(SegvCode::MapErr)));
    });
}

#[test]
fn what_is_not_allowed_is_refused() {
    each_policy(1, 32, |cpu, space, _| {
        map(cpu, 6, RW);
        let refused = |page: u64, taken| space.pin(AT + page * PAGE, taken).err();
        let denied = Some(Outcome::Segv(SegvCode::AccErr));
        // Read only, write only, execute only, none.
        for (page, prot) in [(0, 1), (1, 2), (2, 4), (3, 0)] {
            space.mprotect(AT + page * PAGE, PAGE, prot).unwrap();
        }
        assert_eq!(refused(0, Taken::ToRead), None);
        assert_eq!(refused(0, Taken::ToWrite), denied);
        assert_eq!(refused(1, Taken::ToWrite), None);
        assert_eq!(refused(1, Taken::ToRead), denied);
        assert_eq!(refused(2, Taken::ToReadForLong), denied);
        assert_eq!(refused(3, Taken::ToRead), denied);
        space
            .madvise(AT + 4 * PAGE, PAGE, advice::GUARD_INSTALL)
            .unwrap();
        let nothing = Some(Outcome::Segv(SegvCode::MapErr));
        assert_eq!(refused(4, Taken::ToRead), nothing);
        assert_eq!(refused(6, Taken::ToRead), nothing);
        assert_eq!(refused(1 << 40, Taken::ToRead), nothing);
        // A stack does not grow.
        let stack = AT - 64 * PAGE;
        space
            .mmap(stack, PAGE, RW, ANON | flags::GROWSDOWN)
            .unwrap();
        assert!(space.pin(stack - PAGE, Taken::ToWrite).is_err());
        cpu.store(stack - PAGE, 1).unwrap();
        assert!(space.pin(stack - PAGE, Taken::ToWrite).is_ok());
    });
}

fn on<R>(space: &SoftSpace, program: impl FnOnce(&SoftCpu<'_>) -> R) -> R {
    SoftCpu::run(space, 0, program)
}

fn sound(memory: &'static SoftMemory, spaces: &[&SoftSpace]) {
    SoftCpu::attend(memory, 0, || AddressSpace::verify_together(spaces))
        .unwrap_or_else(|violation| panic!("{violation}"));
}

/// Ends the spaces and asserts that no frame leaked.
fn end(memory: &'static SoftMemory, spaces: Vec<SoftSpace>, before: u64) {
    sound(memory, &spaces.iter().collect::<Vec<_>>());
    SoftCpu::attend(memory, 0, || {
        for space in spaces {
            space.destroy();
        }
    });
    assert_eq!(available(memory), before, "frames were lost or found");
}

fn each_family(test: impl Fn(&'static SoftMemory, SoftSpace) -> Vec<SoftSpace>) {
    for &policy in faultless_mm::Policy::ALL {
        let memory = machine(2, 32);
        let before = available(memory);
        let parent = SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap();
        let spaces = test(memory, parent);
        end(memory, spaces, before);
    }
}

/// The parent keeps the pinned page, without a fault; the child gets a copy.
#[test]
fn a_pinned_page_is_copied_by_fork() {
    each_family(|memory, parent| {
        let pinned = on(&parent, |cpu| {
            map(cpu, 600, RW);
            for page in 0..600 {
                cpu.store(AT + page * PAGE, page + 1).unwrap();
            }
            let pinned = [3, 511, 512].map(|page| {
                let taken = if page == 3 {
                    Taken::ToRead
                } else {
                    Taken::ToWrite
                };
                (page, cpu.space().pin(AT + page * PAGE, taken).ok().unwrap())
            });
            // One that no access reaches now, and one that is read-only.
            cpu.space().mprotect(AT + 511 * PAGE, PAGE, 0).unwrap();
            cpu.space().mprotect(AT + 512 * PAGE, PAGE, 1).unwrap();
            pinned
        });
        let child = on(&parent, |cpu| cpu.space().fork()).unwrap();
        sound(memory, &[&parent, &child]);
        for (page, pin) in &pinned {
            let at = AT + page * PAGE;
            let (faults, copies) = (memory.total(Counter::Faults), memory.total(Counter::Copies));
            on(&parent, |cpu| {
                cpu.space().mprotect(at, PAGE, RW).unwrap();
                cpu.store(at, 77).unwrap();
            });
            assert_eq!(load_by(memory, pin), 77);
            assert_eq!(memory.total(Counter::Faults), faults, "page {page}");
            on(&child, |cpu| {
                cpu.space().mprotect(at, PAGE, RW).unwrap();
                assert_eq!(cpu.load(at), Ok(page + 1));
                cpu.store(at, 88).unwrap();
            });
            assert_eq!(load_by(memory, pin), 77);
            assert_eq!(memory.total(Counter::Copies), copies);
        }
        // The others are shared as ever.
        let copies = memory.total(Counter::Copies);
        on(&child, |cpu| cpu.store(AT + 4 * PAGE, 9)).unwrap();
        assert_eq!(memory.total(Counter::Copies), copies + 1);
        drop(pinned);
        vec![parent, child]
    });
}

/// A page that is mapped elsewhere too is unshared before it is pinned, in parent and child, for every use.
#[test]
fn a_shared_page_is_unshared_by_a_pin() {
    each_family(|memory, parent| {
        on(&parent, |cpu| {
            map(cpu, 4, RW);
            for page in 0..4 {
                cpu.store(AT + page * PAGE, page + 1).unwrap();
            }
            cpu.space().mprotect(AT + 2 * PAGE, PAGE, 1).unwrap();
        });
        let child = on(&parent, |cpu| cpu.space().fork()).unwrap();
        let copies = memory.total(Counter::Copies);
        let pages = [
            (0, Taken::ToRead),
            (1, Taken::ToWrite),
            (2, Taken::ToReadForLong),
        ]
        .map(|(page, taken)| {
            let at = AT + page * PAGE;
            let pin = on(&parent, |cpu| cpu.space().pin(at, taken)).ok().unwrap();
            assert_eq!(load_by(memory, &pin), page + 1);
            assert_eq!(memory.total(Counter::Copies), copies + page + 1);
            (at, pin)
        });
        sound(memory, &[&parent, &child]);
        for (at, pin) in &pages {
            on(&parent, |cpu| {
                cpu.space().mprotect(*at, PAGE, RW).unwrap();
                cpu.store(*at, 55).unwrap();
            });
            assert_eq!(load_by(memory, pin), 55);
        }
        // The child is the last space that maps the pages: its own pins copy nothing.
        let copies = memory.total(Counter::Copies);
        let pin = on(&child, |cpu| cpu.space().pin(AT, Taken::ToRead))
            .ok()
            .unwrap();
        assert_eq!(load_by(memory, &pin), 1);
        on(&child, |cpu| cpu.store(AT, 66)).unwrap();
        assert_eq!(load_by(memory, &pin), 66);
        assert_eq!(memory.total(Counter::Copies), copies);
        vec![parent, child]
    });
}

/// The frame and its content stay until the last pin is dropped.
#[test]
fn a_pinned_page_outlives_its_mapping() {
    let ways: [fn(&SoftCpu<'_>); 4] = [
        |cpu| cpu.space().munmap(AT, PAGE).unwrap(),
        |cpu| cpu.space().madvise(AT, PAGE, advice::DONTNEED).unwrap(),
        |cpu| map(cpu, 1, RW),
        |cpu| {
            cpu.space()
                .madvise(AT, PAGE, advice::GUARD_INSTALL)
                .unwrap()
        },
    ];
    each_policy(1, 32, |cpu, space, memory| {
        for way in ways {
            map(cpu, 1, RW);
            cpu.store(AT, 1).unwrap();
            let pin = space.pin(AT, Taken::ToWrite).ok().unwrap();
            let again = space.pin(AT, Taken::ToRead).ok().unwrap();
            way(cpu);
            map(cpu, 1, RW);
            assert_eq!(cpu.load(AT), Ok(0));
            cpu.store(AT, 2).unwrap();
            store_by(memory, &pin, 3);
            drop(pin);
            assert_eq!((cpu.load(AT), load_by(memory, &again)), (Ok(2), 3));
            let free = || memory.machine().allocator().census().available();
            let before = free();
            drop(again);
            assert_eq!(free(), before + 1);
        }
    });
}

/// So does the frame of a destroyed address space.
#[test]
fn a_pinned_page_outlives_its_space() {
    let (memory, space) = space(1, 32, faultless_mm::Policy::Speculative);
    let before = available(memory);
    let pin = on(&space, |cpu| {
        map(cpu, 1, RW);
        cpu.space().pin(AT, Taken::ToWrite).ok().unwrap()
    });
    SoftCpu::attend(memory, 0, || space.destroy());
    store_by(memory, &pin, 4);
    let left = available(memory);
    assert_eq!(load_by(memory, &pin), 4);
    SoftCpu::attend(memory, 0, || drop(pin));
    assert_eq!(available(memory), left + 1);
    assert!(available(memory) > before);
}

/// `mremap` takes the page along.
#[test]
fn a_pinned_page_moves() {
    each_policy(1, 32, |cpu, space, memory| {
        map(cpu, 2, RW);
        cpu.store(AT, 1).unwrap();
        let pin = space.pin(AT, Taken::ToWrite).ok().unwrap();
        let to = AT + (1 << 30);
        let flags = remap_flags::MAYMOVE | remap_flags::FIXED;
        assert_eq!(space.mremap(AT, 2 * PAGE, 2 * PAGE, flags, to), Ok(to));
        cpu.store(to, 2).unwrap();
        assert_eq!(load_by(memory, &pin), 2);
        assert_eq!(pins(memory, pin.frame()), 1);
        // Still its own, at the new place.
        space.verify().unwrap();
    });
}

/// `MADV_FREE` skips a pinned page, and a page that was lazily freed earlier is not reclaimed while pinned.
#[test]
fn a_pinned_page_is_not_freed_lazily() {
    each_policy(1, 32, |cpu, space, memory| {
        map(cpu, 3, RW);
        for page in 0..3 {
            cpu.store(AT + page * PAGE, page + 1).unwrap();
        }
        let first = space.pin(AT, Taken::ToRead).ok().unwrap();
        space.madvise(AT, 3 * PAGE, advice::FREE).unwrap();
        let second = space.pin(AT + PAGE, Taken::ToWrite).ok().unwrap();
        assert!(space.take_lazyfree());
        store_by(memory, &second, 9);
        drop((first, second));
        // A write through a pin is a write.
        space.take_lazyfree();
        let left = [0, 1, 2].map(|page| cpu.load(AT + page * PAGE));
        assert_eq!(left, [Ok(1), Ok(9), Ok(0)]);
    });
}

/// A file that cannot be read.
struct Bad;

impl Pager for Bad {
    fn fill(&self, _: u64, _: u64, _: Frame) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }
}

/// Pages of memory objects: of shared memory, of private mappings, of what is truncated.
#[test]
fn pages_of_stores() {
    each_policy(1, 32, |cpu, space, memory| {
        let store = MemoryObject::new(memory, 2 * PAGE, None, 0).unwrap();
        let opened = Opened {
            store: Ok(&store),
            offset: 0,
            file: 0,
            writable: true,
        };
        let private = AT + 16 * PAGE;
        let how = flags::SHARED | flags::FIXED;
        assert_eq!(space.mmap_object(AT, 3 * PAGE, RW, how, &opened), Ok(AT));
        let how = flags::PRIVATE | flags::FIXED;
        let mapped = space.mmap_object(private, 2 * PAGE, RW, how, &opened);
        assert_eq!(mapped, Ok(private));

        let pin = space.pin(AT, Taken::ToWrite).ok().unwrap();
        store_by(memory, &pin, 1);
        assert_eq!((cpu.load(AT), cpu.load(private)), (Ok(1), Ok(1)));
        // For a short read the file's page suffices; for a long-term read or a write it is copied.
        let now = space.pin(private, Taken::ToRead).ok().unwrap();
        assert_eq!(now.frame(), pin.frame());
        let long = space.pin(private, Taken::ToReadForLong).ok().unwrap();
        assert_ne!(long.frame(), pin.frame());
        cpu.store(private, 2).unwrap();
        assert_eq!((load_by(memory, &now), load_by(memory, &long)), (1, 2));
        assert!(matches!(
            space.pin(AT + 2 * PAGE, Taken::ToRead),
            Err(Outcome::Bus)
        ));

        // A truncation does not wait for pins.
        store.truncate(0).unwrap();
        assert_eq!((store.pages(), load_by(memory, &now)), (0, 1));
        assert!(matches!(space.pin(AT, Taken::ToRead), Err(Outcome::Bus)));
        drop((pin, now, long));

        let bad = MemoryObject::new(memory, PAGE, Some(&Bad), 0).unwrap();
        let opened = Opened {
            store: Ok(&bad),
            ..opened
        };
        assert_eq!(space.mmap_object(AT, PAGE, RW, how, &opened), Ok(AT));
        assert!(matches!(space.pin(AT, Taken::ToWrite), Err(Outcome::Bus)));
        space.munmap(AT, 32 * PAGE).unwrap();
    });
}

/// A fork that finds no memory for the copy of a pinned page changes nothing.
#[test]
fn a_fork_without_memory_for_the_copies() {
    each_family(|memory, parent| {
        let pins = on(&parent, |cpu| {
            map(cpu, 8, RW);
            [0, 1, 2, 3, 4, 5, 6, 7].map(|page| {
                cpu.store(AT + page * PAGE, page).unwrap();
                cpu.space()
                    .pin(AT + page * PAGE, Taken::ToWrite)
                    .ok()
                    .unwrap()
            })
        });
        let mut failed = 0;
        let child = loop {
            memory.machine().fail_in(Some(failed));
            let result = on(&parent, |cpu| cpu.space().fork());
            memory.machine().fail_in(None);
            match result {
                Ok(child) => break child,
                Err(error) => assert_eq!(error, Errno::ENOMEM),
            }
            sound(memory, &[&parent]);
            for (page, pin) in (0..).zip(&pins) {
                on(&parent, |cpu| {
                    cpu.store(AT + page * PAGE, 10 + failed as u64)
                })
                .unwrap();
                assert_eq!(load_by(memory, pin), 10 + failed as u64);
            }
            failed += 1;
        };
        assert!(failed >= 8, "each copy takes a frame: {failed}");
        drop(pins);
        vec![parent, child]
    });
}

/// One CPU pins, writes and unpins while others fork, discard and store.
#[test]
fn pins_beside_everything() {
    each_policy(4, 64, |cpu, space, memory| {
        const PAGES: u64 = 8;
        map(cpu, PAGES, RW);
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Words of its own on pages that no other CPU discards.
            scope.spawn(|| {
                SoftCpu::run(space, 1, |cpu| {
                    let mut round = 0u64;
                    while !ends.load(Ordering::SeqCst) {
                        round += 1;
                        let at = AT + round % (PAGES / 2) * PAGE;
                        let last = cpu.load(at).unwrap();
                        let pin = space.pin(at, Taken::ToWrite).ok().unwrap();
                        assert_eq!(load_by(memory, &pin), last, "another page is pinned");
                        store_by(memory, &pin, round);
                        assert_eq!(cpu.load(at), Ok(round), "a write through a pin is lost");
                        cpu.store(at, round + 1).unwrap();
                        assert_eq!(load_by(memory, &pin), round + 1, "a store is lost");
                    }
                });
            });
            // Pages that are discarded: a pinned frame keeps its content.
            scope.spawn(|| {
                SoftCpu::run(space, 2, |cpu| {
                    let mut round = 0u64;
                    while !ends.load(Ordering::SeqCst) {
                        round += 1;
                        let at = AT + (PAGES / 2 + round % (PAGES / 2)) * PAGE;
                        cpu.store(at, round).unwrap();
                        if let Ok(pin) = space.pin(at, Taken::ToReadForLong) {
                            let seen = load_by(memory, &pin);
                            assert!(seen == round || seen == 0, "{seen}");
                            assert_eq!(load_by(memory, &pin), seen);
                        }
                    }
                });
            });
            scope.spawn(|| {
                SoftCpu::run(space, 3, |_| {
                    while !ends.load(Ordering::SeqCst) {
                        let half = PAGES / 2 * PAGE;
                        space.madvise(AT + half, half, advice::DONTNEED).unwrap();
                        space.madvise(AT + half, half, advice::FREE).unwrap();
                        space.take_lazyfree();
                    }
                });
            });
            for _ in budget(400).rounds() {
                match space.fork() {
                    Ok(child) => drop(child.destroy()),
                    Err(error) => assert_eq!(error, Errno::ENOMEM),
                }
            }
            ends.store(true, Ordering::SeqCst);
        });
    });
}

/// The number of pins of a page is limited; at the limit a pin fails, and the page stays intact.
#[test]
fn a_page_is_pinned_only_so_often() {
    let most = MOST_PINS as usize;
    each_policy(1, 32, |cpu, space, memory| {
        map(cpu, 1, RW);
        cpu.store(AT, 1).unwrap();
        let frame = space.translate(AT).unwrap();
        let pin = |taken| space.pin(AT, taken);
        let mut all: Vec<_> = (0..most)
            .map(|_| pin(Taken::ToWrite).ok().unwrap())
            .collect();
        for taken in [Taken::ToRead, Taken::ToReadForLong, Taken::ToWrite] {
            assert!(matches!(pin(taken), Err(Outcome::OutOfMemory)));
        }
        assert_eq!(pins(memory, frame), MOST_PINS);
        cpu.store(AT, 2).unwrap();
        assert_eq!(load_by(memory, &all[0]), 2);
        drop(all.pop());
        all.push(pin(Taken::ToRead).ok().unwrap());
        assert!(pin(Taken::ToRead).is_err());
        space.munmap(AT, PAGE).unwrap();
        drop(all);
        assert!(!memory.machine().frames().descriptor(frame).is_used());

        let store = MemoryObject::new(memory, PAGE, None, 0).unwrap();
        let mut all: Vec<_> = (0..most).map(|_| store.page_to_write(0).unwrap()).collect();
        assert!(matches!(store.page_to_write(0), Err(Errno::ENOMEM)));
        assert!(matches!(store.page(0), Err(Errno::ENOMEM)));
        assert!(store.present(0).is_err());
        let opened = Opened {
            store: Ok(&store),
            offset: 0,
            file: 0,
            writable: true,
        };
        let how = flags::SHARED | flags::FIXED;
        assert_eq!(space.mmap_object(AT, PAGE, RW, how, &opened), Ok(AT));
        cpu.store(AT, 3).unwrap();
        assert!(matches!(pin(Taken::ToWrite), Err(Outcome::OutOfMemory)));
        assert_eq!(word_in(memory, all[0].frame()).load(Ordering::SeqCst), 3);
        drop(all.pop());
        assert!(store.present(0).is_ok_and(|page| page.is_some()));
        assert!(pin(Taken::ToWrite).is_ok());
        drop(all);
        space.munmap(AT, PAGE).unwrap();
        drop(store);
    });
}
