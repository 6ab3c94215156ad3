//! Which lines copy-on-write faults write, exactly (recording builds: `--cfg record`).
//!
//! Two such faults more than 8 pages apart have no line in common. Each writes its
//! entry's line, and the old and the new frame's descriptors; parent and child
//! share the old one when they write the same page.

use std::collections::BTreeSet;

use faultless_mm::{Access, FrameSource, Machine, Outcome, Policy, flags};
use faultless_soft::{SoftCpu, SoftSpace};
use faultless_sync::record;
use faultless_tests::space;

const BASE: u64 = 0x10_0000_0000;
const PAGE: u64 = 4096;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;

/// The lines written by one write fault on CPU `cpu`, without those of batched work.
fn lines(space: &SoftSpace, cpu: u32, page: u64) -> BTreeSet<usize> {
    let fault = || {
        let mut outcome = Outcome::OutOfMemory;
        let written = record::lines(|| outcome = space.fault(BASE + page * PAGE, Access::Write));
        assert_eq!(outcome, Outcome::Resolved);
        let direct = written.into_iter().filter(|(_, w)| w.direct > 0);
        direct.map(|(line, _)| line).collect::<BTreeSet<_>>()
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| SoftCpu::run(space, cpu, |_| fault()));
        thread.join().unwrap()
    })
}

/// A space with pages that a child shares.
fn family() -> (SoftSpace, SoftSpace) {
    let (_, parent) = space(2, 16, Policy::Speculative);
    let child = SoftCpu::run(&parent, 0, |cpu| {
        cpu.space().mmap(BASE, 512 * PAGE, 3, ANON).unwrap();
        for page in 0..512 {
            cpu.store(BASE + page * PAGE, page).unwrap();
        }
        cpu.space().fork().unwrap()
    });
    (parent, child)
}

fn descriptor(space: &SoftSpace, page: u64) -> usize {
    let frame = space.translate(BASE + page * PAGE).unwrap();
    let frames = space.memory().machine().frames();
    std::ptr::from_ref(frames.descriptor(frame)).addr() / 64
}

#[test]
fn copies_share_no_line() {
    for distance in [8, 9, 64, 400] {
        let (parent, _child) = family();
        let first = lines(&parent, 0, 16);
        let second = lines(&parent, 1, 16 + distance);
        assert_eq!(first.intersection(&second).count(), 0, "{distance}");
    }
}

#[test]
fn a_copy_writes_its_entry_and_two_descriptors() {
    let (parent, _child) = family();
    let old = SoftCpu::attend(parent.memory(), 0, || descriptor(&parent, 16));
    let (one, other) = (lines(&parent, 0, 16), lines(&parent, 0, 80));
    let new = SoftCpu::attend(parent.memory(), 0, || descriptor(&parent, 16));
    // Lines that both write belong to the CPU.
    let apart: BTreeSet<_> = one.difference(&other).copied().collect();
    assert!(apart.contains(&old) && apart.contains(&new));
    assert_eq!(apart.len(), 3, "the entry, and the descriptors");
}

#[test]
fn parent_and_child_share_the_old_descriptor() {
    let (parent, child) = family();
    let old = SoftCpu::attend(parent.memory(), 0, || descriptor(&parent, 16));
    let here = lines(&parent, 0, 16);
    let there = lines(&child, 1, 16);
    let both: Vec<_> = here.intersection(&there).copied().collect();
    assert_eq!(both, [old]);
}
