//! One allocation fails, or one and all that follow, at each place in registering a probe and in mapping a page
//! that has one. Either the probe and its breakpoint are everywhere, or neither; a new mapping may lack the
//! breakpoint, as on Linux, but is never incomplete.

use std::cell::RefCell;

use faultless_mm::{Errno, Probe};
use faultless_soft::{Soft, SoftCpu, SoftSpace};
use faultless_tests::each_policy;
use faultless_tests::file_injection::{AT, File, OTHER, PAGE, PRIVATE};
use faultless_tests::inject::{Failing, Operation, Stage};

const RX: u32 = 5;
const BREAKPOINT: u8 = 0xcc;
const BYTE: u64 = 70 * PAGE + 8;
const ORIGINAL: u8 = (1070 & 0xff) as u8;

/// A file and its probe, and children that have it mapped.
struct Probed {
    file: File,
    probe: RefCell<Option<Probe<Soft>>>,
    children: Vec<SoftSpace>,
}

impl Stage for Probed {
    fn children(&self) -> &[SoftSpace] {
        &self.children
    }

    fn end(self) {
        self.children.end();
    }
}

fn map(cpu: &SoftCpu<'_>, file: &File, at: u64) -> Result<u64, Errno> {
    let opened = faultless_mm::Opened {
        store: Ok(&file.store),
        offset: 0,
        file: 3,
        writable: false,
    };
    let space = cpu.space();
    space.mmap_object(at, 200 * PAGE, RX, PRIVATE, &opened)
}

fn probed(cpu: &SoftCpu<'_>) -> Probed {
    let file = File::of_device(cpu, 200);
    map(cpu, &file, AT).unwrap();
    map(cpu, &file, OTHER).unwrap();
    // One of them has the page already.
    cpu.load_u8(AT + BYTE).unwrap();
    Probed {
        file,
        probe: RefCell::new(None),
        children: Vec::new(),
    }
}

fn register(stage: &Probed) -> Result<u64, Errno> {
    let probe = Probe::register(&stage.file.store, BYTE, BREAKPOINT, 1)?;
    *stage.probe.borrow_mut() = Some(probe);
    Ok(0)
}

fn expect(cpu: &SoftCpu<'_>, places: &[u64], byte: u8) {
    for at in places {
        assert_eq!(cpu.load_u8(at + BYTE), Ok(byte), "{at:#x}");
    }
}

fn inject(
    name: &str,
    prepare: &dyn Fn(&SoftCpu<'_>) -> Probed,
    act: &dyn Fn(&SoftCpu<'_>, &Probed) -> Result<u64, Errno>,
    failed: &dyn Fn(&SoftCpu<'_>),
    check: &dyn Fn(&SoftCpu<'_>, &Probed),
) {
    let outcomes = Operation {
        name,
        failing: Failing::Whole,
        prepare,
        act,
        failed: &|cpu, _, error| {
            assert_eq!(error, Errno::ENOMEM, "{name}");
            failed(cpu);
        },
        check,
    }
    .inject();
    for (allocations, errors) in outcomes {
        assert!(allocations > 0, "{name} allocates nothing");
        assert!(errors > 0, "{name} never fails");
    }
}

#[test]
fn registering() {
    inject(
        "Probe::register",
        &probed,
        &|_, stage| register(stage),
        &|cpu| {
            expect(cpu, &[AT, OTHER], ORIGINAL);
            assert_eq!(cpu.space().probe_at(AT + BYTE), None);
        },
        &|cpu, stage| {
            expect(cpu, &[AT, OTHER], BREAKPOINT);
            assert_eq!(cpu.space().probe_at(OTHER + BYTE), Some(1));
            stage.probe.borrow_mut().take();
            expect(cpu, &[AT, OTHER], ORIGINAL);
        },
    );
}

#[test]
fn mapping_what_has_one() {
    let to = OTHER + (1 << 30);
    inject(
        "mmap of what has a probe",
        &|cpu| {
            let stage = probed(cpu);
            register(&stage).unwrap();
            stage
        },
        &|cpu, stage| map(cpu, &stage.file, to),
        &|cpu| expect(cpu, &[AT, OTHER], BREAKPOINT),
        &|cpu, stage| {
            expect(cpu, &[AT, OTHER], BREAKPOINT);
            let met = cpu.load_u8(to + BYTE).unwrap();
            assert!(met == BREAKPOINT || met == ORIGINAL, "{met:#x}");
            assert_eq!(cpu.space().probe_at(to + BYTE), Some(1));
            stage.probe.borrow_mut().take();
            expect(cpu, &[AT, OTHER, to], ORIGINAL);
        },
    );
}

#[test]
fn unmapping_and_forking() {
    let prepare = |cpu: &SoftCpu<'_>| {
        let stage = probed(cpu);
        register(&stage).unwrap();
        stage
    };
    inject(
        "munmap of what has a probe",
        &prepare,
        &|cpu, _| {
            let gone = cpu.space().munmap(AT + 65 * PAGE, 20 * PAGE);
            gone.map(|()| 0)
        },
        &|cpu| expect(cpu, &[AT, OTHER], BREAKPOINT),
        &|cpu, _| {
            assert_eq!(cpu.space().probe_at(AT + BYTE), None);
            assert!(cpu.space().may_show_probes());
            expect(cpu, &[OTHER], BREAKPOINT);
        },
    );
    inject(
        "fork of what has a probe",
        &prepare,
        &|cpu, _| {
            let child = cpu.space().fork()?;
            assert_eq!(child.probe_at(AT + BYTE), Some(1));
            Ok(child.destroy())
        },
        &|cpu| expect(cpu, &[AT, OTHER], BREAKPOINT),
        &|cpu, stage| {
            stage.probe.borrow_mut().take();
            expect(cpu, &[AT, OTHER], ORIGINAL);
        },
    );
}

/// Registered, and shared with a child, so that removing a breakpoint needs a copy. Memory just
/// sufficed for the fork, and not for breakpoints of the child's own.
fn shared(cpu: &SoftCpu<'_>) -> Probed {
    let mut stage = probed(cpu);
    register(&stage).unwrap();
    let machine = cpu.space().memory().machine();
    let forked = |allocations| {
        machine.fail_from(Some(allocations));
        let child = cpu.space().fork();
        machine.fail_from(None);
        child.ok()
    };
    stage.children.extend((0..).find_map(forked));
    stage
}

/// Asserts that the byte is the probe's or the file's.
fn expect_probe_or_original(cpu: &SoftCpu<'_>) {
    for at in [AT, OTHER] {
        let met = cpu.load_u8(at + BYTE).unwrap();
        assert!(met == BREAKPOINT || met == ORIGINAL, "{met:#x}");
        assert_eq!(cpu.space().probe_at(at + BYTE), Some(1), "no probe");
    }
}

fn is_nowhere(cpu: &SoftCpu<'_>, stage: &Probed) {
    expect(cpu, &[AT, OTHER], ORIGINAL);
    for space in stage.children.iter().chain([cpu.space()]) {
        assert_eq!(space.probe_at(AT + BYTE), None);
        assert!(!space.may_show_probes());
    }
}

#[test]
fn ending() {
    inject(
        "Probe::end",
        &shared,
        &|_, stage| match stage.probe.take().unwrap().end() {
            Ok(()) => Ok(0),
            Err((probe, error)) => {
                stage.probe.replace(Some(probe));
                Err(error)
            }
        },
        &expect_probe_or_original,
        &is_nowhere,
    );
}

/// A drop without memory leaves the end of the probe to the next registration, or to the end of the object.
#[test]
fn dropping_without_memory() {
    each_policy(1, 64, |cpu, space, memory| {
        for is_registered in [true, false] {
            let stage = shared(cpu);
            memory.machine().fail_from(Some(0));
            stage.probe.take();
            memory.machine().fail_from(None);
            expect(cpu, &[AT, OTHER], BREAKPOINT);
            expect_probe_or_original(cpu);
            if is_registered {
                // At the same byte: registration ends the first one.
                register(&stage).unwrap();
                expect(cpu, &[AT, OTHER], BREAKPOINT);
                stage.probe.take();
                is_nowhere(cpu, &stage);
            }
            space.munmap(AT, 200 * PAGE).unwrap();
            space.munmap(OTHER, 200 * PAGE).unwrap();
            stage.end();
            memory.expedite();
            memory.drain();
            let frames = memory.machine().allocator();
            let verified = memory.verify_machine(frames, [space].into_iter(), |_| Ok(()));
            assert_eq!(verified.unwrap().1.lost(), 0);
            // A new object in the same memory does not have it either.
            let file = File::of_device(cpu, 200);
            map(cpu, &file, AT).unwrap();
            expect(cpu, &[AT], ORIGINAL);
            assert_eq!(space.probe_at(AT + BYTE), None);
            space.munmap(AT, 200 * PAGE).unwrap();
        }
    });
}
