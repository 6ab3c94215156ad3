//! A program's view of its memory on the soft machine, under every policy.

use faultless_mm::{Counter, Errno, Policy, SegvCode, flags};
use faultless_soft::{SoftCpu, Trap};
use faultless_tests::{available, machine, on_every_cpu, space, verify_and_destroy};

const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
const PAGE: u64 = 4096;

#[test]
fn map_touch_unmap() {
    for &policy in Policy::ALL {
        let memory = machine(2, 64);
        let before = available(memory);
        let space = SoftCpu::attend(memory, 0, || {
            faultless_soft::Soft::space(memory, policy).unwrap()
        });
        SoftCpu::run(&space, 0, |cpu| {
            let at = cpu.space().mmap(0, 10 * PAGE, RW, ANON).unwrap();
            assert_eq!(cpu.load(at), Ok(0));
            cpu.store(at, 7).unwrap();
            cpu.store(at + 3 * PAGE, 8).unwrap();
            assert_eq!((cpu.load(at), cpu.load(at + 3 * PAGE)), (Ok(7), Ok(8)));
            cpu.space().munmap(at + PAGE, 5 * PAGE).unwrap();
            let gone = Trap::Segv {
                code: SegvCode::MapErr,
                address: at + 3 * PAGE,
            };
            assert_eq!(cpu.load(at + 3 * PAGE), Err(gone));
            assert_eq!(cpu.load(at), Ok(7));
            cpu.space().mprotect(at, PAGE, 1).unwrap();
            let denied = Trap::Segv {
                code: SegvCode::AccErr,
                address: at,
            };
            assert_eq!(cpu.store(at, 1), Err(denied));
            cpu.space().mprotect(at, PAGE, RW).unwrap();
            cpu.store(at, 9).unwrap();
            cpu.space()
                .madvise(at, PAGE, faultless_mm::advice::DONTNEED)
                .unwrap();
            assert_eq!(cpu.load(at), Ok(0));
            assert_eq!(cpu.space().mprotect(at, 3 * PAGE, 1), Err(Errno::ENOMEM));
        });
        let faults = memory.total(Counter::Faults);
        let spf = memory.total(Counter::Spf);
        assert_eq!(
            spf,
            if policy == Policy::Speculative {
                faults
            } else {
                0
            }
        );
        verify_and_destroy(space, before);
    }
}

#[test]
fn all_cpus_at_once() {
    for &policy in Policy::ALL {
        let (memory, space) = space(4, 64, policy);
        let at = SoftCpu::run(&space, 0, |cpu| {
            cpu.space().mmap(0, 64 * PAGE, RW, ANON).unwrap()
        });
        on_every_cpu(&space, |cpu| {
            for round in 0..200u64 {
                for page in 0..64 {
                    cpu.fetch_add(at + page * PAGE, 1).unwrap();
                }
                if round % 16 == u64::from(cpu.number()) {
                    let own = cpu.space().mmap(0, 8 * PAGE, RW, ANON).unwrap();
                    for page in 0..8 {
                        cpu.store(own + page * PAGE, page).unwrap();
                    }
                    cpu.space().mprotect(at, 64 * PAGE, RW).unwrap();
                    cpu.space().munmap(own, 8 * PAGE).unwrap();
                }
            }
        });
        SoftCpu::run(&space, 0, |cpu| {
            for page in 0..64 {
                assert_eq!(
                    cpu.load(at + page * PAGE),
                    Ok(800),
                    "page {page} under {policy}"
                );
            }
        });
        SoftCpu::attend(memory, 0, || {
            let census = space.verify().unwrap();
            assert_eq!((census.pages, census.mapped), (64, 64));
            space.destroy();
        });
    }
}
