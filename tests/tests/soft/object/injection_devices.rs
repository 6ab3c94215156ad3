//! One allocation fails, or one and all that follow, at each place in the operations on mappings of a device.
//! Nothing leaks, the operation reports the failure, and it succeeds when repeated.

use std::sync::atomic::Ordering::SeqCst;

use faultless_mm::{Caching, Device, Errno, advice, remap_flags};
use faultless_soft::{Soft, SoftCpu, Trap};
use faultless_tests::frames_device::{PAGE, SHARED, device, map, word};
use faultless_tests::inject::{Failing, Operation};

const RW: u32 = 3;
const AT: u64 = 1 << 36;
const OTHER: u64 = AT + (1 << 30);

/// Two hundred pages of the device, of which some are touched.
fn mapped(cpu: &SoftCpu<'_>) -> Device<Soft> {
    let device = device(cpu.space().memory());
    map(cpu.space(), &device, AT, (0, 200), RW, SHARED).unwrap();
    for page in [0, 70, 199] {
        cpu.store(AT + page * PAGE, page).unwrap();
    }
    device
}

type Act<'a> = &'a dyn Fn(&SoftCpu<'_>, &Device<Soft>) -> Result<u64, Errno>;

fn inject(
    name: &str,
    prepare: &dyn Fn(&SoftCpu<'_>) -> Device<Soft>,
    act: Act<'_>,
    check: &dyn Fn(&SoftCpu<'_>, &Device<Soft>),
) {
    let outcomes = Operation {
        name,
        failing: Failing::Whole,
        prepare,
        act,
        failed: &|_, _, error| assert!(matches!(error, Errno::ENOMEM | Errno::EAGAIN), "{name}"),
        check: &|cpu, device| {
            check(cpu, device);
            // The failed operation left nothing in the object's list.
            device.revoke();
            device.restore();
        },
    }
    .inject();
    for (allocations, errors) in outcomes {
        assert!(allocations > 0, "{name} allocates nothing");
        assert!(errors > 0, "{name} never fails");
    }
}

#[test]
fn making_one() {
    let outcomes = Operation {
        name: "Device::new",
        failing: Failing::Whole,
        prepare: &|_| (),
        act: &|cpu, ()| {
            let memory = cpu.space().memory();
            let frames = memory.machine().device_frames();
            Device::new(memory, frames, Caching::Uncached, None, 0).map(drop)
        },
        failed: &|_, (), _| {},
        check: &|_, ()| {},
    }
    .inject();
    assert!(outcomes.iter().all(|&(_, errors)| errors > 0));
}

#[test]
fn mapping_it() {
    inject(
        "mmap_device",
        &|cpu| device(cpu.space().memory()),
        &|cpu, device| map(cpu.space(), device, AT + 3 * PAGE, (5, 77), RW, SHARED),
        &|cpu, _| {
            cpu.store(AT + 3 * PAGE, 4).unwrap();
            assert_eq!(word(cpu.space().memory(), 5).load(SeqCst), 4);
        },
    );
}

#[test]
fn faults() {
    for store in [false, true] {
        inject(
            "fault",
            &|cpu| {
                let device = device(cpu.space().memory());
                map(cpu.space(), &device, AT, (0, 200), RW, SHARED).unwrap();
                device
            },
            &|cpu, _| {
                let seen = match store {
                    true => cpu.store(AT + 70 * PAGE, 5).map(|()| 5),
                    false => cpu.load(AT + 70 * PAGE),
                };
                seen.map_err(|trap| match trap {
                    Trap::OutOfMemory => Errno::ENOMEM,
                    _ => Errno::EFAULT,
                })
            },
            &|cpu, _| cpu.store(AT + 70 * PAGE, 6).unwrap(),
        );
    }
}

#[test]
fn changing_mappings_of_it() {
    let pages = |cpu: &SoftCpu<'_>, at: u64| {
        assert_eq!(cpu.load(at), Ok(0));
        assert_eq!(cpu.load(at + 199 * PAGE), Ok(199));
    };
    inject(
        "munmap",
        &mapped,
        &|cpu, _| {
            let gone = cpu.space().munmap(AT + 65 * PAGE, 66 * PAGE);
            gone.map(|()| 0)
        },
        &|cpu, _| {
            pages(cpu, AT);
            assert!(cpu.load(AT + 70 * PAGE).is_err());
        },
    );
    inject(
        "mremap",
        &mapped,
        &|cpu, _| {
            let how = remap_flags::MAYMOVE | remap_flags::FIXED;
            cpu.space().mremap(AT, 200 * PAGE, 200 * PAGE, how, OTHER)
        },
        &|cpu, _| pages(cpu, OTHER),
    );
    inject(
        "mprotect",
        &mapped,
        &|cpu, _| {
            let changed = cpu.space().mprotect(AT + 65 * PAGE, 66 * PAGE, 1);
            changed.map(|()| 0)
        },
        &|cpu, _| {
            pages(cpu, AT);
            assert!(cpu.store(AT + 70 * PAGE, 1).is_err());
        },
    );
    inject(
        "madvise",
        &mapped,
        &|cpu, _| {
            let space = cpu.space();
            let changed = space.madvise(AT + 65 * PAGE, 66 * PAGE, advice::DONTFORK);
            changed.map(|()| 0)
        },
        &|cpu, _| pages(cpu, AT),
    );
    inject(
        "fork",
        &mapped,
        &|cpu, _| cpu.space().fork().map(|child| child.destroy()),
        &|cpu, _| pages(cpu, AT),
    );
}
