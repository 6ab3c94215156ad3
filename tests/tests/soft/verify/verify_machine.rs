//! The verifier over a whole machine: it accounts for every frame, and reports leaks and wrong
//! counts.

use faultless_frames::{Accounts, Flags, FrameSource, Use};
use faultless_mm::{Census, HugeMode, Machine, Policy, Violation, advice, flags};
use faultless_paging::Frame;
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace};
use faultless_tests::machine;

const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
const PAGE: u64 = 4096;
const AT: u64 = 1 << 36;
const FRAMES: u64 = (64 << 20) / PAGE;

fn look(
    memory: &'static SoftMemory,
    spaces: &[&SoftSpace],
) -> Result<(Census, Accounts), Violation> {
    SoftCpu::attend(memory, 0, || {
        let frames = memory.machine().allocator();
        memory.verify_machine(frames, spaces.iter().copied(), |_| Ok(()))
    })
}

/// A parent with 900 pages, 899 of which it shares with its child.
fn family(policy: Policy) -> (&'static SoftMemory, SoftSpace, SoftSpace) {
    let memory = machine(2, 64);
    // A huge page would have pages that were not stored to.
    memory.set_huge_mode(HugeMode::Never);
    let parent = SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap();
    let child = SoftCpu::run(&parent, 0, |cpu| {
        let space = cpu.space();
        let mapped = space.mmap(AT, 1200 * PAGE, RW, ANON | flags::FIXED);
        assert_eq!(mapped, Ok(AT));
        for page in 0..1000 {
            cpu.store(AT + page * PAGE, page).unwrap();
        }
        space.munmap(AT + 50 * PAGE, 50 * PAGE).unwrap();
        space
            .madvise(AT + 200 * PAGE, 50 * PAGE, advice::DONTNEED)
            .unwrap();
        space.mprotect(AT + 300 * PAGE, 10 * PAGE, 1).unwrap();
        let child = space.fork().unwrap();
        cpu.store(AT, 1).unwrap();
        child
    });
    (memory, parent, child)
}

/// The frame of a page that satisfies `wanted`.
fn a_frame(
    memory: &'static SoftMemory,
    spaces: &[&SoftSpace],
    wanted: impl Fn(Flags, u32) -> bool,
) -> Frame {
    let mut found = None;
    let looked = SoftCpu::attend(memory, 0, || {
        let frames = memory.machine().allocator();
        memory.verify_machine(frames, spaces.iter().copied(), |audit| {
            audit.for_each(Use::PAGE, &mut |frame, descriptor, _| {
                if wanted(descriptor.flags(), descriptor.map_count()) {
                    found = Some(frame);
                }
                Ok(())
            })
        })
    });
    assert!(looked.is_ok(), "{looked:?}");
    found.expect("there is such a frame")
}

fn exclusive(flags: Flags, count: u32) -> bool {
    flags == Flags::ANONYMOUS.and(Flags::EXCLUSIVE) && count == 1
}

#[test]
fn every_frame_is_accounted_for() {
    for &policy in Policy::ALL {
        let (memory, parent, child) = family(policy);
        for _ in 0..2 {
            let (census, accounts) = look(memory, &[&parent, &child]).unwrap();
            assert_eq!(accounts.lost(), 0, "{accounts:?}");
            assert_eq!(accounts.all(), FRAMES);
            // The parent has written the first page, so the child's is its own.
            assert_eq!((census.pages, accounts.of(Use::PAGE)), (901, 901));
            assert_eq!(census.tables, accounts.of(Use::TABLE));
            assert_eq!(memory.slab_frames(), accounts.of(Use::SLAB));
            assert_eq!(accounts.of(Use::ZERO_PAGE), 1);
        }
        // The pages of a space that is not passed to the verifier are lost.
        let unknown = look(memory, &[&parent]);
        assert!(unknown.is_err(), "{unknown:?}");
        SoftCpu::attend(memory, 0, || (parent.destroy(), child.destroy()));
        let (census, accounts) = look(memory, &[]).unwrap();
        assert_eq!((census, accounts.lost()), (Census::default(), 0));
    }
}

#[test]
fn a_forgotten_space_is_lost_by_name() {
    let (memory, parent, child) = family(Policy::ALL[0]);
    SoftCpu::attend(memory, 0, || child.destroy());
    let (census, _) = look(memory, &[&parent]).unwrap();
    let (_, accounts) = look(memory, &[]).unwrap();
    assert_eq!(accounts.lost_of(Use::PAGE), census.pages);
    assert_eq!(accounts.lost_of(Use::TABLE), census.tables);
    assert_eq!(accounts.lost_of(Use::SLAB), memory.slab_frames());
    assert_eq!(accounts.lost_of(Use::SPACE), 1);
    assert_eq!(
        accounts.lost(),
        census.pages + census.tables + memory.slab_frames() + 1
    );
    assert!(accounts.first_lost().is_some());
}

#[test]
fn a_lost_frame_is_found() {
    let (memory, parent, child) = family(Policy::ALL[0]);
    let frames = memory.machine().allocator();
    let lost = SoftCpu::attend(memory, 0, || frames.allocate(memory.machine().cpu())).unwrap();
    frames.descriptor(lost).set_flags(Flags::TABLE);
    let (_, accounts) = look(memory, &[&parent, &child]).unwrap();
    assert_eq!((accounts.lost(), accounts.lost_of(Use::TABLE)), (1, 1));
    assert_eq!(accounts.first_lost(), Some(lost));
}

/// The verifier's verdict after `damage`.
fn verdict(damage: impl FnOnce(&'static SoftMemory, Frame, Frame)) -> &'static str {
    let (memory, parent, child) = family(Policy::ALL[0]);
    let page = a_frame(memory, &[&parent, &child], exclusive);
    let shared = a_frame(memory, &[&parent, &child], |flags, count| {
        flags == Flags::ANONYMOUS && count == 2
    });
    SoftCpu::attend(memory, 0, || damage(memory, page, shared));
    look(memory, &[&parent, &child])
        .expect_err("the damage is noticed")
        .rule
}

#[test]
fn damage_is_noticed() {
    let frames = |memory: &'static SoftMemory| memory.machine().allocator();
    let counted = verdict(|memory, _, shared| {
        frames(memory).descriptor(shared).share(0);
    });
    assert_eq!(counted, "a frame is not mapped as often as is counted");
    let shared = verdict(|memory, _, shared| {
        frames(memory).descriptor(shared).unmap();
    });
    assert_eq!(shared, "a frame is not mapped as often as is counted");
    let freed = verdict(|memory, page, _| frames(memory).free(memory.machine().cpu(), page));
    assert_eq!(freed, "a free frame is used, or free twice");
    let twice = verdict(|memory, _, _| {
        let cpu = memory.machine().cpu();
        let frame = frames(memory).allocate(cpu).unwrap();
        frames(memory).free(cpu, frame);
        frames(memory).free(cpu, frame);
    });
    assert_eq!(twice, "a free frame is used, or free twice");
}
