//! One allocation fails, or one and all that follow, at each place in the operations on files and shared
//! memory: objects, their indexes, faults on them, truncation. Nothing leaks, and the operation reports the
//! failure, has left the object as it was or has done a part that stays, and succeeds when repeated.
//! Changes of their mappings are in `injection_mapped.rs`.

use faultless_mm::{AddressSpace, Errno, MemoryObject, flags};
use faultless_soft::{SoftCpu, Trap};
use faultless_tests::device::FIRST;
use faultless_tests::file_injection::{
    AT, File, KINDS, OTHER, PAGE, PRIVATE, RW, SHARED, expect, inject, is_gone, touch,
};
use faultless_tests::inject::{Failing, Operation};

#[test]
fn making_a_store() {
    let outcomes = Operation {
        name: "MemoryObject::new",
        failing: Failing::Whole,
        prepare: &|_| (),
        act: &|cpu, ()| MemoryObject::new(cpu.space().memory(), PAGE, None, 0).map(drop),
        failed: &|_, (), _| {},
        check: &|_, ()| {},
    }
    .inject();
    assert!(outcomes.iter().all(|&(_, errors)| errors > 0));
}

#[test]
fn mapping_a_store() {
    for (name, how, is_shared) in [
        ("mmap_object shared", SHARED, true),
        ("mmap_object private", PRIVATE, false),
        ("mmap_object anywhere", flags::SHARED, true),
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
            "mmap_object POPULATE",
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
    // So high that the index needs nodes of every level.
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

/// The error of a fault: ENOMEM if the program would be killed for lack of memory.
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

/// A part of a page is zeroed in the object, for which the page is read first.
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
            // The size is set nevertheless, and the pages behind it are freed.
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
            // The device was not told of the hole, and still has these pages.
            expect(cpu, AT + 703 * PAGE, FIRST + 703);
        },
    );
}
