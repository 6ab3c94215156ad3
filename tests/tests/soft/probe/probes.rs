//! Probes, on the soft machine: every program that maps a file's page for execution, before or after the
//! registration, meets the breakpoint, and none once the probe has ended. The file, shared mappings and writable
//! mappings are unaffected.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use faultless_mm::{Errno, Probe, advice, flags, remap_flags};
use faultless_soft::{Soft, SoftCpu, SoftSpace};
use faultless_tests::device::Device;
use faultless_tests::file_injection::{AT, File, OTHER, PAGE, PRIVATE, SHARED};
use faultless_tests::{budget, each_policy};

const R: u32 = 1;
const RX: u32 = 5;
const RW: u32 = 3;
const BREAKPOINT: u8 = 0xcc;
/// A byte of the file's third page, each word of which holds 1002.
const BYTE: u64 = 2 * PAGE + 8;
const ORIGINAL: u8 = (1002 & 0xff) as u8;

fn probe(file: &File, byte: u64) -> Result<Probe<Soft>, Errno> {
    Probe::register(&file.store, byte, BREAKPOINT, byte)
}

fn map(space: &SoftSpace, file: &File, at: u64, prot: u32, how: u32) {
    let opened = faultless_mm::Opened {
        store: Ok(&file.store),
        offset: 0,
        file: 3,
        writable: true,
    };
    let mapped = space.mmap_object(at, 8 * PAGE, prot, how, &opened);
    assert_eq!(mapped, Ok(at));
}

fn end_all(children: &mut Vec<SoftSpace>) {
    for child in children.drain(..) {
        child.destroy();
    }
}

/// The byte that a program reads at the probe's place in a mapping.
fn met(cpu: &SoftCpu<'_>, at: u64) -> u8 {
    cpu.load_u8(at + BYTE).unwrap()
}

#[test]
fn every_executable_mapping_meets_it() {
    each_policy(2, 32, |cpu, space, _| {
        let file = File::of_device(cpu, 8);
        // One mapping from before the registration, and one from after it.
        map(space, &file, AT, RX, PRIVATE);
        assert_eq!(met(cpu, AT), ORIGINAL);
        assert!(!space.may_show_probes());
        let probe = probe(&file, BYTE).unwrap();
        map(space, &file, OTHER, RX, PRIVATE);
        for at in [AT, OTHER] {
            assert_eq!(met(cpu, at), BREAKPOINT);
            assert_eq!(cpu.load_u8(at + BYTE + 8), Ok(ORIGINAL));
            assert_eq!(space.probe_at(at + BYTE), Some(BYTE));
            assert_eq!(space.probe_at(at + BYTE + 1), None);
            cpu.execute(at + BYTE).unwrap();
            assert!(cpu.store(at + BYTE, 1).is_err(), "it may be written now");
        }
        // Neither shared nor writable mappings show it, and the file does not contain it.
        let (shared, written) = (OTHER + (1 << 20), OTHER + (2 << 20));
        map(space, &file, shared, RX, SHARED);
        map(space, &file, written, RW, PRIVATE);
        assert_eq!(met(cpu, shared), ORIGINAL);
        assert_eq!(met(cpu, written), ORIGINAL);
        assert_eq!(file.word(cpu, 2), Some(1002));
        assert_eq!(space.probe_at(shared + BYTE), None);
        // A child has the breakpoint, in a moved mapping too.
        let how = remap_flags::MAYMOVE | remap_flags::FIXED;
        let to = OTHER + (3 << 20);
        assert_eq!(space.mremap(AT, 8 * PAGE, 8 * PAGE, how, to), Ok(to));
        assert_eq!(met(cpu, to), BREAKPOINT);
        assert_eq!(space.probe_at(to + BYTE), Some(BYTE));
        let child = space.fork().unwrap();
        let in_child = |expected| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    SoftCpu::run(&child, 1, |cpu| {
                        assert_eq!([met(cpu, to), met(cpu, OTHER)], [expected; 2]);
                    });
                });
            });
        };
        in_child(BREAKPOINT);
        assert_eq!(child.probe_at(OTHER + BYTE), Some(BYTE));
        drop(probe);
        in_child(ORIGINAL);
        for at in [to, OTHER, shared, written] {
            assert_eq!(met(cpu, at), ORIGINAL);
            assert_eq!(space.probe_at(at + BYTE), None);
        }
        assert!(!space.may_show_probes(), "a breakpoint is still noted");
        child.destroy();
    });
}

#[test]
fn it_is_there_once() {
    each_policy(1, 32, |cpu, space, _| {
        let file = File::of_device(cpu, 8);
        let first = probe(&file, BYTE).unwrap();
        assert_eq!(probe(&file, BYTE).err(), Some(Errno::EEXIST));
        assert_eq!(probe(&file, 8 * PAGE).err(), Some(Errno::EINVAL));
        let other = File::of_zeroes(cpu, 8);
        let elsewhere = probe(&other, BYTE).unwrap();
        let second = probe(&file, BYTE + 1).unwrap();
        map(space, &file, AT, R, PRIVATE);
        assert_eq!(met(cpu, AT), BREAKPOINT);
        assert_eq!(cpu.load_u8(AT + BYTE + 1), Ok(BREAKPOINT));
        drop(first);
        assert_eq!(met(cpu, AT), ORIGINAL);
        assert_eq!(cpu.load_u8(AT + BYTE + 1), Ok(BREAKPOINT));
        assert_eq!(space.probe_at(AT + BYTE + 1), Some(BYTE + 1));
        drop((second, elsewhere));
        // A device that cannot be read.
        let device: &Device = file.device.unwrap();
        device.fail(Some(Errno::EIO));
        assert_eq!(probe(&file, 7 * PAGE).err(), Some(Errno::EIO));
        device.fail(None);
        drop(probe(&file, 7 * PAGE).unwrap());
    });
}

/// After an unmap the next trap checks again whether probes are left, and nothing earlier.
#[test]
fn what_is_unmapped_is_checked_again() {
    each_policy(1, 32, |cpu, space, _| {
        let file = File::of_device(cpu, 8);
        let _probe = probe(&file, BYTE).unwrap();
        map(space, &file, AT, RX, PRIVATE);
        map(space, &file, OTHER, RX, PRIVATE);
        // A part without the breakpoint.
        space.munmap(AT + 4 * PAGE, PAGE).unwrap();
        assert_eq!(space.probe_at(AT), None);
        assert!(space.may_show_probes());
        space.munmap(AT + 2 * PAGE, PAGE).unwrap();
        assert!(space.may_show_probes());
        assert_eq!(space.probe_at(AT), None);
        assert!(space.may_show_probes(), "there is another one");
        assert_eq!(space.probe_at(OTHER + BYTE), Some(BYTE));
        let anonymous = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
        space.mmap(OTHER, 8 * PAGE, RW, anonymous).unwrap();
        assert!(space.may_show_probes());
        assert_eq!(space.probe_at(AT), None);
        assert!(!space.may_show_probes(), "nothing is left");
        map(space, &file, AT, RX, PRIVATE);
        assert!(space.may_show_probes());
        assert_eq!(met(cpu, AT), BREAKPOINT);
        // After a discard the page is the file's again, as on Linux.
        space.madvise(AT, 8 * PAGE, advice::DONTNEED).unwrap();
        assert_eq!(met(cpu, AT), ORIGINAL);
        assert_eq!(space.probe_at(AT + BYTE), Some(BYTE));
    });
}

/// The end of a probe reads, brings in or writes no page of a mapping that cannot show it.
#[test]
fn a_space_without_it_is_skipped() {
    each_policy(1, 32, |cpu, space, _| {
        let file = File::of_device(cpu, 8);
        // The program stores the breakpoint's byte itself.
        map(space, &file, AT, RW, PRIVATE);
        cpu.store(AT + BYTE, u64::from(BREAKPOINT)).unwrap();
        let ended = probe(&file, BYTE).unwrap();
        assert!(!space.may_show_probes());
        drop(ended);
        assert_eq!(met(cpu, AT), BREAKPOINT, "the program's own byte is gone");
        // Copies with the breakpoint that have been discarded.
        map(space, &file, AT, RX, PRIVATE);
        let ended = probe(&file, BYTE).unwrap();
        assert_eq!(met(cpu, AT), BREAKPOINT);
        space.madvise(AT, 8 * PAGE, advice::DONTNEED).unwrap();
        drop(ended);
        assert_eq!(space.translate(AT + BYTE), None, "it was brought");
        assert_eq!(met(cpu, AT), ORIGINAL);
    });
}

/// One CPU maps, moves, unmaps and forks; another registers and ends probes. After a registration the mapping that
/// stays shows the breakpoint; after the end it does not.
#[test]
fn beside_everything() {
    each_policy(3, 32, |cpu, space, memory| {
        let file = File::of_device(cpu, 8);
        map(space, &file, AT, RX, PRIVATE);
        let ended = AtomicBool::new(false);
        let (file, ended) = (&file, &ended);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                SoftCpu::run(space, 1, |cpu| {
                    while !ended.load(SeqCst) {
                        let probe = probe(file, BYTE).unwrap();
                        assert_eq!(met(cpu, AT), BREAKPOINT);
                        assert_eq!(space.probe_at(AT + BYTE), Some(BYTE));
                        drop(probe);
                        assert_eq!(met(cpu, AT), ORIGINAL);
                    }
                });
            });
            scope.spawn(move || {
                SoftCpu::run(space, 2, |cpu| {
                    while !ended.load(SeqCst) {
                        let byte = met(cpu, AT);
                        assert!(byte == BREAKPOINT || byte == ORIGINAL, "{byte:#x}");
                        assert_eq!(space.probe_at(AT), None);
                    }
                });
            });
            let (here, there) = (OTHER, OTHER + (1 << 20));
            let how = remap_flags::MAYMOVE | remap_flags::FIXED;
            let mut children = Vec::new();
            for round in budget(600).rounds() {
                match round % 6 {
                    0 => map(space, file, here, RX, PRIVATE),
                    1 => drop(space.mremap(here, 8 * PAGE, 8 * PAGE, how, there)),
                    2 => children.push(space.fork().unwrap()),
                    3 => drop(space.mremap(there, 8 * PAGE, 8 * PAGE, how, here)),
                    4 => end_all(&mut children),
                    _ => space.munmap(here, 8 * PAGE).unwrap(),
                }
            }
            end_all(&mut children);
            ended.store(true, SeqCst);
        });
        // No breakpoint is left in any mapping.
        map(space, file, OTHER, RX, PRIVATE);
        assert_eq!([met(cpu, AT), met(cpu, OTHER)], [ORIGINAL; 2]);
        let frames = memory.machine().allocator();
        let verified = memory.verify_machine(frames, [space].into_iter(), |_| Ok(()));
        assert_eq!(verified.unwrap().1.lost(), 0);
    });
}
