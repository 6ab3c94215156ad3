//! A fault that cannot proceed without the lock acquires it, counts the reason, and
//! succeeds. The test itself causes the conflict: it holds a claim until the fault has
//! given up.

use faultless_mm::{Counter, HugeMode, Policy, SegvCode, flags};
use faultless_paging::{Claim, Page, Walk, walk};
use faultless_soft::{Entries, SoftCpu, SoftSpace, Trap};
use faultless_sync::Cpu;
use faultless_tests::counting::counted;
use faultless_tests::space;

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
/// An address at which tables of every level begin.
const AT: u64 = 1 << 36;
/// Bytes that a table of the lowest level maps.
const TABLE: u64 = 2 << 20;

/// Claims the entry of a page for CPU 0, or the one above it that is empty.
fn claim(space: &SoftSpace, address: u64) -> Claim<'_, Entries> {
    let machine = space.memory().machine();
    // SAFETY: nothing is unmapped in this test, so that no table is freed.
    let walked = unsafe { walk::<Entries, _>(machine, space.id().root, Page::containing(address)) };
    let (entry, value) = match walked {
        Walk::Leaf { entry, value, .. } => (entry, value),
        Walk::Missing { entry, .. } => (entry, 0),
        Walk::Busy | Walk::Huge { .. } => panic!("claimed already"),
    };
    entry
        .claim(value, Cpu(0))
        .unwrap_or_else(|value| panic!("{value:#x} is there now"))
}

/// Runs `access` on CPU 1 of a space of 1024 pages, while `claimed` is claimed.
/// It must fall back for the reason `why` and then succeed.
fn falls_back(policy: Policy, why: Counter, claimed: u64, access: impl Fn(&SoftCpu<'_>) + Sync) {
    let (memory, space) = space(2, 16, policy);
    // The fault meets a claim of the page, not of a huge page.
    memory.set_huge_mode(HugeMode::Never);
    SoftCpu::run(&space, 0, |cpu| {
        space.mmap(AT, 1024 * PAGE, RW, ANON).unwrap();
        cpu.store(AT, 7).unwrap();
        let (counts, ()) = counted(memory, || {
            std::thread::scope(|scope| {
                let claim = claim(&space, claimed);
                scope.spawn(|| SoftCpu::run(&space, 1, &access));
                while memory.total(why) == 0 {
                    std::thread::yield_now();
                }
                drop(claim);
            });
        });
        counts.add_up(policy);
        assert_eq!(
            (counts.get(Counter::Faults), counts.get(why)),
            (1, 1),
            "{policy}"
        );
        space.verify().unwrap();
    });
    SoftCpu::attend(memory, 0, || space.destroy());
}

/// The counter of a fault that went to the mmap lock.
fn reason(policy: Policy, why: Counter) -> Counter {
    match policy {
        Policy::VmaLock => Counter::VmaLockAbort,
        _ => why,
    }
}

const BOTH: [Policy; 2] = [Policy::VmaLock, Policy::Speculative];

#[test]
fn the_entry_stays_claimed() {
    for policy in BOTH {
        let why = reason(policy, Counter::SpfPteLock);
        falls_back(policy, why, AT + 5 * PAGE, |cpu| {
            assert_eq!(cpu.store(AT + 5 * PAGE, 1), Ok(()));
        });
        falls_back(policy, why, AT, |cpu| assert_eq!(cpu.load(AT), Ok(7)));
    }
}

#[test]
fn the_table_stays_claimed() {
    for policy in BOTH {
        let why = reason(policy, Counter::SpfPmdChanged);
        falls_back(policy, why, AT + TABLE, |cpu| {
            assert_eq!(cpu.store(AT + TABLE, 1), Ok(()));
        });
    }
}

/// A writer waits for a claim, and a fault on another page waits for the writer.
#[test]
fn the_mapping_stays_changing() {
    for policy in BOTH {
        let (memory, space) = space(3, 16, policy);
        let why = reason(policy, Counter::SpfVmaChanged);
        let address = AT + 9 * PAGE;
        SoftCpu::run(&space, 0, |cpu| {
            space.mmap(AT, 100 * PAGE, RW, ANON).unwrap();
            cpu.store(AT, 7).unwrap();
            let (counts, ()) = counted(memory, || {
                std::thread::scope(|scope| {
                    let claim = claim(&space, AT);
                    scope.spawn(|| {
                        let protect = || space.mprotect(AT, 100 * PAGE, 1);
                        assert_eq!(SoftCpu::run(&space, 1, |_| protect()), Ok(()));
                    });
                    while !space.is_in_motion(Page::containing(address)) {
                        std::thread::yield_now();
                    }
                    scope.spawn(|| {
                        let code = SegvCode::AccErr;
                        let denied = Trap::Segv { code, address };
                        let stored = SoftCpu::run(&space, 2, |cpu| cpu.store(address, 1));
                        assert_eq!(stored, Err(denied), "{policy}");
                    });
                    while memory.total(why) == 0 {
                        std::thread::yield_now();
                    }
                    drop(claim);
                });
            });
            counts.add_up(policy);
            assert_eq!(
                (counts.get(Counter::Faults), counts.get(why)),
                (1, 1),
                "{policy}"
            );
            assert_eq!(cpu.load(AT), Ok(7));
            space.verify().unwrap();
        });
        SoftCpu::attend(memory, 0, || space.destroy());
    }
}
