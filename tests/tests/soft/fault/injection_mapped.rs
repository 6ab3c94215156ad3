//! Allocation failures as in `injection_stores.rs`, in operations that copy, move and change mappings of files and
//! of shared memory.

use faultless_mm::{AddressSpace, Errno, advice, flags, remap_flags};
use faultless_soft::{SoftCpu, SoftSpace, Trap};
use faultless_tests::device::FIRST;
use faultless_tests::file_injection::{
    AT, File, OTHER, PAGE, PRIVATE, R, RW, SHARED, expect, inject, is_gone, touch,
};
use faultless_tests::inject::{Failing, Operation};

/// Pages of every kind of mapping, and some that are not present.
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
        /// The offset of the source, its length, the new length, and the flags.
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
                    // The reverse map leads to the new place of the pages.
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
                // As in Linux: ENOMEM if the mapping cannot be split, EAGAIN if it cannot be populated.
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
                // A fork keeps them for the child.
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
