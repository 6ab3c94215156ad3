//! One allocation fails, or one and all that follow, at each place in the operations that reach user pages from
//! outside of the program: pins, accesses through `access`, migration. Also operations that need no memory at all,
//! because they free some or only read.

use std::cell::Cell;
use std::ops::Range;

use faultless_mm::{
    Access, AgingMode, Errno, Frame, FrameSource, Machine, MemoryObject, Mover, Opened, Outcome,
    PhysicalMemory, Taken, advice, flags, remap_flags,
};
use faultless_soft::{Soft, SoftCpu, SoftSpace};
use faultless_tests::device::{Device, FIRST};
use faultless_tests::each_policy;
use faultless_tests::inject::{Failing, Operation, Stage};

const PAGE: u64 = 4096;
const R: u32 = 1;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
const SHARED: u32 = flags::SHARED | flags::FIXED;
const PRIVATE: u32 = flags::PRIVATE | flags::FIXED;
/// Far from everything, so that tables and nodes of every level are missing.
const AT: u64 = 1 << 36;
const ALL: [Taken; 3] = [Taken::ToRead, Taken::ToReadForLong, Taken::ToWrite];

fn map(cpu: &SoftCpu<'_>, pages: u64) {
    assert_eq!(cpu.space().mmap(AT, pages * PAGE, RW, ANON), Ok(AT));
}

fn map_device(cpu: &SoftCpu<'_>, pages: u64, prot: u32, how: u32) -> MemoryObject<Soft> {
    let memory = cpu.space().memory();
    let store = MemoryObject::new(memory, pages * PAGE, Some(Device::new(memory)), 7).unwrap();
    let opened = Opened {
        store: Ok(&store),
        offset: 0,
        file: 0,
        writable: true,
    };
    let mapped = cpu
        .space()
        .mmap_object(AT, pages * PAGE, prot, how, &opened);
    assert_eq!(mapped, Ok(AT));
    store
}

/// The first word of a frame.
fn word(space: &SoftSpace, frame: Frame) -> *mut u64 {
    let pointer = space.memory().machine().pointer(frame);
    pointer.cast().as_ptr()
}

fn pin(cpu: &SoftCpu<'_>, at: u64, taken: Taken) -> Result<(), Outcome> {
    let space = cpu.space();
    let page = space.pin(at, taken)?;
    let frames = space.memory().machine().frames();
    if page.frame() != frames.zero_frame() {
        assert_eq!(frames.descriptor(page.frame()).pins(), 1);
    }
    assert_eq!(space.translate(at), Some(page.frame()));
    Ok(())
}

/// Injects into an operation of which the only error is lack of memory, and asserts that this error occurs.
fn inject<S: Stage>(
    name: &str,
    prepare: &dyn Fn(&SoftCpu<'_>) -> S,
    act: &dyn Fn(&SoftCpu<'_>, &S) -> Result<(), Outcome>,
    failed: &dyn Fn(&SoftCpu<'_>, &S),
    check: &dyn Fn(&SoftCpu<'_>, &S),
) {
    let outcomes = Operation {
        name,
        failing: Failing::Whole,
        prepare,
        act,
        failed: &|cpu, stage, outcome| {
            assert_eq!(outcome, Outcome::OutOfMemory, "{name}");
            failed(cpu, stage);
        },
        check,
    }
    .inject();
    assert!(outcomes.iter().all(|&(_, errors)| errors > 0), "{name}");
}

#[test]
fn pinning_anonymous_pages() {
    for taken in ALL {
        inject(
            "pin of a page that is not there",
            &|cpu| map(cpu, 9),
            &|cpu, ()| pin(cpu, AT, taken),
            &|_, ()| {},
            &|cpu, ()| assert_eq!(cpu.load(AT), Ok(0)),
        );
    }
    for taken in [Taken::ToReadForLong, Taken::ToWrite] {
        inject(
            "pin of a page of zeroes",
            &|cpu| {
                map(cpu, 9);
                assert_eq!(cpu.load(AT), Ok(0));
            },
            &|cpu, ()| pin(cpu, AT, taken),
            &|cpu, ()| assert_eq!(cpu.load(AT), Ok(0)),
            &|cpu, ()| assert_eq!(cpu.store(AT, 1), Ok(())),
        );
    }
}

/// A page that is shared since a fork is unshared first, for a pin that only reads, too.
#[test]
fn pinning_what_a_child_has_too() {
    for taken in ALL {
        inject(
            "pin of a shared page",
            &|cpu| {
                map(cpu, 9);
                cpu.store(AT, 5).unwrap();
                vec![cpu.space().fork().unwrap()]
            },
            &|cpu, _| pin(cpu, AT, taken),
            &|cpu, children| {
                assert_eq!(cpu.load(AT), Ok(5));
                assert_eq!(cpu.space().translate(AT), children[0].translate(AT));
            },
            &|cpu, children| {
                assert_eq!(cpu.load(AT), Ok(5));
                assert_ne!(cpu.space().translate(AT), children[0].translate(AT));
            },
        );
    }
}

/// A mapping of a file.
struct File(MemoryObject<Soft>);

impl Stage for File {
    fn end(self) {}
}

#[test]
fn pinning_pages_of_files() {
    for how in [SHARED, PRIVATE] {
        for taken in ALL {
            for was_read in [false, true] {
                let prepare = |cpu: &SoftCpu<'_>| {
                    let file = File(map_device(cpu, 9, RW, how));
                    if was_read {
                        assert_eq!(cpu.load(AT + PAGE), Ok(FIRST + 1));
                    }
                    file
                };
                let is_there = was_read && (how == SHARED || taken == Taken::ToRead);
                let name = format!("pin of a file's page, {how:#x}, {taken:?}, {was_read}");
                let act = |cpu: &SoftCpu<'_>, _: &File| pin(cpu, AT + PAGE, taken);
                let check = |cpu: &SoftCpu<'_>, file: &File| {
                    assert_eq!(cpu.load(AT + PAGE), Ok(FIRST + 1));
                    assert_eq!(file.0.pages(), 1);
                };
                if is_there {
                    // Needs no memory, so injection would find no failure.
                    each_policy(1, 32, |cpu, space, memory| {
                        let file = prepare(cpu);
                        memory.machine().fail_from(Some(0));
                        assert_eq!(act(cpu, &file), Ok(()));
                        memory.machine().fail_from(None);
                        check(cpu, &file);
                        space.verify().unwrap();
                    });
                } else {
                    inject(&name, &prepare, &act, &|_, _| {}, &check);
                }
            }
        }
    }
}

#[test]
fn pinning_many() {
    let outcomes = Operation {
        name: "pin_pages",
        failing: Failing::Whole,
        prepare: &|cpu| map(cpu, 700),
        act: &|cpu, ()| {
            let mut pages: [_; 8] = [const { None }; 8];
            let from = AT + 508 * PAGE;
            let done = cpu.space().pin_pages(from, Taken::ToWrite, &mut pages)?;
            assert_eq!(pages.iter().flatten().count(), done);
            // A short count is no error: the next call does the rest.
            if done == pages.len() {
                Ok(())
            } else {
                Err(Outcome::OutOfMemory)
            }
        },
        failed: &|_, (), outcome| assert_eq!(outcome, Outcome::OutOfMemory),
        check: &|cpu, ()| {
            let there = |page| cpu.space().translate(AT + page * PAGE).is_some();
            assert!((508..516).all(there));
        },
    }
    .inject();
    assert!(outcomes.iter().all(|&(_, errors)| errors > 0));
}

fn peek(space: &SoftSpace, at: u64) -> Result<u64, Errno> {
    let value = Cell::new(0);
    // SAFETY: the frame is the page's while it is shown, and no other thread writes it.
    let mut look = |frame| value.set(unsafe { word(space, frame).read() });
    space.access(at, Access::Read, &mut look)?;
    Ok(value.get())
}

fn poke(space: &SoftSpace, at: u64, value: u64) -> Result<(), Errno> {
    // SAFETY: as above.
    space.access(at, Access::Write, &mut |frame| unsafe {
        word(space, frame).write(value);
    })
}

fn inject_access<S: Stage>(
    name: &str,
    prepare: &dyn Fn(&SoftCpu<'_>) -> S,
    was: u64,
    writes: bool,
    check: &dyn Fn(&SoftCpu<'_>, &S),
) {
    let outcomes = Operation {
        name,
        failing: Failing::Whole,
        prepare,
        act: &|cpu, _| {
            if writes {
                return poke(cpu.space(), AT, 77);
            }
            peek(cpu.space(), AT).map(|seen| assert_eq!(seen, was))
        },
        failed: &|cpu, _, errno| {
            assert_eq!(errno, Errno::ENOMEM, "{name}");
            assert_eq!(peek(cpu.space(), AT), Ok(was));
        },
        check: &|cpu, stage| {
            let now = if writes { 77 } else { was };
            assert_eq!(peek(cpu.space(), AT), Ok(now), "{name}");
            check(cpu, stage);
        },
    }
    .inject();
    assert!(outcomes.iter().all(|&(_, errors)| errors > 0), "{name}");
}

#[test]
fn accesses_from_outside() {
    for writes in [false, true] {
        for prot in [RW, R, 0] {
            let anonymous = |cpu: &SoftCpu<'_>| {
                map(cpu, 9);
                cpu.space().mprotect(AT, 9 * PAGE, prot).unwrap();
            };
            inject_access("access", &anonymous, 0, writes, &|_, ()| {});
            inject_access(
                "access to a private file",
                &|cpu| File(map_device(cpu, 9, prot, PRIVATE)),
                FIRST,
                writes,
                &|cpu, file| {
                    let page = file.0.present(0).unwrap().unwrap();
                    // SAFETY: pinned, and no other thread writes it.
                    let kept = unsafe { word(cpu.space(), page.frame()).read() };
                    assert_eq!(kept, FIRST, "the file itself is not written");
                },
            );
        }
        inject_access(
            "access to a shared file",
            &|cpu| File(map_device(cpu, 9, RW, SHARED)),
            FIRST,
            writes,
            &|_, _| {},
        );
    }
    for prot in [RW, R, 0] {
        inject_access(
            "access to what a child has too",
            &|cpu| {
                map(cpu, 9);
                cpu.store(AT, 5).unwrap();
                cpu.space().mprotect(AT, 9 * PAGE, prot).unwrap();
                vec![cpu.space().fork().unwrap()]
            },
            5,
            true,
            &|cpu, children| {
                let mine = cpu.space().page_state(AT).frame;
                assert_ne!(mine, children[0].page_state(AT).frame);
                assert_eq!(peek(&children[0], AT), Ok(5));
            },
        );
    }
}

/// A range of frames to evacuate, and the file that is mapped.
struct Full(Range<u64>, Option<MemoryObject<Soft>>);

impl Stage for Full {
    fn end(self) {}
}

/// The range of frames that covers all frames of the mapped pages.
fn used(space: &SoftSpace) -> Range<u64> {
    let frame = |page| space.translate(AT + page * PAGE).unwrap().0;
    let all = (0..20).map(frame);
    all.clone().min().unwrap()..all.max().unwrap() + 1
}

#[test]
fn moving_pages() {
    for of_file in [false, true] {
        let outcomes = Operation {
            name: "evacuate",
            // Pages moved before the failure stay moved.
            failing: Failing::Part,
            prepare: &|cpu| {
                let file = of_file.then(|| map_device(cpu, 20, RW, SHARED));
                if file.is_none() {
                    map(cpu, 20);
                }
                for page in 0..20 {
                    cpu.store(AT + page * PAGE, page + 1).unwrap();
                }
                Full(used(cpu.space()), file)
            },
            act: &|cpu, Full(range, _)| {
                let vacated = cpu.space().memory().evacuate(range.clone())?;
                assert_eq!(vacated.busy, 0);
                Ok::<_, Errno>(())
            },
            failed: &|cpu, _, errno| {
                assert_eq!(errno, Errno::ENOMEM);
                (0..20).for_each(|page| assert_eq!(cpu.load(AT + page * PAGE), Ok(page + 1)));
            },
            check: &|cpu, Full(range, file)| {
                assert_eq!(file.is_some(), of_file);
                for page in 0..20 {
                    let frame = cpu.space().translate(AT + page * PAGE).unwrap();
                    assert!(!range.contains(&frame.0), "page {page} is still there");
                    assert_eq!(cpu.load(AT + page * PAGE), Ok(page + 1));
                }
            },
        }
        .inject();
        assert!(outcomes.iter().all(|&(_, errors)| errors > 0));
    }
}

#[test]
fn moving_one_page() {
    let outcomes = Operation {
        name: "migrate",
        failing: Failing::Whole,
        prepare: &|cpu| {
            map(cpu, 3);
            cpu.store(AT, 5).unwrap();
            vec![cpu.space().fork().unwrap()]
        },
        act: &|cpu, _| {
            let (memory, from) = (cpu.space().memory(), cpu.space().translate(AT).unwrap());
            let mut mover = Mover::new(memory)?;
            let machine = memory.machine();
            // The destination is the caller's own frame; the move needs no other.
            let to = machine.frames().allocate(machine.cpu())?;
            assert_eq!(mover.migrate(from, to), Ok(()));
            machine.frames().free(machine.cpu(), from);
            Ok::<_, Errno>(())
        },
        failed: &|_, _, errno| assert_eq!(errno, Errno::ENOMEM),
        check: &|cpu, children| {
            assert_eq!(cpu.load(AT), Ok(5));
            assert_eq!(cpu.space().translate(AT), children[0].translate(AT));
        },
    }
    .inject();
    assert!(outcomes.iter().all(|&(_, errors)| errors > 0));
}

/// Operations that read, watch, or free need no memory, so they cannot fail for lack of it.
#[test]
fn what_needs_no_memory() {
    each_policy(1, 32, |cpu, space, memory| {
        map(cpu, 600);
        let anonymous = AT + (1 << 30);
        let how = remap_flags::MAYMOVE | remap_flags::FIXED;
        let moved = space.mremap(AT, 600 * PAGE, 600 * PAGE, how, anonymous);
        assert_eq!(moved, Ok(anonymous));
        let file = map_device(cpu, 600, RW, SHARED);
        for page in 0..600 {
            cpu.store(anonymous + page * PAGE, page + 1).unwrap();
            cpu.store(AT + page * PAGE, page + 1).unwrap();
        }
        memory.expedite();
        memory.drain();
        memory.machine().fail_from(Some(0));

        space.clear_soft_dirty();
        for of in [AgingMode::All, AgingMode::Anonymous, AgingMode::Objects] {
            space.clear_accessed(of);
        }
        for at in [AT, anonymous] {
            assert!(!space.page_state(at).soft_dirty);
            // The next store only raises the entry.
            cpu.store(at, 1).unwrap();
            assert!(space.page_state(at).soft_dirty);
            let mut words = [0; 600];
            assert_eq!(space.pagemap(at / PAGE, &mut words, true), 600);
            assert_eq!(space.usage(at..at + 600 * PAGE).resident, 600 * PAGE);
            assert_eq!(space.msync(at, 600 * PAGE, 4), Ok(()));
            assert!(space.lookup(at).is_some());
        }
        // Holes and sizes of whole pages, then discards.
        assert_eq!(file.punch(9 * PAGE..20 * PAGE), Ok(()));
        let removed = space.madvise(AT + 30 * PAGE, 9 * PAGE, advice::REMOVE);
        assert_eq!(removed, Ok(()));
        assert_eq!(file.truncate(500 * PAGE), Ok(()));
        assert_eq!(file.pages(), 500 - 11 - 9);
        for at in [AT, anonymous] {
            for what in [advice::FREE, advice::DONTNEED] {
                let done = space.madvise(at, 400 * PAGE, what);
                let is_file = at == AT && what == advice::FREE;
                assert_eq!(done.is_err(), is_file, "{what}: {done:?}");
            }
        }
        assert_eq!(file.pages(), 500 - 11 - 9);
        memory.machine().fail_from(None);

        assert_eq!(cpu.load(AT), Ok(1));
        assert_eq!(cpu.load(AT + 499 * PAGE), Ok(500));
        assert_eq!(cpu.load(anonymous), Ok(0));
        assert_eq!(cpu.load(anonymous + 499 * PAGE), Ok(500));
        space.verify().unwrap();
    });
}

/// Lazily freed pages are reclaimed for an operation that needs a frame: a fault, a fault that reads a page in,
/// and a pin.
#[test]
fn what_was_let_go_of_is_taken() {
    type Need = fn(&SoftCpu<'_>) -> bool;
    let needs: [(&str, Need); 5] = [
        ("fault", |cpu| cpu.store(AT + PAGE, 1).is_ok()),
        ("fault on a file", |cpu| cpu.load(OTHER) == Ok(FIRST)),
        ("pin", |cpu| pin(cpu, AT + PAGE, Taken::ToWrite).is_ok()),
        ("pin that unshares", |cpu| {
            pin(cpu, AT + 2 * PAGE, Taken::ToReadForLong).is_ok()
        }),
        ("access", |cpu| poke(cpu.space(), AT + PAGE, 1).is_ok()),
    ];
    for (name, need) in needs {
        each_policy(1, 2, |cpu, space, memory| {
            let how = ANON | flags::NORESERVE;
            assert_eq!(space.mmap(AT, 1000 * PAGE, RW, how), Ok(AT));
            assert_eq!(cpu.load(AT + PAGE), Ok(0));
            cpu.store(AT + 2 * PAGE, 2).unwrap();
            let child = space.fork().unwrap();
            let store = MemoryObject::new(memory, PAGE, Some(Device::new(memory)), 7).unwrap();
            let opened = Opened {
                store: Ok(&store),
                offset: 0,
                file: 0,
                writable: true,
            };
            let mapped = space.mmap_object(OTHER, PAGE, R, PRIVATE, &opened);
            assert_eq!(mapped, Ok(OTHER));
            drop(store.page_to_write(0).unwrap());
            assert_eq!(cpu.load(OTHER), Ok(FIRST));
            store.punch(0..PAGE).unwrap();
            // All memory there is.
            let more = 3..1000;
            let stored = more
                .clone()
                .take_while(|page| cpu.store(AT + page * PAGE, 1).is_ok())
                .count() as u64;
            assert!(stored > 100 && stored < 997, "{stored}");
            space
                .madvise(AT + 100 * PAGE, 50 * PAGE, advice::FREE)
                .unwrap();
            assert!(need(cpu), "{name}");
            space.verify().unwrap();
            child.destroy();
        });
    }
}

const OTHER: u64 = AT + (1 << 30);
