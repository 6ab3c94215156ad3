//! Idle pages, on the soft machine: marked by frame number, and no longer idle once they are used, wherever they are mapped.

use faultless_frames::FrameSource;
use faultless_mm::{
    Counter, Frame, Machine, MemoryObject, Opened, Policy, advice, flags, remap_flags,
};
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace};
use faultless_tdp::Options;
use faultless_tests::counting::counted;
use faultless_tests::guest::{BASE, OneSlot};
use faultless_tests::{available, machine, verify_and_destroy};

const PAGE: u64 = 4096;
const R: u32 = 1;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
const AT: u64 = 1 << 36;

/// Runs a test under each policy; no frame may be lost.
fn each_policy(test: impl Fn(&'static SoftMemory, &SoftSpace)) {
    for &policy in Policy::ALL {
        let memory = machine(1, 32);
        let before = available(memory);
        let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy).unwrap());
        test(memory, &space);
        verify_and_destroy(space, before);
    }
}

/// Runs a part of a program, with an empty TLB at its start: ageing does not flush.
fn on<R>(space: &SoftSpace, program: impl FnOnce(&SoftCpu<'_>) -> R) -> R {
    SoftCpu::run(space, 0, program)
}

fn mark(memory: &'static SoftMemory, frame: Frame) {
    SoftCpu::attend(memory, 0, || memory.set_idle(frame));
}

fn is_idle(memory: &'static SoftMemory, frame: Frame) -> bool {
    SoftCpu::attend(memory, 0, || memory.is_idle(frame))
}

fn frame(space: &SoftSpace, at: u64) -> Frame {
    on(space, |_| space.translate(at).unwrap())
}

#[test]
fn a_page_is_idle_until_it_is_used() {
    each_policy(|memory, space| {
        on(space, |cpu| {
            space.mmap(AT, 4 * PAGE, RW, ANON).unwrap();
            (0..4).for_each(|page| cpu.store(AT + page * PAGE, page).unwrap());
        });
        let frames: Vec<_> = (0..4).map(|page| frame(space, AT + page * PAGE)).collect();
        for &frame in &frames {
            assert!(!is_idle(memory, frame), "not marked");
            mark(memory, frame);
            assert!(is_idle(memory, frame) && is_idle(memory, frame));
        }
        let (counts, ()) = counted(memory, || {
            on(space, |cpu| {
                cpu.load(AT).map(drop).unwrap();
                cpu.store(AT + PAGE, 1).unwrap();
            });
        });
        assert_eq!(counts.get(Counter::Faults), 0, "the next access is free");
        let idle = |frame: &Frame| is_idle(memory, *frame);
        assert_eq!(
            frames.iter().map(idle).collect::<Vec<_>>(),
            [false, false, true, true]
        );
        assert_eq!(
            frames.iter().map(idle).collect::<Vec<_>>(),
            [false, false, true, true]
        );
        // A mark is for the page, not for the frame.
        on(space, |_| {
            space
                .madvise(AT + 2 * PAGE, PAGE, advice::DONTNEED)
                .unwrap()
        });
        assert!(!is_idle(memory, frames[2]));
        mark(memory, frames[2]);
        assert!(
            !is_idle(memory, frames[2]),
            "free, and no page of a program"
        );
    });
}

#[test]
fn a_page_that_forks_share_is_used_by_any_of_them() {
    each_policy(|memory, space| {
        on(space, |cpu| {
            space.mmap(AT, 2 * PAGE, RW, ANON).unwrap();
            (0..2).for_each(|page| cpu.store(AT + page * PAGE, 1).unwrap());
        });
        let child = on(space, |_| space.fork().unwrap());
        let frames = [frame(space, AT), frame(space, AT + PAGE)];
        for user in [&child, space] {
            frames.iter().for_each(|&frame| mark(memory, frame));
            assert!(frames.iter().all(|&frame| is_idle(memory, frame)));
            on(user, |cpu| cpu.load(AT).map(drop).unwrap());
            assert!(!is_idle(memory, frames[0]) && is_idle(memory, frames[1]));
        }
        on(space, |cpu| cpu.store(AT + PAGE, 2).unwrap());
        let copy = frame(space, AT + PAGE);
        assert_ne!(copy, frames[1]);
        assert!(!is_idle(memory, copy), "a copy is new");
        SoftCpu::attend(memory, 0, || child.destroy());
    });
}

#[test]
fn a_page_of_shared_memory_is_used_through_any_mapping() {
    each_policy(|memory, space| {
        const OTHER: u64 = AT + (1 << 30);
        let store = on(space, |cpu| {
            let store = MemoryObject::new(memory, 4 * PAGE, None, 0).unwrap();
            for (at, protection) in [(AT, RW), (OTHER, R)] {
                let opened = Opened {
                    store: Ok(&store),
                    offset: 0,
                    file: 0,
                    writable: true,
                };
                let how = flags::SHARED | flags::FIXED;
                space
                    .mmap_object(at, 4 * PAGE, protection, how, &opened)
                    .unwrap();
            }
            cpu.store(AT, 7).unwrap();
            cpu.load(OTHER).map(drop).unwrap();
            store
        });
        let frame = frame(space, AT);
        for at in [AT, OTHER] {
            mark(memory, frame);
            assert!(is_idle(memory, frame));
            on(space, |cpu| assert_eq!(cpu.load(at), Ok(7)));
            assert!(!is_idle(memory, frame), "{at:#x}");
        }
        // A use counts when its entry is gone.
        mark(memory, frame);
        on(space, |cpu| {
            assert_eq!(cpu.load(OTHER), Ok(7));
            space.munmap(OTHER, 4 * PAGE).unwrap();
        });
        assert!(!is_idle(memory, frame));
        mark(memory, frame);
        on(space, |_| space.munmap(AT, 4 * PAGE).unwrap());
        assert!(is_idle(memory, frame), "a page that nothing maps");
        on(space, |_| drop(store.page_to_write(0).unwrap()));
        assert!(!is_idle(memory, frame), "by the kernel");
        mark(memory, frame);
        assert!(is_idle(memory, frame));
        on(space, |_| store.truncate(0).unwrap());
        assert!(!is_idle(memory, frame));
        on(space, |_| drop(store));
    });
}

/// Frames that are no pages, and pages that cannot be looked at.
#[test]
fn what_is_never_idle() {
    each_policy(|memory, space| {
        on(space, |cpu| {
            space.mmap(AT, 2 * PAGE, RW, ANON).unwrap();
            cpu.load(AT).map(drop).unwrap();
            cpu.store(AT + PAGE, 1).unwrap();
        });
        let frames = memory.machine().frames();
        let extent = frames.extent();
        let root = on(space, |_| space.id().root);
        for other in [
            frames.zero_frame(),
            root,
            Frame(extent.end),
            Frame(u64::MAX),
        ] {
            mark(memory, other);
            assert!(!is_idle(memory, other), "{other:?}");
        }
        // Its descriptor says where it was.
        let moved = frame(space, AT + PAGE);
        on(space, |_| {
            space.mmap(AT + (1 << 30), 1024 * PAGE, RW, ANON).unwrap();
            let to = AT + (2 << 30);
            let how = remap_flags::MAYMOVE | remap_flags::FIXED;
            space.mremap(AT, 2 * PAGE, 2 * PAGE, how, to).unwrap();
            assert_eq!(space.translate(to + PAGE), Some(moved));
        });
        mark(memory, moved);
        on(space, |cpu| {
            cpu.load(AT + (2 << 30) + PAGE).map(drop).unwrap()
        });
        assert!(!is_idle(memory, moved));
    });
}

/// Every frame of a machine in use can be marked and asked for, and the machine is sound afterwards.
#[test]
fn every_frame_may_be_asked_for() {
    each_policy(|memory, space| {
        on(space, |cpu| {
            space.mmap(AT, 64 * PAGE, RW, ANON).unwrap();
            (0..64).for_each(|page| cpu.store(AT + page * PAGE, page).unwrap());
        });
        let extent = memory.machine().frames().extent();
        SoftCpu::attend(memory, 0, || {
            extent
                .clone()
                .for_each(|frame| memory.set_idle(Frame(frame)));
            let idle = extent.clone().filter(|&frame| memory.is_idle(Frame(frame)));
            assert_eq!(idle.count(), 64);
        });
        on(space, |cpu| {
            (0..64).for_each(|page| assert_eq!(cpu.load(AT + page * PAGE), Ok(page)));
        });
    });
}

/// A guest's access is a use. With hardware's accessed bits the next one is free; without, it takes the fast path. What the
/// host invalidates instead is mapped anew.
#[test]
fn guests_use_pages() {
    for accessed_bits in [true, false] {
        for tdp_mmu in [true, false] {
            let memory = machine(1, 16);
            let options = Options {
                accessed_bits,
                tdp_mmu,
                ..Options::default()
            };
            let guest = OneSlot::new(memory, 64, options);
            guest.run(0, |_, vcpu| {
                (0..64).for_each(|page| vcpu.store(BASE + page * PAGE, page).unwrap());
            });
            let frames: Vec<_> = (0..64)
                .map(|page| frame(&guest.space, guest.host + page * PAGE))
                .collect();
            // Once for the host's own use of each page.
            for _ in 0..2 {
                frames.iter().for_each(|&frame| mark(memory, frame));
                assert!(frames.iter().all(|&frame| is_idle(memory, frame)));
                let store = || {
                    guest.run(0, |_, vcpu| {
                        (0..32).for_each(|page| vcpu.store(BASE + page * PAGE, 1).unwrap());
                    });
                };
                let (counts, ()) = counted(memory, store);
                let expected = if accessed_bits { 0 } else { 32 };
                assert_eq!(counts.get(Counter::PfTaken), expected);
                assert_eq!(counts.get(Counter::PfFast), expected);
                assert_eq!(counts.get(Counter::Faults), 0, "the host has nothing to do");
                for (number, &frame) in frames.iter().enumerate() {
                    assert_eq!(is_idle(memory, frame), number >= 32, "page {number}");
                }
            }
            // `clear_refs` flushes, so the guest's entries are gone.
            let space = &guest.space;
            on(space, |_| {
                space.clear_accessed(faultless_mm::AgingMode::All)
            });
            let (counts, ()) = counted(memory, || {
                guest.run(0, |_, vcpu| {
                    (0..32).for_each(|page| assert_eq!(vcpu.load(BASE + page * PAGE), Ok(1)));
                });
            });
            assert!(counts.get(Counter::PfTaken) > 0);
            assert_eq!(counts.get(Counter::PfFast), 0);
            guest.destroy();
        }
    }
}

/// Reclaim knows of the uses that looks for idle pages have seen.
#[test]
fn looks_for_idle_pages_hide_nothing_from_reclaim() {
    use crate::reclaim::overcommit::{FRAMES, machine};
    let (memory, store) = machine(1);
    let before = available(memory);
    let space = SoftCpu::attend(memory, 0, || {
        Soft::space(memory, Policy::default()).unwrap()
    });
    let (hot, pages) = (FRAMES / 4, 5 * FRAMES / 2);
    on(&space, |cpu| {
        let how = ANON | flags::NORESERVE;
        space.mmap(AT, pages * PAGE, RW, how).unwrap();
        (0..hot).for_each(|page| cpu.store(AT + page * PAGE, 1).unwrap());
        for page in hot..pages {
            cpu.store(AT + page * PAGE, 1).unwrap();
            for used in [page * 7 % hot, page * 13 % hot] {
                let at = AT + used * PAGE;
                cpu.load(at).map(drop).unwrap();
                if let Some(frame) = space.translate(at) {
                    memory.set_idle(frame);
                }
            }
        }
    });
    let came_back = memory.total(Counter::SwapIn);
    assert!(came_back < hot, "{came_back} swap-ins of {hot} pages");
    verify_and_destroy(space, before);
    assert_eq!(store.used(), 0, "slots were lost");
}
