//! Parent and child see nothing of each other's memory changes after fork.

use faultless_mm::{AddressSpace, Counter, HugeMode, Policy, SegvCode, advice, flags};
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace, Trap};
use faultless_tests::{available, machine};

const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
const PAGE: u64 = 4096;
const AT: u64 = 1 << 36;

fn each_policy(test: impl Fn(Policy, &'static SoftMemory, SoftSpace)) {
    for &policy in Policy::ALL {
        let memory = machine(2, 64);
        let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap();
        test(policy, memory, space);
    }
}

fn on<R>(space: &SoftSpace, program: impl FnOnce(&SoftCpu<'_>) -> R) -> R {
    SoftCpu::run(space, 0, program)
}

fn fork(space: &SoftSpace) -> SoftSpace {
    on(space, |cpu| cpu.space().fork()).unwrap()
}

fn map(cpu: &SoftCpu<'_>, first: u64, pages: u64, prot: u32) {
    let at = AT + first * PAGE;
    let mapped = cpu
        .space()
        .mmap(at, pages * PAGE, prot, ANON | flags::FIXED);
    assert_eq!(mapped, Ok(at));
}

fn sound(memory: &'static SoftMemory, spaces: &[&SoftSpace]) -> faultless_mm::Census {
    SoftCpu::attend(memory, 0, || AddressSpace::verify_together(spaces))
        .unwrap_or_else(|violation| panic!("{violation}"))
}

fn end(memory: &'static SoftMemory, space: SoftSpace) {
    SoftCpu::attend(memory, 0, || space.destroy());
}

#[test]
fn each_writes_its_own() {
    each_policy(|policy, memory, parent| {
        let before = available(memory) + 3;
        on(&parent, |cpu| {
            map(cpu, 0, 1200, RW);
            for page in 0..1100 {
                cpu.store(AT + page * PAGE, page + 1).unwrap();
            }
            // The zero page, and pages that no access reaches.
            assert_eq!(cpu.load(AT + 1100 * PAGE), Ok(0));
            cpu.space().mprotect(AT, PAGE, 0).unwrap();
        });
        let copies = memory.total(Counter::Copies);
        let child = fork(&parent);
        let census = sound(memory, &[&parent, &child]);
        assert_eq!((census.pages, census.zero_pages), (1100, 2), "{policy}");
        assert_eq!(memory.total(Counter::Copies), copies);
        on(&child, |cpu| {
            for page in 1..1100 {
                assert_eq!(cpu.load(AT + page * PAGE), Ok(page + 1));
            }
            cpu.store(AT + 5 * PAGE, 77).unwrap();
            cpu.store(AT + 1100 * PAGE, 78).unwrap();
            cpu.store(AT + 1150 * PAGE, 79).unwrap();
            let denied = Trap::Segv {
                code: SegvCode::AccErr,
                address: AT,
            };
            assert_eq!(cpu.load(AT), Err(denied));
            cpu.space().mprotect(AT, PAGE, RW).unwrap();
            assert_eq!(cpu.load(AT), Ok(1));
            cpu.store(AT, 80).unwrap();
        });
        assert_eq!(memory.total(Counter::Copies), copies + 2);
        sound(memory, &[&parent, &child]);
        on(&parent, |cpu| {
            assert_eq!(cpu.load(AT + 5 * PAGE), Ok(6));
            assert_eq!(cpu.load(AT + 1100 * PAGE), Ok(0));
            assert_eq!(cpu.load(AT + 1150 * PAGE), Ok(0));
            let reuses = memory.total(Counter::Reuses);
            // The child has its own copy by now: nothing to copy.
            cpu.store(AT + 5 * PAGE, 81).unwrap();
            assert_eq!(memory.total(Counter::Reuses), reuses + 1);
            cpu.store(AT + 6 * PAGE, 82).unwrap();
            cpu.space().mprotect(AT, PAGE, RW).unwrap();
            assert_eq!(cpu.load(AT), Ok(1));
        });
        assert_eq!(memory.total(Counter::Copies), copies + 3);
        sound(memory, &[&parent, &child]);
        on(&child, |cpu| {
            assert_eq!(cpu.load(AT + 5 * PAGE), Ok(77));
            assert_eq!(cpu.load(AT + 6 * PAGE), Ok(7));
            assert_eq!(cpu.load(AT), Ok(80));
        });
        end(memory, child);
        sound(memory, &[&parent]);
        end(memory, parent);
        assert_eq!(available(memory), before, "frames were lost or found");
    });
}

/// A page that is only read keeps its content over many generations, in any order of exit.
#[test]
fn generations() {
    each_policy(|_, memory, first| {
        let before = available(memory) + 3;
        on(&first, |cpu| {
            map(cpu, 0, 4, RW);
            cpu.store(AT, 1).unwrap();
        });
        let mut spaces = vec![first];
        for generation in 1..20u64 {
            let last = spaces.last().unwrap();
            let child = fork(last);
            on(&child, |cpu| {
                cpu.store(AT + PAGE, generation).unwrap();
            });
            spaces.push(child);
            sound(memory, &spaces.iter().collect::<Vec<_>>());
        }
        // Children before parents, parents before children, from the middle.
        while !spaces.is_empty() {
            let middle = spaces.len() / 2;
            for space in &spaces {
                assert_eq!(on(space, |cpu| cpu.load(AT)), Ok(1));
            }
            end(memory, spaces.remove(middle));
            sound(memory, &spaces.iter().collect::<Vec<_>>());
        }
        assert_eq!(available(memory), before, "frames were lost or found");
    });
}

/// The last space that maps a page writes it in place.
#[test]
fn the_last_one_reuses() {
    each_policy(|_, memory, parent| {
        let before = available(memory) + 3;
        on(&parent, |cpu| {
            // A huge page is taken over as a whole.
            memory.set_huge_mode(HugeMode::Never);
            map(cpu, 0, 600, RW);
            for page in 0..600 {
                cpu.store(AT + page * PAGE, page).unwrap();
            }
        });
        let mut gone = [0, 1, 2, 3].map(|_| Some(fork(&parent)));
        let (copies, reuses) = (memory.total(Counter::Copies), memory.total(Counter::Reuses));
        for way in 0..gone.len() {
            let child = gone[way].take().unwrap();
            on(&child, |cpu| {
                let space = cpu.space();
                match way {
                    0 => space.munmap(AT, 600 * PAGE).unwrap(),
                    1 => space.madvise(AT, 600 * PAGE, advice::DONTNEED).unwrap(),
                    2 => map(cpu, 0, 600, RW),
                    _ => {}
                }
            });
            let mut all: Vec<_> = gone.iter().flatten().collect();
            all.extend([&parent, &child]);
            sound(memory, &all);
            end(memory, child);
        }
        on(&parent, |cpu| {
            for page in 0..600 {
                cpu.store(AT + page * PAGE, page + 1).unwrap();
            }
        });
        assert_eq!(memory.total(Counter::Copies), copies);
        assert_eq!(memory.total(Counter::Reuses), reuses + 600);
        sound(memory, &[&parent]);
        end(memory, parent);
        assert_eq!(available(memory), before, "frames were lost or found");
    });
}

/// Heap, layout, policy and mappings are copied from the parent, and then diverge.
#[test]
fn mappings_are_copied() {
    each_policy(|policy, memory, parent| {
        let lines = |space: &SoftSpace| {
            let mut lines = Vec::new();
            SoftCpu::attend(memory, 0, || space.maps(&mut |line| lines.push(line)));
            lines
        };
        let before = available(memory) + 3;
        on(&parent, |cpu| {
            let space = cpu.space();
            space.set_brk(1 << 32);
            assert_eq!(space.brk((1 << 32) + 5000), (1 << 32) + 5000);
            for (first, pages, prot) in [(0, 3, RW), (3, 70, 1), (100, 5000, 5), (9000, 1, RW)] {
                map(cpu, first, pages, prot);
            }
            space
                .mmap(
                    AT - 600 * PAGE,
                    PAGE,
                    RW,
                    ANON | flags::FIXED | flags::GROWSDOWN,
                )
                .unwrap();
            space.munmap(AT + 200 * PAGE, 9 * PAGE).unwrap();
        });
        let child = fork(&parent);
        assert_eq!(child.policy(), policy);
        assert_eq!(child.heap(), parent.heap());
        assert_eq!(child.layout(), parent.layout());
        assert_eq!(lines(&child), lines(&parent));
        let mapped = lines(&parent);
        on(&child, |cpu| {
            // The child's gap index is right, too.
            let chosen = cpu.space().mmap(0, 3 * PAGE, RW, ANON).unwrap();
            cpu.space().munmap(chosen, 3 * PAGE).unwrap();
            let there = on_other(&parent, |cpu| cpu.space().mmap(0, 3 * PAGE, RW, ANON));
            assert_eq!(Ok(chosen), there);
            on_other(&parent, |cpu| cpu.space().munmap(chosen, 3 * PAGE)).unwrap();
            cpu.store(AT - 800 * PAGE, 1).unwrap();
            cpu.space().munmap(AT, 5000 * PAGE).unwrap();
            cpu.space().brk(1 << 32);
        });
        assert_eq!(lines(&parent), mapped);
        sound(memory, &[&parent, &child]);
        end(memory, parent);
        sound(memory, &[&child]);
        end(memory, child);
        assert_eq!(available(memory), before, "frames were lost or found");
    });
}

/// Runs `program` on CPU 1, while the caller is CPU 0.
fn on_other<R: Send>(space: &SoftSpace, program: impl FnOnce(&SoftCpu<'_>) -> R + Send) -> R {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| SoftCpu::run(space, 1, program));
        other.join().unwrap()
    })
}
