//! Guards (`MADV_GUARD_INSTALL`), under every policy: what Linux 6.13 does with them.

use faultless_mm::{AddressSpace, Counter, Errno, Policy, SegvCode, advice, flags, remap_flags};
use faultless_soft::{SoftCpu, SoftSpace, Trap};
use faultless_tests::each_policy;

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
const AT: u64 = 1 << 36;
const TO: u64 = AT + (3 << 30) + 5 * PAGE;
const FIXED: u32 = remap_flags::MAYMOVE | remap_flags::FIXED;

fn page(number: u64) -> u64 {
    AT + number * PAGE
}

fn map(space: &SoftSpace, pages: u64) {
    let mapped = space.mmap(AT, pages * PAGE, RW, ANON | flags::FIXED);
    assert_eq!(mapped, Ok(AT));
}

fn guard(space: &SoftSpace, first: u64, pages: u64) -> Result<(), Errno> {
    space.madvise(page(first), pages * PAGE, advice::GUARD_INSTALL)
}

fn unguard(space: &SoftSpace, first: u64, pages: u64) -> Result<(), Errno> {
    space.madvise(page(first), pages * PAGE, advice::GUARD_REMOVE)
}

#[track_caller]
fn is_guarded(cpu: &SoftCpu<'_>, address: u64) {
    let code = SegvCode::MapErr;
    assert_eq!(cpu.load(address), Err(Trap::Segv { code, address }));
    assert_eq!(cpu.store(address, 1), Err(Trap::Segv { code, address }));
}

fn present(space: &SoftSpace, first: u64, pages: u64) -> String {
    let mut text = String::new();
    let say = |_, there: &[u8]| {
        text.extend(there.iter().map(|byte| char::from(b'0' + byte)));
        Ok(())
    };
    space.mincore(page(first), pages * PAGE, say).unwrap();
    text
}

#[test]
fn a_guard_bars_its_page_and_no_other() {
    each_policy(2, 64, |cpu, space, memory| {
        map(space, 1200);
        for number in 0..1200 {
            cpu.store(page(number), number + 1).unwrap();
        }
        cpu.load(page(700)).unwrap();
        // Over parts of three tables, and once more over some of them.
        guard(space, 300, 800).unwrap();
        guard(space, 1000, 110).unwrap();
        let before = memory.total(Counter::Faults) - memory.total(Counter::Spf);
        for number in [300, 511, 512, 1023, 1024, 1099, 1109] {
            is_guarded(cpu, page(number));
        }
        if space.policy() == Policy::Speculative {
            let fell_back = memory.total(Counter::Faults) - memory.total(Counter::Spf);
            assert_eq!(fell_back, before, "a fault on a guard took a lock");
        }
        assert_eq!(cpu.load(page(299)), Ok(300));
        assert_eq!(cpu.load(page(1110)), Ok(1111));
        assert_eq!(space.resident(), 1200 - 810);
        assert_eq!(present(space, 298, 4), "1100");
        assert_eq!(present(space, 1108, 4), "0011");
        let mut lines = 0;
        space.maps(&mut |_| lines += 1);
        assert_eq!(lines, 1, "guards are no mappings");
        // Removed again: pages fault in as if guards had never been there.
        unguard(space, 0, 1200).unwrap();
        assert_eq!(cpu.load(page(300)), Ok(0));
        assert_eq!(cpu.load(page(299)), Ok(300));
        cpu.store(page(1109), 5).unwrap();
        assert_eq!(cpu.load(page(1109)), Ok(5));
    });
}

#[test]
fn guards_outlast_what_is_no_removal() {
    each_policy(1, 64, |cpu, space, _| {
        map(space, 8);
        guard(space, 2, 3).unwrap();
        for what in [advice::DONTNEED, advice::DONTNEED_LOCKED, advice::FREE] {
            space.madvise(AT, 8 * PAGE, what).unwrap();
            is_guarded(cpu, page(3));
        }
        for prot in [0, 1, RW] {
            space.mprotect(AT, 8 * PAGE, prot).unwrap();
        }
        is_guarded(cpu, page(4));
        // A forbidden access reports the mapping's error, not the guard's.
        space.mprotect(AT, 8 * PAGE, 1).unwrap();
        let address = page(4);
        let code = SegvCode::AccErr;
        assert_eq!(cpu.store(address, 1), Err(Trap::Segv { code, address }));
        let code = SegvCode::MapErr;
        assert_eq!(cpu.load(address), Err(Trap::Segv { code, address }));
    });
}

#[test]
fn populating_stops_at_a_guard() {
    each_policy(1, 64, |cpu, space, _| {
        map(space, 8);
        guard(space, 5, 1).unwrap();
        for what in [advice::POPULATE_READ, advice::POPULATE_WRITE] {
            let populated = space.madvise(AT, 8 * PAGE, what);
            assert_eq!(populated, Err(Errno::EFAULT));
            assert_eq!(present(space, 0, 8), "11111000");
        }
        is_guarded(cpu, page(5));
    });
}

#[test]
fn guards_go_with_their_mapping() {
    each_policy(1, 64, |cpu, space, _| {
        map(space, 8);
        guard(space, 0, 8).unwrap();
        map(space, 4);
        assert_eq!(cpu.load(page(3)), Ok(0), "mapped over");
        is_guarded(cpu, page(4));
        space.munmap(page(4), 4 * PAGE).unwrap();
        assert_eq!(space.mmap(page(4), 4 * PAGE, RW, ANON), Ok(page(4)));
        assert_eq!(cpu.load(page(4)), Ok(0), "unmapped");
    });
}

#[test]
fn guards_move_along() {
    each_policy(1, 64, |cpu, space, _| {
        map(space, 1100);
        cpu.store(page(600), 7).unwrap();
        guard(space, 500, 50).unwrap();
        let moved = space.mremap(AT, 1100 * PAGE, 1100 * PAGE, FIXED, TO);
        assert_eq!(moved, Ok(TO));
        is_guarded(cpu, TO + 500 * PAGE);
        is_guarded(cpu, TO + 549 * PAGE);
        assert_eq!(cpu.load(TO + 550 * PAGE), Ok(0));
        assert_eq!(cpu.load(TO + 600 * PAGE), Ok(7));
        // The mapping left behind has no guards.
        let stays = FIXED | remap_flags::DONTUNMAP;
        let back = space.mremap(TO, 1100 * PAGE, 1100 * PAGE, stays, AT);
        assert_eq!(back, Ok(AT));
        is_guarded(cpu, page(520));
        assert_eq!(cpu.load(TO + 520 * PAGE), Ok(0));
    });
}

#[test]
fn a_child_has_them_too() {
    each_policy(2, 64, |cpu, space, memory| {
        map(space, 8);
        cpu.store(page(0), 1).unwrap();
        guard(space, 1, 2).unwrap();
        guard(space, 6, 1).unwrap();
        space
            .madvise(page(6), 2 * PAGE, advice::WIPEONFORK)
            .unwrap();
        let child = space.fork().unwrap();
        AddressSpace::verify_together(&[space, &child]).unwrap();
        unguard(space, 1, 1).unwrap();
        cpu.store(page(1), 5).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                SoftCpu::run(&child, 1, |cpu| {
                    assert_eq!(cpu.load(page(0)), Ok(1));
                    is_guarded(cpu, page(1));
                    is_guarded(cpu, page(2));
                    assert_eq!(cpu.load(page(6)), Ok(0), "wiped");
                });
            });
            thread.join().unwrap();
        });
        AddressSpace::verify_together(&[space, &child]).unwrap();
        let _ = memory;
        child.destroy();
    });
}

#[test]
fn errors_are_linuxs() {
    each_policy(1, 64, |cpu, space, _| {
        map(space, 8);
        space.munmap(page(3), PAGE).unwrap();
        assert_eq!(guard(space, 0, 8), Err(Errno::ENOMEM));
        is_guarded(cpu, page(2));
        is_guarded(cpu, page(4));
        assert_eq!(unguard(space, 2, 3), Err(Errno::ENOMEM));
        assert_eq!(cpu.load(page(2)), Ok(0));
        assert_eq!(cpu.load(page(4)), Ok(0));
        let odd = space.madvise(AT + 1, PAGE, advice::GUARD_INSTALL);
        assert_eq!(odd, Err(Errno::EINVAL));
        assert_eq!(space.madvise(AT, 0, advice::GUARD_INSTALL), Ok(()));
        // A mapping without any access can have guards, too.
        space.mprotect(page(4), PAGE, 0).unwrap();
        assert_eq!(guard(space, 4, 1), Ok(()));
    });
}
