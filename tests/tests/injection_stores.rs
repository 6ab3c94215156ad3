//! One allocation fails, wherever there is one, or it and all that follow, of what is done to
//! files and shared memory: stores, their indexes, faults on them, truncation, fork, and
//! whatever changes mappings of them. Nothing is lost, what failed says so and has left the
//! store as it was or has done a part that stays, and it works when repeated.

use faultless_mm::{
    AddressSpace, Errno, Opened, PhysicalMemory, Store, advice, flags, remap_flags,
};
use faultless_soft::{Soft, SoftCpu, SoftSpace, Trap};
use faultless_tests::device::{Device, FIRST};
use faultless_tests::inject::{Failing, Operation, Stage};

const PAGE: u64 = 4096;
const R: u32 = 1;
const RW: u32 = 3;
const SHARED: u32 = flags::SHARED | flags::FIXED;
const PRIVATE: u32 = flags::PRIVATE | flags::FIXED;
/// Far from everything, so that tables and nodes of every level are missing.
const AT: u64 = 1 << 36;
const OTHER: u64 = AT + (1 << 30);

/// A file, which comes from a device or begins as zeroes.
struct File {
    store: Store<Soft>,
    device: Option<&'static Device>,
}

impl Stage for File {
    fn end(self) {}
}

impl File {
    fn of_device(cpu: &SoftCpu<'_>, pages: u64) -> Self {
        let device = Device::new(cpu.space().memory());
        let store = Store::new(cpu.space().memory(), pages * PAGE, Some(device), 7).unwrap();
        Self {
            store,
            device: Some(device),
        }
    }

    fn of_zeroes(cpu: &SoftCpu<'_>, pages: u64) -> Self {
        Self {
            store: Store::new(cpu.space().memory(), pages * PAGE, None, 7).unwrap(),
            device: None,
        }
    }

    /// What a page reads as that nobody has written.
    fn fresh(&self, index: u64) -> u64 {
        self.device.map_or(0, |_| FIRST + index)
    }

    fn map(&self, cpu: &SoftCpu<'_>, at: u64, pages: u64, how: u32) -> Result<u64, Errno> {
        self.map_from(cpu, at, pages, how, 0)
    }

    fn map_from(
        &self,
        cpu: &SoftCpu<'_>,
        at: u64,
        pages: u64,
        how: u32,
        first: u64,
    ) -> Result<u64, Errno> {
        let opened = Opened {
            store: Ok(&self.store),
            offset: first * PAGE,
            file: 3,
            writable: true,
        };
        cpu.space().mmap_store(at, pages * PAGE, RW, how, &opened)
    }

    /// The first word of a page that is there.
    fn word(&self, cpu: &SoftCpu<'_>, index: u64) -> Option<u64> {
        let page = self.store.present(index).unwrap()?;
        let pointer = cpu.space().memory().machine().pointer(page.frame());
        // SAFETY: the page is pinned, and nobody writes it now.
        Some(unsafe { pointer.cast::<u64>().read() })
    }

    /// What the device was asked for is what there is.
    fn is_sound(&self) {
        if let Some(device) = self.device {
            assert_eq!(device.charged(), self.store.pages() as i64, "charged");
        }
    }
}

/// Whatever can be made of both kinds of file.
const KINDS: [fn(&SoftCpu<'_>, u64) -> File; 2] = [File::of_device, File::of_zeroes];

fn touch(cpu: &SoftCpu<'_>, at: u64, pages: u64, add: u64) {
    for page in 0..pages {
        assert_eq!(cpu.store(at + page * PAGE, add + page), Ok(()));
    }
}

fn expect(cpu: &SoftCpu<'_>, at: u64, value: u64) {
    assert_eq!(cpu.load(at), Ok(value), "{at:#x}");
}

fn is_gone(cpu: &SoftCpu<'_>, at: u64) {
    let gone = cpu.load(at);
    assert!(matches!(gone, Err(Trap::Segv { .. })), "{at:#x}: {gone:?}");
}

/// Injects into what is done to a file, each of whose errors is `errno`, and which does
/// allocate.
fn inject(
    name: &str,
    failing: Failing,
    errno: Errno,
    prepare: &dyn Fn(&SoftCpu<'_>) -> File,
    act: &dyn Fn(&SoftCpu<'_>, &File) -> Result<u64, Errno>,
    failed: &dyn Fn(&SoftCpu<'_>, &File),
    check: &dyn Fn(&SoftCpu<'_>, &File),
) {
    let outcomes = Operation {
        name,
        failing,
        prepare,
        act,
        failed: &|cpu, file, error| {
            assert_eq!(error, errno, "{name}");
            file.is_sound();
            failed(cpu, file);
        },
        check: &|cpu, file| {
            check(cpu, file);
            file.is_sound();
        },
    }
    .inject();
    for (allocations, errors) in outcomes {
        assert!(allocations > 0, "{name} allocates nothing");
        assert!(errors > 0, "{name} never fails");
    }
}

#[test]
fn making_a_store() {
    let outcomes = Operation {
        name: "Store::new",
        failing: Failing::Whole,
        prepare: &|_| (),
        act: &|cpu, ()| Store::new(cpu.space().memory(), PAGE, None, 0).map(drop),
        failed: &|_, (), _| {},
        check: &|_, ()| {},
    }
    .inject();
    assert!(outcomes.iter().all(|&(_, errors)| errors > 0));
}

#[test]
fn mapping_a_store() {
    for (name, how, is_shared) in [
        ("mmap_store shared", SHARED, true),
        ("mmap_store private", PRIVATE, false),
        ("mmap_store anywhere", flags::SHARED, true),
    ] {
        inject(
            name,
            Failing::Whole,
            Errno::ENOMEM,
            &|cpu| {
                let file = File::of_device(cpu, 100);
                let other = File::of_zeroes(cpu, 200);
                other.map(cpu, AT, 200, PRIVATE).unwrap();
                touch(cpu, AT, 200, 1);
                file
            },
            &|cpu, file| file.map_from(cpu, AT + 3 * PAGE, 77, how, 5),
            &|cpu, file| {
                assert!(!file.store.is_mapped_writable(), "in the list");
                expect(cpu, AT + 3 * PAGE, 4);
                file.store.truncate(100 * PAGE).unwrap();
            },
            &|cpu, file| {
                assert_eq!(file.store.is_mapped_writable(), is_shared);
                expect(cpu, AT + 80 * PAGE, 81);
                if how & flags::FIXED != 0 {
                    expect(cpu, AT + 3 * PAGE, FIRST + 5);
                    expect(cpu, AT + 79 * PAGE, FIRST + 81);
                }
            },
        );
    }
}

#[test]
fn mapping_and_populating() {
    for how in [SHARED, PRIVATE] {
        inject(
            "mmap_store POPULATE",
            Failing::Whole,
            Errno::ENOMEM,
            &|cpu| File::of_device(cpu, 70),
            &|cpu, file| file.map(cpu, AT, 70, how | flags::POPULATE),
            &|_, file| assert!(!file.store.is_mapped_writable()),
            &|cpu, file| {
                (0..70).for_each(|page| expect(cpu, AT + page * PAGE, FIRST + page));
                assert_eq!(file.store.pages(), 70);
            },
        );
    }
}

#[test]
fn sharing_anonymous_memory() {
    Operation {
        name: "mmap SHARED ANONYMOUS",
        failing: Failing::Whole,
        prepare: &|_| (),
        act: &|cpu, ()| {
            let how = SHARED | flags::ANONYMOUS;
            cpu.space().mmap(AT, 70 * PAGE, RW, how)
        },
        failed: &|cpu, (), error| {
            assert_eq!(error, Errno::ENOMEM);
            is_gone(cpu, AT);
        },
        check: &|cpu, ()| {
            expect(cpu, AT, 0);
            cpu.store(AT + 69 * PAGE, 9).unwrap();
            let child = cpu.space().fork().unwrap();
            AddressSpace::verify_together(&[cpu.space(), &child]).unwrap();
            child.destroy();
            expect(cpu, AT + 69 * PAGE, 9);
        },
    }
    .inject();
}

#[test]
fn pages_to_write() {
    // So high that the index grows, and has nodes of every level.
    const HIGH: u64 = 1 << 40;
    for of in KINDS {
        for index in [3, HIGH] {
            inject(
                "page_to_write",
                Failing::Whole,
                Errno::ENOMEM,
                &|cpu| of(cpu, HIGH + 1),
                &|_, file| file.store.page_to_write(index).map(|page| page.frame().0),
                &|cpu, file| {
                    assert_eq!((file.store.pages(), file.store.next(0)), (0, None));
                    assert_eq!(file.word(cpu, index), None);
                },
                &|cpu, file| {
                    assert_eq!(file.word(cpu, index), Some(file.fresh(index)));
                    assert_eq!(file.store.next(0), Some(index));
                },
            );
        }
        inject(
            "page_to_write behind the end",
            Failing::Whole,
            Errno::ENOMEM,
            &|cpu| of(cpu, 1),
            &|_, file| {
                let page = file.store.page_to_write(HIGH)?;
                assert!(file.store.extend_with(HIGH * PAGE + 8, HIGH, &page));
                Ok(0)
            },
            &|_, file| {
                assert_eq!((file.store.pages(), file.store.size()), (0, PAGE));
                assert_eq!(file.store.truncate(PAGE), Ok(()));
            },
            &|cpu, file| {
                assert_eq!(file.store.size(), HIGH * PAGE + 8);
                assert_eq!(file.word(cpu, HIGH), Some(0));
            },
        );
    }
}

#[test]
fn pages_to_read() {
    inject(
        "page",
        Failing::Whole,
        Errno::ENOMEM,
        &|cpu| File::of_device(cpu, 1 << 20),
        &|_, file| Ok(file.store.page(1 << 19)?.map_or(0, |page| page.frame().0)),
        &|_, file| assert_eq!(file.store.pages(), 0),
        &|cpu, file| assert_eq!(file.word(cpu, 1 << 19), Some(FIRST + (1 << 19))),
    );
}

/// A fault: the error is that of a program killed for want of memory.
fn trapped(result: Result<u64, Trap>) -> Result<u64, Errno> {
    result.map_err(|trap| match trap {
        Trap::OutOfMemory => Errno::ENOMEM,
        _ => Errno::EFAULT,
    })
}

#[test]
fn faults() {
    for of in KINDS {
        for how in [SHARED, PRIVATE] {
            let prepare = |cpu: &SoftCpu<'_>| {
                let file = of(cpu, 1000);
                file.map(cpu, AT, 1000, how).unwrap();
                file
            };
            let at = AT + 700 * PAGE;
            let failed = |_: &SoftCpu<'_>, file: &File| assert!(file.store.pages() <= 1);
            inject(
                "read",
                Failing::Whole,
                Errno::ENOMEM,
                &prepare,
                &|cpu, _| trapped(cpu.load(at)),
                &failed,
                &|cpu, file| expect(cpu, at, file.fresh(700)),
            );
            inject(
                "write",
                Failing::Whole,
                Errno::ENOMEM,
                &prepare,
                &|cpu, _| trapped(cpu.store(at, 5).map(|()| 0)),
                &failed,
                &|cpu, file| {
                    expect(cpu, at, 5);
                    let is_shared = how == SHARED;
                    let kept = if is_shared { 5 } else { file.fresh(700) };
                    assert_eq!(file.word(cpu, 700), Some(kept));
                },
            );
        }
        inject(
            "write after read",
            Failing::Whole,
            Errno::ENOMEM,
            &|cpu| {
                let file = of(cpu, 100);
                file.map(cpu, AT, 100, PRIVATE).unwrap();
                expect(cpu, AT + 9 * PAGE, file.fresh(9));
                file
            },
            &|cpu, _| trapped(cpu.store(AT + 9 * PAGE + 8, 5).map(|()| 0)),
            &|cpu, file| expect(cpu, AT + 9 * PAGE + 8, file.fresh(9)),
            &|cpu, file| {
                expect(cpu, AT + 9 * PAGE, file.fresh(9));
                expect(cpu, AT + 9 * PAGE + 8, 5);
            },
        );
        inject(
            "read around",
            Failing::Whole,
            Errno::ENOMEM,
            &|cpu| {
                let file = of(cpu, 16);
                (0..16).for_each(|page| drop(file.store.page_to_write(page).unwrap()));
                file.map(cpu, AT, 16, SHARED).unwrap();
                file
            },
            &|cpu, _| trapped(cpu.load(AT + 7 * PAGE)),
            &|_, file| assert_eq!(file.store.pages(), 16),
            &|cpu, file| {
                let mapped = |page| cpu.space().translate(AT + page * PAGE).is_some();
                assert!((0..16).all(mapped));
                expect(cpu, AT + 15 * PAGE, file.fresh(15));
            },
        );
    }
}

/// A part of a page is zeroed in the store, into which it has to be read.
#[test]
fn truncating_a_part_of_a_page() {
    let prepare = |cpu: &SoftCpu<'_>| {
        let file = File::of_device(cpu, 1000);
        file.map(cpu, AT, 1000, SHARED).unwrap();
        file.map(cpu, OTHER, 1000, PRIVATE).unwrap();
        touch(cpu, AT + 702 * PAGE, 5, 1);
        touch(cpu, OTHER + 702 * PAGE, 5, 1);
        file
    };
    let beyond = |cpu: &SoftCpu<'_>| {
        for address in [AT + 702 * PAGE, OTHER + 702 * PAGE] {
            assert_eq!(cpu.load(address), Err(Trap::Bus { address }));
        }
    };
    inject(
        "truncate",
        Failing::Whole,
        Errno::ENOMEM,
        &prepare,
        &|_, file| file.store.truncate(700 * PAGE + 8).map(|()| 0),
        &|cpu, file| {
            // The size is set all the same, and the pages behind it are gone.
            assert_eq!(file.store.size(), 700 * PAGE + 8);
            assert_eq!(file.store.pages(), 0);
            beyond(cpu);
        },
        &|cpu, file| {
            beyond(cpu);
            for at in [AT, OTHER] {
                expect(cpu, at + 700 * PAGE, FIRST + 700);
                expect(cpu, at + 700 * PAGE + 8, 0);
            }
            assert_eq!(file.store.pages(), 1);
        },
    );
    inject(
        "punch",
        Failing::Whole,
        Errno::ENOMEM,
        &prepare,
        &|_, file| {
            let hole = file.store.punch(700 * PAGE + 8..710 * PAGE + 16);
            hole.map(|()| 0)
        },
        &|cpu, file| {
            assert_eq!(file.store.size(), 1000 * PAGE);
            // Private copies stay.
            expect(cpu, OTHER + 703 * PAGE, 2);
        },
        &|cpu, _| {
            expect(cpu, AT + 700 * PAGE, FIRST + 700);
            expect(cpu, AT + 700 * PAGE + 8, 0);
            expect(cpu, AT + 710 * PAGE + 8, 0);
            expect(cpu, AT + 710 * PAGE + 16, FIRST + 710);
            // The device was not told of the hole, and has these.
            expect(cpu, AT + 703 * PAGE, FIRST + 703);
        },
    );
}

/// Pages of every kind of mapping, and some that are not there.
fn to_fork(cpu: &SoftCpu<'_>) -> File {
    let file = File::of_device(cpu, 700);
    file.map(cpu, AT, 700, SHARED).unwrap();
    file.map(cpu, OTHER, 700, PRIVATE).unwrap();
    cpu.space().mprotect(AT + 9 * PAGE, 5 * PAGE, R).unwrap();
    cpu.space().mprotect(OTHER + 9 * PAGE, 5 * PAGE, R).unwrap();
    let shared = SHARED | flags::ANONYMOUS;
    let far = OTHER + (1 << 31);
    assert_eq!(cpu.space().mmap(far, 9 * PAGE, RW, shared), Ok(far));
    for at in [AT, AT + 600 * PAGE, OTHER, OTHER + 600 * PAGE, far] {
        cpu.store(at, at / PAGE).unwrap();
    }
    for page in [1, 10, 601] {
        expect(cpu, AT + page * PAGE, FIRST + page);
        expect(cpu, OTHER + page * PAGE, FIRST + page);
    }
    file
}

fn look_as_parent(cpu: &SoftCpu<'_>) {
    for at in [AT, AT + 600 * PAGE, OTHER, OTHER + 600 * PAGE] {
        expect(cpu, at, at / PAGE);
    }
    for page in [1, 10, 601] {
        expect(cpu, OTHER + page * PAGE, FIRST + page);
    }
}

fn look_as_child(child: &SoftSpace) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            SoftCpu::run(child, 1, |cpu| {
                look_as_parent(cpu);
                cpu.store(OTHER, 1).unwrap();
                cpu.store(OTHER + 600 * PAGE, 1).unwrap();
            });
        });
    });
}

#[test]
fn forking() {
    inject(
        "fork",
        Failing::Whole,
        Errno::ENOMEM,
        &to_fork,
        &|cpu, _| {
            let child = cpu.space().fork()?;
            AddressSpace::verify_together(&[cpu.space(), &child]).unwrap();
            child.destroy();
            Ok(0)
        },
        &|cpu, file| {
            look_as_parent(cpu);
            cpu.store(OTHER + 600 * PAGE, OTHER / PAGE + 600).unwrap();
            // No mapping of a child is left in the list.
            file.store.punch(650 * PAGE..700 * PAGE).unwrap();
        },
        &|cpu, file| {
            look_as_parent(cpu);
            let child = cpu.space().fork().unwrap();
            look_as_child(&child);
            file.store.truncate(600 * PAGE).unwrap();
            child.destroy();
            expect(cpu, OTHER, OTHER / PAGE);
            let address = OTHER + 600 * PAGE;
            assert_eq!(cpu.load(address), Err(Trap::Bus { address }));
            cpu.space().munmap(AT, 700 * PAGE).unwrap();
            assert!(!file.store.is_mapped_writable());
        },
    );
}

#[test]
fn moving_mappings() {
    const MAYMOVE: u32 = remap_flags::MAYMOVE;
    const FIXED: u32 = MAYMOVE | remap_flags::FIXED;
    const TO: u64 = AT + (3 << 30) + 5 * PAGE;
    for (kind, how) in [("shared", SHARED), ("private", PRIVATE)] {
        let prepare = |cpu: &SoftCpu<'_>| {
            let file = File::of_device(cpu, 1000);
            file.map(cpu, AT, 600, how).unwrap();
            touch(cpu, AT, 600, 1);
            let over = File::of_zeroes(cpu, 90);
            over.map(cpu, TO, 90, how).unwrap();
            cpu.store(TO + PAGE, 99).unwrap();
            file
        };
        let as_before = |cpu: &SoftCpu<'_>, _: &File| {
            (0..600).for_each(|page| expect(cpu, AT + page * PAGE, page + 1));
            expect(cpu, TO + PAGE, 99);
        };
        /// Where from, how much of it, what it becomes, and how.
        type Move = (&'static str, u64, u64, u64, u32);
        let moves: [Move; 5] = [
            ("grows in place", 0, 600, 900, 0),
            ("moves and grows", 3, 590, 700, FIXED),
            ("moves and shrinks", 3, 590, 70, FIXED),
            ("shrinks in place", 3, 590, 70, 0),
            (
                "leaves an empty one",
                3,
                590,
                590,
                FIXED | remap_flags::DONTUNMAP,
            ),
        ];
        for (name, first, old, new, flags) in moves {
            let is_fixed = flags & remap_flags::FIXED != 0;
            let to = if is_fixed { TO } else { AT + first * PAGE };
            inject(
                &format!("mremap of {kind} memory {name}"),
                Failing::Whole,
                Errno::ENOMEM,
                &prepare,
                &|cpu, _| {
                    let space = cpu.space();
                    space.mremap(AT + first * PAGE, old * PAGE, new * PAGE, flags, TO)
                },
                &as_before,
                &|cpu, file| {
                    for page in 0..old.min(new) {
                        expect(cpu, to + page * PAGE, first + page + 1);
                    }
                    if new > old {
                        expect(cpu, to + (new - 1) * PAGE, FIRST + first + new - 1);
                    }
                    if flags & remap_flags::DONTUNMAP != 0 {
                        let left = if how == SHARED { 4 } else { FIRST + 3 };
                        expect(cpu, AT + 3 * PAGE, left);
                    } else if is_fixed {
                        is_gone(cpu, AT + 3 * PAGE);
                    }
                    expect(cpu, AT + 595 * PAGE, 596);
                    // The list leads to where the pages are now.
                    file.store.truncate(first * PAGE).unwrap();
                    assert_eq!(cpu.load(to), Err(Trap::Bus { address: to }));
                },
            );
        }
    }
    inject(
        "mremap of shared memory that doubles it",
        Failing::Whole,
        Errno::ENOMEM,
        &|cpu| {
            let file = File::of_device(cpu, 100);
            file.map(cpu, AT, 100, SHARED).unwrap();
            touch(cpu, AT, 100, 1);
            file
        },
        &|cpu, _| cpu.space().mremap(AT, 0, 50 * PAGE, FIXED, TO),
        &|cpu, _| is_gone(cpu, TO),
        &|cpu, _| {
            cpu.store(TO + 9 * PAGE, 77).unwrap();
            expect(cpu, AT + 9 * PAGE, 77);
            is_gone(cpu, TO + 50 * PAGE);
        },
    );
}

#[test]
fn changing_the_middle() {
    let prepare = |cpu: &SoftCpu<'_>| {
        let file = File::of_device(cpu, 200);
        file.map(cpu, AT, 200, SHARED).unwrap();
        touch(cpu, AT, 200, 1);
        file
    };
    let as_before = |cpu: &SoftCpu<'_>, file: &File| {
        assert!(file.store.is_mapped_writable());
        touch(cpu, AT, 200, 1);
    };
    inject(
        "munmap",
        Failing::Whole,
        Errno::ENOMEM,
        &prepare,
        &|cpu, _| cpu.space().munmap(AT + 3 * PAGE, 77 * PAGE).map(|()| 0),
        &as_before,
        &|cpu, file| {
            expect(cpu, AT + 2 * PAGE, 3);
            is_gone(cpu, AT + 3 * PAGE);
            expect(cpu, AT + 80 * PAGE, 81);
            assert_eq!(file.word(cpu, 3), Some(4));
        },
    );
    inject(
        "mprotect",
        Failing::Whole,
        Errno::ENOMEM,
        &prepare,
        &|cpu, _| {
            let space = cpu.space();
            space.mprotect(AT + 3 * PAGE, 77 * PAGE, R).map(|()| 0)
        },
        &as_before,
        &|cpu, _| {
            assert!(cpu.store(AT + 3 * PAGE, 1).is_err());
            expect(cpu, AT + 3 * PAGE, 4);
            touch(cpu, AT + 80 * PAGE, 9, 5);
        },
    );
}

#[test]
fn locking_and_populating() {
    for how in [SHARED, PRIVATE] {
        let prepare = |cpu: &SoftCpu<'_>| {
            let file = File::of_device(cpu, 200);
            file.map(cpu, AT, 200, how).unwrap();
            file
        };
        let all_there = |cpu: &SoftCpu<'_>, _: &File| {
            for page in 3..80 {
                assert!(cpu.space().translate(AT + page * PAGE).is_some());
                expect(cpu, AT + page * PAGE, FIRST + page);
            }
        };
        let outcomes = Operation {
            name: "mlock",
            // It stays locked when it cannot be populated.
            failing: Failing::Part,
            prepare: &prepare,
            act: &|cpu, _| cpu.space().mlock(AT + 3 * PAGE, 77 * PAGE, 0),
            failed: &|cpu, file, error| {
                // As Linux has it: what cannot be cut is ENOMEM, what cannot be populated EAGAIN.
                let is_locked = cpu.space().totals().locked == 77;
                let expected = if is_locked {
                    Errno::EAGAIN
                } else {
                    Errno::ENOMEM
                };
                assert_eq!(error, expected);
                file.is_sound();
            },
            check: &|cpu, file| {
                assert_eq!(cpu.space().totals().locked, 77);
                all_there(cpu, file);
                file.is_sound();
            },
        }
        .inject();
        assert!(outcomes.iter().all(|&(_, errors)| errors > 0));
        for what in [advice::POPULATE_READ, advice::POPULATE_WRITE] {
            inject(
                "madvise POPULATE",
                Failing::Whole,
                Errno::ENOMEM,
                &prepare,
                &|cpu, _| {
                    let space = cpu.space();
                    space.madvise(AT + 3 * PAGE, 77 * PAGE, what).map(|()| 0)
                },
                &|_, file| assert!(file.store.pages() <= 77),
                &all_there,
            );
        }
    }
}

#[test]
fn guarding() {
    for how in [SHARED, PRIVATE] {
        inject(
            "madvise GUARD_INSTALL",
            Failing::Whole,
            Errno::ENOMEM,
            &|cpu| {
                let file = File::of_device(cpu, 1200);
                file.map(cpu, AT, 1200, how).unwrap();
                touch(cpu, AT, 9, 1);
                file
            },
            &|cpu, _| {
                let (space, length) = (cpu.space(), 1100 * PAGE);
                let done = space.madvise(AT + PAGE, length, advice::GUARD_INSTALL);
                done.map(|()| 0)
            },
            &|cpu, _| expect(cpu, AT, 1),
            &|cpu, file| {
                expect(cpu, AT, 1);
                for page in [1, 8, 511, 512, 1100] {
                    is_gone(cpu, AT + page * PAGE);
                }
                expect(cpu, AT + 1101 * PAGE, FIRST + 1101);
                // A child does not lose them.
                let child = cpu.space().fork().unwrap();
                std::thread::scope(|scope| {
                    let look = || SoftCpu::run(&child, 1, |cpu| is_gone(cpu, AT + 8 * PAGE));
                    scope.spawn(look);
                });
                child.destroy();
                let removed = cpu.space().madvise(AT, 1200 * PAGE, advice::GUARD_REMOVE);
                assert_eq!(removed, Ok(()));
                expect(
                    cpu,
                    AT + 8 * PAGE,
                    if how == SHARED { 9 } else { FIRST + 8 },
                );
                file.is_sound();
            },
        );
    }
}
