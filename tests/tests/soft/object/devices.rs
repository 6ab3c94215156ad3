//! Mappings of a device, on the soft machine: programs reach its frames, which have no counts; operations
//! for memory are refused as Linux refuses them; and it can be revoked.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};

use faultless_mm::{
    Access, Caching, Device, EntryFormat, Errno, Frame, Locked, OpenedDevice, Outcome, PageState,
    Pager, Taken, Usage, advice, flags, lock_all_flags, remap_flags,
};
use faultless_soft::{Entries, Soft, SoftCpu, Trap};
use faultless_tests::frames_device::{PAGE, SHARED, device, map, word};
use faultless_tests::{DEVICE_PAGES, budget, each_policy};

const RW: u32 = 3;
const R: u32 = 1;
const AT: u64 = 1 << 36;
const OTHER: u64 = AT + (1 << 30);
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;

/// The whole device at `AT`, eight pages of it touched.
fn mapped(cpu: &SoftCpu<'_>) -> Device<Soft> {
    let device = device(cpu.space().memory());
    let all = (0, DEVICE_PAGES);
    assert_eq!(map(cpu.space(), &device, AT, all, RW, SHARED), Ok(AT));
    (0..8).for_each(|page| cpu.store(AT + page * PAGE, 100 + page).unwrap());
    device
}

fn bus(address: u64) -> Result<u64, Trap> {
    Err(Trap::Bus { address })
}

#[test]
fn programs_reach_its_frames() {
    each_policy(2, 32, |cpu, space, memory| {
        let device = mapped(cpu);
        assert_eq!(word(memory, 5).load(SeqCst), 105);
        word(memory, 6).store(7, SeqCst);
        assert_eq!(cpu.load(AT + 6 * PAGE), Ok(7));
        // A second mapping, from the middle, read-only.
        assert_eq!(map(space, &device, OTHER, (5, 2), R, SHARED), Ok(OTHER));
        assert_eq!(cpu.load(OTHER + PAGE), Ok(7));
        assert!(cpu.store(OTHER, 1).is_err());
        space.mprotect(OTHER, PAGE, RW).unwrap();
        cpu.store(OTHER, 1).unwrap();
        assert_eq!(cpu.load(AT + 5 * PAGE), Ok(1));
        space.mprotect(AT, 2 * PAGE, 0).unwrap();
        assert!(cpu.load(AT).is_err());
        space.mprotect(AT, 2 * PAGE, R).unwrap();
        assert_eq!(cpu.load(AT), Ok(100));
        // A child maps it too, and sees the same frames.
        let child = space.fork().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                SoftCpu::run(&child, 1, |cpu| {
                    assert_eq!(cpu.load(AT + 7 * PAGE), Ok(107));
                    cpu.store(AT + 7 * PAGE, 8).unwrap();
                });
            });
        });
        assert_eq!(cpu.load(AT + 7 * PAGE), Ok(8));
        child.verify().unwrap();
        child.destroy();
    });
}

#[test]
fn entries_say_what_they_are() {
    each_policy(1, 32, |cpu, space, memory| {
        let format = Entries::FORMAT;
        let _device = mapped(cpu);
        let first = memory.machine().device_frames().start;
        let is_its = |at: u64, index| {
            let entry = space.entry(at).unwrap();
            assert!(format.is_device(entry));
            assert_eq!(entry & format.uncached, format.uncached, "{entry:#x}");
            assert_eq!(format.frame(entry), Frame(first + index));
        };
        is_its(AT + 3 * PAGE, 3);
        // The entry stays so after a change of protection, and after a move.
        space.mprotect(AT, 8 * PAGE, 0).unwrap();
        space.mprotect(AT, 8 * PAGE, RW).unwrap();
        is_its(AT + 3 * PAGE, 3);
        let how = remap_flags::MAYMOVE | remap_flags::FIXED;
        let moved = space.mremap(AT, 8 * PAGE, 8 * PAGE, how, OTHER);
        assert_eq!(moved, Ok(OTHER));
        is_its(OTHER + 3 * PAGE, 3);
        assert_eq!(cpu.load(OTHER + 3 * PAGE), Ok(103));
        assert!(space.entry(AT + 3 * PAGE).is_none());

        let frames = first..first + 1;
        let cached = Device::new(memory, frames, Caching::Cached, None, 0).unwrap();
        map(space, &cached, AT, (0, 1), RW, SHARED).unwrap();
        cpu.store(AT, 3).unwrap();
        assert_eq!(space.entry(AT).unwrap() & format.uncached, 0);
        assert_eq!(cpu.load(OTHER), Ok(3));
    });
}

#[test]
fn its_pages_are_not_counted() {
    each_policy(1, 32, |cpu, space, memory| {
        let before = space.totals();
        let _device = mapped(cpu);
        assert_eq!(space.totals().mapped, before.mapped + DEVICE_PAGES);
        assert_eq!(space.totals().committed, before.committed);
        assert_eq!(space.totals().data, before.data);
        assert_eq!(space.resident(), 0);
        assert_eq!(space.usage(AT..AT + 8 * PAGE), Usage::default());
        // As Linux: only the soft-dirty bit of a new mapping.
        let state = PageState {
            soft_dirty: true,
            ..PageState::default()
        };
        assert_eq!(space.page_state(AT), state);
        space.clear_soft_dirty();
        assert_eq!(space.page_state(AT), PageState::default());
        cpu.store(AT, 1).unwrap();
        let mut there = [9; 8];
        let say = |first, pages: &[u8]| {
            there[first as usize..][..pages.len()].copy_from_slice(pages);
            Ok(())
        };
        space.mincore(AT, 8 * PAGE, say).unwrap();
        assert_eq!(there, [0; 8]);
        assert!(space.object_at(AT).is_none());
        let frames = memory.machine().allocator();
        let verified = memory.verify_machine(frames, [space].into_iter(), |_| Ok(()));
        let (census, accounts) = verified.unwrap();
        assert_eq!((census.pages, accounts.lost()), (0, 0));
    });
}

#[test]
fn what_is_for_memory_is_refused() {
    each_policy(1, 32, |cpu, space, _| {
        let device = mapped(cpu);
        for what in [
            advice::DONTNEED,
            advice::DONTNEED_LOCKED,
            advice::FREE,
            advice::COLD,
            advice::PAGEOUT,
            advice::DOFORK,
            advice::DODUMP,
            advice::WIPEONFORK,
            advice::GUARD_INSTALL,
            advice::GUARD_REMOVE,
            advice::POPULATE_READ,
            advice::POPULATE_WRITE,
        ] {
            assert_eq!(
                space.madvise(AT, 4 * PAGE, what),
                Err(Errno::EINVAL),
                "{what}"
            );
        }
        for what in [
            advice::RANDOM,
            advice::WILLNEED,
            advice::DONTDUMP,
            advice::DONTFORK,
            advice::MERGEABLE,
        ] {
            assert_eq!(space.madvise(AT, 4 * PAGE, what), Ok(()), "{what}");
        }
        assert_eq!(space.madvise(AT, PAGE, advice::REMOVE), Err(Errno::ENODEV));
        assert_eq!(cpu.load(AT), Ok(100));
        let of = space.lookup(AT).unwrap().flags;
        assert!(of.device && of.shared && of.dont_dump && of.dont_fork && !of.mergeable);

        let invalid = Err(Errno::EINVAL);
        // A device mapping cannot be extended.
        let move_it = remap_flags::MAYMOVE;
        let end = AT + DEVICE_PAGES * PAGE;
        let grown = |flags| space.mremap(end - PAGE, PAGE, 2 * PAGE, flags, 0);
        assert_eq!(grown(0), Err(Errno::EFAULT));
        assert_eq!(grown(move_it), Err(Errno::EFAULT));
        assert_eq!(space.mremap(AT, 0, PAGE, move_it, 0), Err(Errno::EFAULT));
        let stay = move_it | remap_flags::DONTUNMAP;
        assert_eq!(space.mremap(AT, PAGE, PAGE, stay, 0), invalid);
        let moved = space.mremap(AT, 2 * PAGE, PAGE, 0, 0);
        assert_eq!(moved, Ok(AT));

        let all = (0, DEVICE_PAGES);
        let private = flags::PRIVATE | flags::FIXED;
        assert_eq!(map(space, &device, OTHER, all, R, private), invalid);
        let behind = (1, DEVICE_PAGES);
        assert_eq!(map(space, &device, OTHER, behind, R, SHARED), invalid);
        let opened = OpenedDevice {
            device: Ok(&device),
            offset: 0,
            file: 0,
            writable: false,
        };
        let written = space.mmap_device(OTHER, PAGE, RW, SHARED, &opened);
        assert_eq!(written, Err(Errno::EACCES));
        assert_eq!(
            space.mmap_device(OTHER, PAGE, R, SHARED, &opened),
            Ok(OTHER)
        );
        assert_eq!(space.mprotect(OTHER, PAGE, RW), Err(Errno::EACCES));
        let remove = space.madvise(OTHER, PAGE, advice::REMOVE);
        assert_eq!(remove, Err(Errno::EACCES));
    });
}

#[test]
fn no_other_cpu_reaches_it() {
    each_policy(1, 32, |cpu, space, _| {
        let _device = mapped(cpu);
        for page in [0, 9] {
            let at = AT + page * PAGE;
            for taken in [Taken::ToRead, Taken::ToReadForLong, Taken::ToWrite] {
                assert_eq!(space.pin(at, taken).err(), Some(Outcome::Bus));
            }
            for access in [Access::Read, Access::Write] {
                let mut reach = |_| panic!("the device is reached");
                assert_eq!(space.access(at, access, &mut reach), Err(Errno::EIO));
                space.mprotect(AT, PAGE, 0).unwrap();
                assert_eq!(space.access(at, access, &mut reach), Err(Errno::EIO));
                space.mprotect(AT, PAGE, RW).unwrap();
            }
        }
    });
}

#[test]
fn it_is_not_locked() {
    each_policy(1, 32, |cpu, space, memory| {
        let device = device(memory);
        let how = SHARED | flags::LOCKED | flags::POPULATE;
        map(space, &device, AT, (0, 8), RW, how).unwrap();
        assert!(space.entry(AT).is_none(), "it is not populated");
        space.mlock(AT, 4 * PAGE, 0).unwrap();
        let current = lock_all_flags::CURRENT | lock_all_flags::FUTURE;
        space.mlockall(current).unwrap();
        map(space, &device, OTHER, (0, 8), RW, SHARED).unwrap();
        assert!(space.entry(AT).is_none() && space.entry(OTHER).is_none());
        assert_eq!(space.totals().locked, 0);
        assert_eq!(space.lookup(OTHER).unwrap().flags.locked, Locked::No);
        space.munlockall();
        cpu.store(AT, 1).unwrap();
    });
}

#[test]
fn all_kinds_of_unmapping_leave_it_alone() {
    each_policy(1, 32, |cpu, space, memory| {
        let _device = mapped(cpu);
        space.munmap(AT + 2 * PAGE, PAGE).unwrap();
        // Memory over the middle of the device mapping; then a device mapping over memory.
        space.mmap(AT + 3 * PAGE, 2 * PAGE, RW, ANON).unwrap();
        assert_eq!(cpu.load(AT + 3 * PAGE), Ok(0));
        cpu.store(AT + 3 * PAGE, 5).unwrap();
        let device = device(memory);
        map(space, &device, AT + 4 * PAGE, (0, 1), RW, SHARED).unwrap();
        assert_eq!(cpu.load(AT + 4 * PAGE), Ok(100));
        space.verify().unwrap();
        for page in 0..8 {
            let kept = word(memory, page).load(SeqCst);
            assert_eq!(kept, 100 + page);
        }
        space.munmap(AT, DEVICE_PAGES * PAGE).unwrap();
        assert_eq!(word(memory, 7).load(SeqCst), 107);
    });
}

#[test]
fn a_revoked_device_is_not_reached() {
    each_policy(2, 32, |cpu, space, memory| {
        let device = mapped(cpu);
        map(space, &device, OTHER, (2, 2), RW, SHARED).unwrap();
        assert_eq!(cpu.load(OTHER), Ok(102));
        let child = space.fork().unwrap();
        let in_child = |act: &(dyn Fn(&SoftCpu<'_>) + Sync)| {
            std::thread::scope(|scope| {
                scope.spawn(|| SoftCpu::run(&child, 1, |cpu| act(cpu)));
            });
        };
        in_child(&|cpu| assert_eq!(cpu.load(AT), Ok(100)));
        device.revoke();
        for at in [AT, AT + 100 * PAGE, OTHER, OTHER + PAGE] {
            assert_eq!(cpu.load(at), bus(at));
            assert!(space.entry(at).is_none() && child.entry(at).is_none());
        }
        in_child(&|cpu| assert_eq!(cpu.load(AT), bus(AT)));
        // A revoked device can be mapped, and is not reached.
        let new = OTHER + (1 << 20);
        assert_eq!(map(space, &device, new, (0, 1), RW, SHARED), Ok(new));
        assert_eq!(cpu.load(new), bus(new));
        device.revoke();
        device.restore();
        in_child(&|cpu| assert_eq!(cpu.load(AT + PAGE), Ok(101)));
        assert_eq!(cpu.load(new), Ok(100));
        assert_eq!(cpu.load(OTHER + PAGE), Ok(103));
        assert_eq!(word(memory, 0).load(SeqCst), 100);
        child.destroy();
    });
}

#[test]
fn its_end_is_told() {
    struct Told(AtomicU64);
    impl Pager for Told {
        fn fill(&self, _: u64, _: u64, _: Frame) -> Result<(), Errno> {
            panic!("a device has no pages to be filled");
        }
        fn gone(&self, tag: u64) {
            self.0.fetch_add(tag, SeqCst);
        }
    }
    each_policy(1, 32, |cpu, space, memory| {
        let told: &'static Told = Box::leak(Box::new(Told(AtomicU64::new(0))));
        let frames = memory.machine().device_frames();
        let device = Device::new(memory, frames, Caching::Cached, Some(told), 7).unwrap();
        let again = device.clone();
        assert_eq!(again.size(), DEVICE_PAGES * PAGE);
        map(space, &device, AT, (0, 2), RW, SHARED).unwrap();
        cpu.store(AT, 1).unwrap();
        drop((device, again));
        assert_eq!(told.0.load(SeqCst), 0);
        assert_eq!(cpu.load(AT), Ok(1));
        space.munmap(AT, 2 * PAGE).unwrap();
        (0..4).for_each(|_| memory.expedite());
        assert_eq!(told.0.load(SeqCst), 7);
    });
}

#[test]
fn frames_that_no_entry_can_name_are_refused() {
    each_policy(1, 32, |_, _, memory| {
        let last = Entries::FORMAT.address / PAGE;
        let new = |frames| Device::new(memory, frames, Caching::Cached, None, 0).is_ok();
        assert!(new(last - 1..last));
        assert!(new(8..8));
        let backwards = std::ops::Range { start: 9, end: 8 };
        for frames in [
            0..1,
            last..last + 1,
            1..(1 << 32) + 1,
            9..u64::MAX,
            backwards,
        ] {
            assert!(!new(frames.clone()), "{frames:?}");
        }
    });
}

/// One CPU performs every operation on mappings of the device; another revokes it now and then. TLB hits are
/// checked all the while.
#[test]
fn it_is_revoked_beside_everything() {
    each_policy(3, 32, |cpu, space, memory| {
        let device = mapped(cpu);
        let ended = AtomicBool::new(false);
        let (device, ended) = (&device, &ended);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                SoftCpu::attend(memory, 1, || {
                    while !ended.load(SeqCst) {
                        device.revoke();
                        // No CPU stores to it while it is revoked.
                        let seen = word(memory, 2).load(SeqCst);
                        std::thread::yield_now();
                        assert_eq!(word(memory, 2).load(SeqCst), seen);
                        device.restore();
                        std::thread::yield_now();
                    }
                });
            });
            scope.spawn(move || {
                SoftCpu::run(space, 2, |cpu| {
                    let mut count = 0;
                    while !ended.load(SeqCst) {
                        count += 1;
                        let _ = cpu.store(AT + 2 * PAGE, count);
                        let _ = cpu.store(OTHER + 2 * PAGE, count);
                    }
                });
            });
            for round in budget(3000).rounds() {
                let move_it = remap_flags::MAYMOVE | remap_flags::FIXED;
                match round % 6 {
                    0 => drop(space.mremap(AT, 8 * PAGE, 8 * PAGE, move_it, OTHER)),
                    1 => drop(space.mremap(OTHER, 8 * PAGE, 8 * PAGE, move_it, AT)),
                    2 => drop(space.munmap(AT, 3 * PAGE)),
                    3 => drop(space.fork().map(|child| child.destroy())),
                    4 => drop(space.mprotect(AT, 4 * PAGE, R)),
                    _ => drop(map(space, device, AT, (0, 8), RW, SHARED)),
                }
                let _ = cpu.load(AT + 2 * PAGE);
            }
            ended.store(true, SeqCst);
        });
        space.verify().unwrap();
    });
}
