//! Migration of pages to other frames, on the soft machine: wherever they are mapped, and until a large block
//! of memory is free, beside programs that use it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faultless_mm::{
    AddressSpace, Counter, Errno, Evacuated, Frame, FrameSource, Machine, MemoryObject, Mover,
    NoMemory, NotMoved, Opened, PhysicalMemory, Policy, Taken, advice, flags, remap_flags,
};
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace, Trap};
use faultless_tests::random::{Numbers, seed};
use faultless_tests::{available, budget, each_policy, machine};

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
const AT: u64 = 1 << 36;

fn map(cpu: &SoftCpu<'_>, pages: u64, prot: u32) {
    assert_eq!(cpu.space().mmap(AT, pages * PAGE, prot, ANON), Ok(AT));
}

/// Migrates the page in a frame, and returns its new frame.
fn migrate(memory: &'static SoftMemory, from: Frame) -> Result<Frame, NotMoved> {
    let machine = memory.machine();
    let cpu = machine.cpu();
    let to = machine.frames().allocate(cpu).unwrap();
    let moved = Mover::new(memory).unwrap().migrate(from, to);
    let free = if moved.is_ok() { from } else { to };
    machine.frames().free(cpu, free);
    moved.map(|()| to)
}

/// Migrates the page at an address, which must be possible.
fn move_page(space: &SoftSpace, at: u64) -> Frame {
    let from = space.translate(at).unwrap();
    let to = migrate(space.memory(), from).unwrap();
    assert_ne!(from, to);
    to
}

fn on<R>(space: &SoftSpace, program: impl FnOnce(&SoftCpu<'_>) -> R) -> R {
    SoftCpu::run(space, 0, program)
}

fn sound(memory: &'static SoftMemory, spaces: &[&SoftSpace]) {
    SoftCpu::attend(memory, 0, || AddressSpace::verify_together(spaces))
        .unwrap_or_else(|violation| panic!("{violation}"));
}

/// A migrated page keeps its content and its rights, in every state.
#[test]
fn pages_of_one_space() {
    each_policy(1, 32, |cpu, space, memory| {
        map(cpu, 5, RW);
        for page in 0..5 {
            cpu.store(AT + page * PAGE, page + 1).unwrap();
        }
        // Read-only, without any access, lazily freed, moved by `mremap`.
        space.mprotect(AT + PAGE, PAGE, 1).unwrap();
        let hidden = space.translate(AT + 2 * PAGE).unwrap();
        space.mprotect(AT + 2 * PAGE, PAGE, 0).unwrap();
        space.madvise(AT + 3 * PAGE, PAGE, advice::FREE).unwrap();
        let to = AT + (1 << 30);
        let how = remap_flags::MAYMOVE | remap_flags::FIXED;
        assert_eq!(space.mremap(AT + 4 * PAGE, PAGE, PAGE, how, to), Ok(to));

        let faults = memory.total(Counter::Faults);
        for at in [AT, AT + PAGE, AT + 3 * PAGE, to] {
            let frame = move_page(space, at);
            assert_eq!(space.translate(at), Some(frame));
        }
        migrate(memory, hidden).unwrap();
        assert_eq!(cpu.load(AT), Ok(1));
        cpu.store(AT, 11).unwrap();
        assert_eq!(cpu.load(AT + PAGE), Ok(2));
        assert_eq!(cpu.load(to), Ok(5));
        assert_eq!(memory.total(Counter::Faults), faults, "no fault is needed");
        assert_eq!(memory.total(Counter::Migrations), 5);
        assert!(matches!(cpu.store(AT + PAGE, 1), Err(Trap::Segv { .. })));
        assert!(matches!(cpu.load(AT + 2 * PAGE), Err(Trap::Segv { .. })));
        space.mprotect(AT + 2 * PAGE, PAGE, RW).unwrap();
        assert_eq!(cpu.load(AT + 2 * PAGE), Ok(3));
        // It is still clean.
        assert!(space.take_lazyfree());
        assert_eq!(cpu.load(AT + 3 * PAGE), Ok(0));
        let copies = memory.total(Counter::Copies);
        cpu.store(AT + 2 * PAGE, 4).unwrap();
        assert_eq!(memory.total(Counter::Copies), copies);
        space.verify().unwrap();
    });
}

/// After a table has moved, its pages' descriptors give the old place; migration gives the new frame the present one.
#[test]
fn a_page_of_a_table_that_moved() {
    each_policy(1, 1200, |cpu, space, memory| {
        map(cpu, 512, RW);
        (0..512).for_each(|page| cpu.store(AT + page * PAGE, page + 1).unwrap());
        let (to, size) = (AT + (1 << 30), 512 * PAGE);
        let how = remap_flags::MAYMOVE | remap_flags::FIXED;
        assert_eq!(space.mremap(AT, size, size, how, to), Ok(to));
        let place = |frame| memory.machine().frames().descriptor(frame).owner().1;
        let at = to + 7 * PAGE;
        assert_eq!(place(space.translate(at).unwrap()), AT / PAGE + 7);
        let frame = move_page(space, at);
        assert_eq!(place(frame), at / PAGE);
        assert_eq!(move_page(space, at), space.translate(at).unwrap());
        assert_eq!(cpu.load(at), Ok(8));
        space.verify().unwrap();
    });
}

#[test]
fn what_cannot_be_moved() {
    each_policy(1, 32, |cpu, space, memory| {
        map(cpu, 4, RW);
        cpu.store(AT, 1).unwrap();
        assert_eq!(cpu.load(AT + PAGE), Ok(0));
        let frames = memory.machine().frames();
        let frame = space.translate(AT).unwrap();
        let pin = space.pin(AT, Taken::ToRead).ok().unwrap();
        assert_eq!(migrate(memory, frame), Err(NotMoved::Busy));
        drop(pin);
        assert!(migrate(memory, frame).is_ok());
        let not_ours = [Frame(0), Frame(u64::MAX)];
        for other in [frames.zero_frame(), space.id().root, frame]
            .iter()
            .chain(&not_ours)
        {
            assert_eq!(migrate(memory, *other), Err(NotMoved::NoPage), "{other:?}");
        }
        let store = MemoryObject::new(memory, PAGE, None, 0).unwrap();
        let page = store.page_to_write(0).unwrap();
        let frame = page.frame();
        assert_eq!(migrate(memory, frame), Err(NotMoved::Busy));
        drop(page);
        let to = migrate(memory, frame).unwrap();
        assert_eq!(store.present(0).unwrap().unwrap().frame(), to);
        drop(store);
    });
}

/// An invalid destination is refused, and memory stays sound.
#[test]
fn where_nothing_can_be_moved_to() {
    each_policy(1, 32, |cpu, space, memory| {
        map(cpu, 2, RW);
        cpu.store(AT, 1).unwrap();
        cpu.store(AT + PAGE, 2).unwrap();
        let frames = memory.machine().frames();
        let (from, other) = (space.translate(AT), space.translate(AT + PAGE));
        let (from, other) = (from.unwrap(), other.unwrap());
        let store = MemoryObject::new(memory, PAGE, None, 0).unwrap();
        let held = store.page_to_write(0).unwrap().frame();
        let end = frames.extent().end;
        let elsewhere = [Frame(end), Frame(u64::MAX), Frame(0)];
        assert!(!frames.extent().contains(&0));
        let mut mover = Mover::new(memory).unwrap();
        for to in [from, other, held, frames.zero_frame()]
            .into_iter()
            .chain(elsewhere)
        {
            assert_eq!(mover.migrate(from, to), Err(NotMoved::NoPlace), "{to:?}");
            assert_eq!(mover.migrate(held, to), Err(NotMoved::NoPlace), "{to:?}");
        }
        assert_eq!(space.translate(AT), Some(from));
        assert_eq!((cpu.load(AT), cpu.load(AT + PAGE)), (Ok(1), Ok(2)));
        assert_eq!(store.present(0).unwrap().unwrap().frame(), held);
        drop(store);
    });
}

/// Evacuates ranges that are not memory, and all memory.
#[test]
fn ranges_of_any_kind() {
    each_policy(1, 32, |cpu, space, memory| {
        map(cpu, 64, RW);
        for page in 0..64 {
            cpu.store(AT + page * PAGE, page + 1).unwrap();
        }
        let all = memory.machine().frames().extent();
        let nothing = Ok(Evacuated::default());
        // Each would take too long if every frame number was tried.
        for none in [0..all.start, all.end..u64::MAX, u64::MAX - 1..u64::MAX] {
            assert_eq!(memory.evacuate(none.clone()), nothing, "{none:?}");
        }
        let backwards = core::ops::Range {
            start: all.end,
            end: all.start,
        };
        assert_eq!(memory.evacuate(backwards), nothing);
        for whole in [all.clone(), 0..all.end, 0..u64::MAX] {
            assert_eq!(memory.evacuate(whole), Err(NoMemory));
        }
        assert_eq!(memory.total(Counter::Migrations), 0);
        // Nearly all memory: one page finds a frame, the others do not.
        let (first, last) = (all.start..all.end - 1, all.start + 1..all.end);
        let frees_one = [first, last].map(|most| memory.evacuate(most).is_err());
        assert_eq!(frees_one, [true; 2]);
        // From the middle to the end, and beyond it.
        let middle = all.start + (all.end - all.start) / 2;
        let vacated = memory.evacuate(middle..u64::MAX).unwrap();
        assert_eq!(vacated.busy, 0);
        for page in 0..64 {
            assert_eq!(cpu.load(AT + page * PAGE), Ok(page + 1));
            assert!(space.translate(AT + page * PAGE).unwrap().0 < middle);
        }
    });
}

/// A fault beside a compaction of nearly all memory gets one of the isolated frames.
#[test]
fn no_allocation_fails_because_frames_are_kept() {
    for &policy in Policy::ALL {
        const PAGES: u64 = 1024;
        let memory = machine(2, 16);
        let before = available(memory);
        let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap();
        let all = memory.machine().frames().extent();
        let done = AtomicBool::new(false);
        let given_up = std::thread::scope(|scope| {
            let ends = Ends(&done);
            let (space, done) = (&space, ends.0);
            let vacating = scope.spawn(move || {
                SoftCpu::run(space, 1, |_| {
                    let mut given_up = 0u64;
                    while !done.load(Ordering::SeqCst) {
                        let ended = memory.evacuate(all.start + 8..all.end);
                        given_up += u64::from(ended == Err(NoMemory));
                    }
                    given_up
                })
            });
            on(space, |cpu| {
                map(cpu, PAGES, RW);
                for round in budget(200).rounds() {
                    for page in 0..PAGES {
                        cpu.store(AT + page * PAGE, round)
                            .expect("there are frames");
                    }
                    let (length, advice) = (PAGES * PAGE, advice::DONTNEED);
                    space.madvise(AT, length, advice).unwrap();
                }
            });
            drop(ends);
            vacating.join().unwrap()
        });
        assert!(given_up > 0, "nothing was kept");
        sound(memory, &[&space]);
        SoftCpu::attend(memory, 0, || space.destroy());
        assert_eq!(available(memory), before, "frames were lost or found");
    }
}

/// Children, their children, and one that has moved the page.
#[test]
fn pages_of_a_family() {
    for &policy in Policy::ALL {
        let memory = machine(2, 32);
        let before = available(memory);
        let first = SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap();
        let stranger = SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap();
        on(&first, |cpu| {
            map(cpu, 4, RW);
            for page in 0..4 {
                cpu.store(AT + page * PAGE, page + 1).unwrap();
            }
        });
        let fork = |space: &SoftSpace| on(space, |cpu| cpu.space().fork()).unwrap();
        let mut spaces = vec![stranger, first];
        for parent in [1, 1, 2, 4] {
            let child = fork(&spaces[parent]);
            spaces.push(child);
        }
        let elsewhere = AT + (1 << 30);
        on(&spaces[3], |cpu| {
            let how = remap_flags::MAYMOVE | remap_flags::FIXED;
            let moved = cpu.space().mremap(AT, PAGE, PAGE, how, elsewhere);
            assert_eq!(moved, Ok(elsewhere));
        });
        // One child has written its copy, one has unmapped its page, and the first parent ends.
        on(&spaces[2], |cpu| cpu.store(AT + PAGE, 22)).unwrap();
        on(&spaces[4], |cpu| cpu.space().munmap(AT + 2 * PAGE, PAGE)).unwrap();
        let first = spaces.remove(1);
        SoftCpu::attend(memory, 0, || first.destroy());
        for page in 0..4 {
            let space = &spaces[4];
            on(space, |_| move_page(space, AT + page * PAGE));
            sound(memory, &spaces.iter().collect::<Vec<_>>());
        }
        for (number, space) in (0..).zip(&spaces).skip(1) {
            on(space, |cpu| {
                let at = |page: u64| match (number, page) {
                    (2, 0) => elsewhere,
                    _ => AT + page * PAGE,
                };
                for page in 0..4 {
                    let seen = cpu.load(at(page));
                    match (number, page) {
                        (1, 1) => assert_eq!(seen, Ok(22)),
                        (3, 2) => assert!(seen.is_err()),
                        _ => assert_eq!(seen, Ok(page + 1), "space {number}"),
                    }
                    if seen.is_ok() {
                        cpu.store(at(page), 100 + number).unwrap();
                    }
                }
            });
        }
        sound(memory, &spaces.iter().collect::<Vec<_>>());
        SoftCpu::attend(memory, 0, || {
            for space in spaces {
                space.destroy();
            }
        });
        assert_eq!(available(memory), before, "frames were lost or found");
    }
}

/// A page of an object in several spaces, shared and private, in pieces and at two addresses.
#[test]
fn pages_of_stores() {
    for &policy in Policy::ALL {
        let memory = machine(2, 32);
        let before = available(memory);
        let attend = |f: &mut dyn FnMut()| SoftCpu::attend(memory, 0, f);
        let spaces: Vec<_> = (0..3)
            .map(|_| SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap())
            .collect();
        let store =
            SoftCpu::attend(memory, 0, || MemoryObject::new(memory, 4 * PAGE, None, 0)).unwrap();
        let opened = Opened {
            store: Ok(&store),
            offset: 0,
            file: 0,
            writable: true,
        };
        let other = AT + (1 << 30);
        for space in &spaces {
            on(space, |cpu| {
                for (at, how) in [(AT, flags::SHARED), (other, flags::PRIVATE)] {
                    let how = how | flags::FIXED;
                    let mapped = space.mmap_object(at, 4 * PAGE, RW, how, &opened);
                    assert_eq!(mapped, Ok(at));
                }
                space.mprotect(AT + PAGE, PAGE, 1).unwrap();
                assert!(cpu.load(AT).is_ok() && cpu.load(other).is_ok());
                assert!(cpu.load(AT + PAGE).is_ok());
            });
        }
        on(&spaces[0], |cpu| cpu.store(AT, 7)).unwrap();
        on(&spaces[1], |cpu| cpu.store(other, 8)).unwrap();
        for page in [0, 1, 0] {
            let to = on(&spaces[2], |_| move_page(&spaces[2], AT + page * PAGE));
            for space in &spaces {
                assert_eq!(on(space, |_| space.translate(AT + page * PAGE)), Some(to));
            }
            sound(memory, &spaces.iter().collect::<Vec<_>>());
        }
        for (space, there) in spaces.iter().zip([7, 8, 7]) {
            on(space, |cpu| {
                assert_eq!((cpu.load(AT), cpu.load(other)), (Ok(7), Ok(there)));
            });
        }
        attend(&mut || store.truncate(0).unwrap());
        let seen = on(&spaces[0], |_| spaces[0].translate(AT));
        assert_eq!((store.pages(), seen), (0, None));
        let mut spaces = Some(spaces);
        let mut store = Some(store);
        attend(&mut || {
            for space in spaces.take().into_iter().flatten() {
                space.destroy();
            }
            drop(store.take());
        });
        assert_eq!(available(memory), before, "frames were lost or found");
    }
}

/// Pages of a block, as a power of 2.
const ORDER: u32 = 9;
/// The time limit for a block to become free: far more than it takes.
const LIMIT: Duration = Duration::from_secs(60);

/// A program that stores to pages of its own, faults, and forks, until `ends` is set.
fn disturb(cpu: &SoftCpu<'_>, ends: &AtomicBool, round: &mut u64) {
    const PAGES: u64 = 24;
    let space = cpu.space();
    let at = AT + (1 << 38) + u64::from(cpu.number()) * (1 << 30);
    let mut numbers = Numbers(seed() ^ u64::from(cpu.number()));
    assert_eq!(space.mmap(at, PAGES * PAGE, RW, ANON), Ok(at));
    let mut words = [0; PAGES as usize];
    while !ends.load(Ordering::SeqCst) {
        *round += 1;
        for _ in 0..64 {
            let page = numbers.below(PAGES) as usize;
            let address = at + page as u64 * PAGE + 8;
            assert_eq!(cpu.load(address), Ok(words[page]), "a store is lost");
            if numbers.below(8) == 0 {
                space
                    .madvise(at + page as u64 * PAGE, PAGE, advice::DONTNEED)
                    .unwrap();
                words[page] = 0;
            } else {
                words[page] += 1;
                cpu.store(address, words[page]).unwrap();
            }
        }
        match space.fork() {
            Ok(child) => {
                // Through a pin, because pages are migrated meanwhile.
                let page = numbers.below(PAGES);
                if let Ok(pin) = child.pin(at + page * PAGE, Taken::ToRead) {
                    let start = space.memory().machine().pointer(pin.frame());
                    // SAFETY: inside the page, which is not written and which stays.
                    let word = unsafe { start.cast::<u64>().add(1).read() };
                    assert_eq!(word, words[page as usize], "the child has another page");
                }
                child.destroy();
            }
            Err(error) => assert_eq!(error, Errno::ENOMEM),
        }
    }
}

/// Sets the flag that ends the others, even if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Fills memory, frees every second page, and evacuates until a block of
/// 2 MiB is free; other CPUs fault, store and fork all the while.
fn compact(policy: Policy) {
    let memory = machine(3, 24);
    let before = available(memory);
    let frames = memory.machine().allocator();
    let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap();
    let mut rounds_done = [0; 2];
    on(&space, |cpu| {
        let most = before;
        map(cpu, most, RW);
        // Tables first: they cannot be migrated, and need not lie between pages.
        for page in (0..most).step_by(512) {
            assert_eq!(cpu.load(AT + page * PAGE), Ok(0));
        }
        let filled = (0..most)
            .find(|&page| cpu.store(AT + page * PAGE, page + 1).is_err())
            .unwrap();
        for page in (1..filled).step_by(2) {
            space
                .madvise(AT + page * PAGE, PAGE, advice::DONTNEED)
                .unwrap();
        }
        frames.drain(faultless_mm::Cpu(0));
        assert!(frames.allocate_block(ORDER).is_err(), "memory is not full");

        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ends = Ends(&ends);
            for (number, round) in (1..).zip(&mut rounds_done) {
                let (space, ends) = (&space, ends.0);
                scope.spawn(move || {
                    SoftCpu::run(space, number, |cpu| disturb(cpu, ends, round));
                });
            }
            let mut blocks = Vec::new();
            let mut page = 0;
            let begun = Instant::now();
            while blocks.len() < 2 {
                assert!(begun.elapsed() < LIMIT, "no block becomes free");
                let frame = space.translate(AT + page * PAGE).unwrap();
                let first = frame.0 & !((1 << ORDER) - 1);
                let vacated = memory.evacuate(first..first + (1 << ORDER)).unwrap();
                if vacated.moved == 0 {
                    // A fork on another CPU may be preempted.
                    std::thread::yield_now();
                }
                frames.drain(faultless_mm::Cpu(0));
                blocks.extend(frames.allocate_block(ORDER));
                // Other CPUs' caches may hold frames of the block: try the next one, or this one once more.
                page = (page + 2 * (1 << ORDER)) % (filled & !1);
            }
            drop(ends);
            for block in blocks {
                frames.free_block(block, ORDER);
            }
        });
        for page in 0..filled {
            let word = if page % 2 == 0 { page + 1 } else { 0 };
            assert_eq!(cpu.load(AT + page * PAGE), Ok(word));
        }
        space.verify().unwrap();
    });
    assert!(memory.total(Counter::Migrations) >= 256);
    let (_, accounts) = SoftCpu::attend(memory, 0, || {
        memory.verify_machine(frames, [&space].into_iter(), |_| Ok(()))
    })
    .unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(accounts.lost(), 0);
    SoftCpu::attend(memory, 0, || space.destroy());
    assert_eq!(available(memory), before, "frames were lost or found");
    eprintln!("{policy:?}: {rounds_done:?} rounds beside");
}

#[test]
fn a_block_becomes_free() {
    for _ in budget(1).rounds() {
        Policy::ALL.iter().for_each(|&policy| compact(policy));
    }
}
