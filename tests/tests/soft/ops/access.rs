//! Access to a space's memory from outside, beyond what its mappings allow, under every policy, and
//! beside every operation of the space itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use faultless_mm::{
    Access, AddressSpace, Errno, Frame, MemoryObject, Opened, PAGE_SIZE, PhysicalMemory, Policy,
    advice, flags,
};
use faultless_soft::{SoftCpu, SoftSpace, Trap};
use faultless_tests::random::{Numbers, seed};
use faultless_tests::{Budget, available, budget, each_policy, machine, verify_and_destroy};

const PAGE: u64 = PAGE_SIZE;
const NONE: u32 = 0;
const READ: u32 = 1;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
const SHARED: u32 = flags::SHARED | flags::ANONYMOUS | flags::FIXED;
const AT: u64 = (1 << 36) - 4 * PAGE;
const PAGES: u64 = 8;

fn page(number: u64) -> u64 {
    AT + number * PAGE
}

/// The word at an address, through the frame.
fn word(space: &SoftSpace, frame: Frame, address: u64) -> &'static AtomicU64 {
    let page = space.memory().machine().pointer(frame).as_ptr();
    // SAFETY: in the page, and aligned; all accesses are atomic.
    unsafe { &*page.add((address % PAGE) as usize).cast::<AtomicU64>() }
}

fn peek(space: &SoftSpace, address: u64) -> Result<u64, Errno> {
    let mut value = 0;
    space.access(address, Access::Read, &mut |frame| {
        value = word(space, frame, address).load(SeqCst);
    })?;
    Ok(value)
}

fn poke(space: &SoftSpace, address: u64, value: u64) -> Result<(), Errno> {
    space.access(address, Access::Write, &mut |frame| {
        word(space, frame, address).store(value, SeqCst);
    })
}

fn map(space: &SoftSpace, prot: u32, kind: u32) {
    assert_eq!(space.mmap(AT, PAGES * PAGE, prot, kind), Ok(AT));
}

fn is_segv(result: Result<impl Sized, Trap>) -> bool {
    matches!(result, Err(Trap::Segv { .. }))
}

#[test]
fn what_is_allowed() {
    each_policy(1, 64, |cpu, space, _| {
        for kind in [ANON, SHARED] {
            map(space, RW, kind);
            assert_eq!(peek(space, page(1)), Ok(0));
            cpu.store(page(2), 7).unwrap();
            assert_eq!(peek(space, page(2)), Ok(7));
            assert_eq!(poke(space, page(3) + 8, 9), Ok(()));
            assert_eq!(cpu.load(page(3) + 8), Ok(9));
            assert_eq!(poke(space, page(1), 10), Ok(()));
            assert_eq!(cpu.load(page(1)), Ok(10));
            // A write from outside is soft-dirty.
            space.clear_soft_dirty();
            assert_eq!(poke(space, page(2), 8), Ok(()));
            assert!(space.page_state(page(2)).soft_dirty);
            assert!(!space.page_state(page(3)).soft_dirty);
            space.verify().unwrap();
            space.munmap(AT, PAGES * PAGE).unwrap();
        }
    });
}

#[test]
fn what_is_not_allowed_to_the_program() {
    each_policy(1, 64, |cpu, space, _| {
        for prot in [READ, NONE] {
            map(space, RW, ANON);
            cpu.store(page(0), 5).unwrap();
            cpu.load(page(1)).unwrap();
            space.mprotect(AT, PAGES * PAGE, prot).unwrap();
            space.clear_soft_dirty();
            // A page that was written, one of zeroes, and one that was not present.
            for number in 0..3 {
                let was = if number == 0 { 5 } else { 0 };
                assert_eq!(peek(space, page(number)), Ok(was));
                assert_eq!(poke(space, page(number) + 16, number + 1), Ok(()));
                assert_eq!(peek(space, page(number)), Ok(was));
                assert_eq!(peek(space, page(number) + 16), Ok(number + 1));
                assert!(space.page_state(page(number)).soft_dirty);
                assert!(is_segv(cpu.store(page(number), 1)));
                space.verify().unwrap();
            }
            assert_eq!(peek(space, page(3)), Ok(0));
            assert_eq!(is_segv(cpu.load(page(3))), prot == NONE);
            space.mprotect(AT, PAGES * PAGE, RW).unwrap();
            for number in 0..3 {
                assert_eq!(cpu.load(page(number) + 16), Ok(number + 1));
                cpu.store(page(number) + 16, 0).unwrap();
            }
            space.munmap(AT, PAGES * PAGE).unwrap();
        }
    });
}

#[test]
fn what_cannot_be_reached() {
    each_policy(1, 64, |cpu, space, _| {
        map(space, RW, SHARED);
        cpu.store(page(0), 3).unwrap();
        space.mprotect(AT, PAGES * PAGE, READ).unwrap();
        assert_eq!(peek(space, page(0)), Ok(3));
        // A forced write to shared memory is refused, because other mappings see it.
        assert_eq!(poke(space, page(0), 4), Err(Errno::EIO));
        assert_eq!(poke(space, page(1), 4), Err(Errno::EIO));
        space.mprotect(AT, PAGES * PAGE, NONE).unwrap();
        assert_eq!(peek(space, page(0)), Ok(3));
        assert_eq!(poke(space, page(0), 4), Err(Errno::EIO));
        space.munmap(page(2), PAGE).unwrap();
        for address in [page(2), page(PAGES), 0, space.layout().end, u64::MAX - 7] {
            assert_eq!(peek(space, address), Err(Errno::EIO));
            assert_eq!(poke(space, address, 1), Err(Errno::EIO));
        }
        map(space, RW, ANON);
        space.madvise(page(1), PAGE, advice::GUARD_INSTALL).unwrap();
        assert_eq!(peek(space, page(1)), Err(Errno::EIO));
        assert_eq!(poke(space, page(1), 1), Err(Errno::EIO));
        // A stack grows for an access from outside, as for the program.
        let stack = AT + (1 << 30);
        let kind = ANON | flags::GROWSDOWN;
        space.mmap(stack, PAGE, RW, kind).unwrap();
        assert_eq!(poke(space, stack - 8, 6), Ok(()));
        assert_eq!(cpu.load(stack - 8), Ok(6));
    });
}

#[test]
fn a_file_that_is_only_read() {
    each_policy(1, 64, |cpu, space, memory| {
        let store = MemoryObject::new(memory, 4 * PAGE, None, 0).unwrap();
        for index in 0..4 {
            drop(store.page_to_write(index).unwrap());
        }
        let opened = Opened {
            store: Ok(&store),
            offset: 0,
            file: 1,
            writable: true,
        };
        let shared = AT + (1 << 30);
        let map = |at, prot, kind: u32| {
            let kind = kind | flags::FIXED;
            assert_eq!(space.mmap_object(at, 5 * PAGE, prot, kind, &opened), Ok(at));
        };
        for prot in [READ, NONE] {
            map(AT, prot, flags::PRIVATE);
            map(shared, RW, flags::SHARED);
            cpu.store(shared, 11).unwrap();
            assert_eq!(peek(space, AT), Ok(11));
            // A breakpoint: written to a private copy, not to the file.
            assert_eq!(poke(space, AT, 12), Ok(()));
            assert_eq!(poke(space, page(2), 13), Ok(()));
            assert_eq!((peek(space, AT), cpu.load(shared)), (Ok(12), Ok(11)));
            assert_eq!(cpu.load(shared + 2 * PAGE), Ok(0));
            assert!(is_segv(cpu.store(AT, 1)));
            // A shared mapping that allows writing writes to the file.
            assert_eq!(poke(space, shared + PAGE, 14), Ok(()));
            assert_eq!(peek(space, page(1)), Ok(14));
            // Behind the end of the file.
            assert_eq!(peek(space, page(4)), Err(Errno::EIO));
            assert_eq!(poke(space, page(4), 1), Err(Errno::EIO));
            space.verify().unwrap();
        }
    });
}

#[test]
fn a_child_does_not_see_it() {
    each_policy(2, 64, |cpu, space, _| {
        map(space, RW, ANON);
        cpu.store(page(0), 5).unwrap();
        space.mprotect(AT, PAGES * PAGE, READ).unwrap();
        assert_eq!(poke(space, page(0), 6), Ok(()));
        let child = space.fork().unwrap();
        assert_eq!(poke(space, page(0), 7), Ok(()));
        assert_eq!(poke(&child, page(1), 8), Ok(()));
        assert_eq!(
            (peek(space, page(0)), peek(&child, page(0))),
            (Ok(7), Ok(6))
        );
        assert_eq!(
            (peek(space, page(1)), peek(&child, page(1))),
            (Ok(0), Ok(8))
        );
        AddressSpace::verify_together(&[space, &child]).unwrap();
        child.destroy();
    });
}

/// Several CPUs increment words of their own, from outside and as the program, while another CPU forks and
/// performs every change of the mapping that keeps its content.
fn beside_changes(policy: Policy, budget: &Budget) {
    const CPUS: usize = 4;
    let memory = machine(CPUS, 64);
    let before = available(memory);
    let space = SoftCpu::attend(memory, 0, || faultless_soft::Soft::space(memory, policy)).unwrap();
    SoftCpu::run(&space, 0, |_| map(&space, RW, ANON));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 1..CPUS as u32 {
            let (space, over) = (&space, &over);
            scope.spawn(move || {
                let mut numbers = Numbers(seed() ^ u64::from(number));
                SoftCpu::run(space, number, |cpu| {
                    let mut mine = [0; PAGES as usize];
                    while !over.load(SeqCst) {
                        let at = numbers.below(PAGES);
                        let address = page(at) + u64::from(number) * 8;
                        let mine = &mut mine[at as usize];
                        // From outside, or as the program where the mapping allows it.
                        match numbers.below(4) {
                            0 => {
                                if cpu.store(address, *mine + 1).is_ok() {
                                    *mine += 1;
                                }
                            }
                            1 => {
                                poke(space, address, *mine + 1).unwrap();
                                *mine += 1;
                            }
                            2 => assert_eq!(peek(space, address), Ok(*mine)),
                            _ => {
                                if let Ok(seen) = cpu.load(address) {
                                    assert_eq!(seen, *mine);
                                }
                            }
                        }
                    }
                });
            });
        }
        SoftCpu::run(&space, 0, |_| {
            let mut numbers = Numbers(seed());
            for _ in budget.rounds() {
                let first = numbers.below(PAGES);
                let length = (1 + numbers.below(PAGES - first)) * PAGE;
                match numbers.below(5) {
                    0 => space.fork().unwrap().destroy() as usize,
                    1 => {
                        space.clear_soft_dirty();
                        0
                    }
                    _ => {
                        let prot = [NONE, READ, RW][numbers.below(3) as usize];
                        space.mprotect(page(first), length, prot).unwrap();
                        0
                    }
                };
            }
            over.store(true, SeqCst);
        });
    });
    verify_and_destroy(space, before);
}

#[test]
fn nothing_is_lost_beside_changes() {
    for &policy in Policy::ALL {
        beside_changes(policy, &budget(2000));
    }
}
