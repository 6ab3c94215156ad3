//! Atomic instructions that fault first on their read, as on AArch64: what their faults map, exactly counted, where the
//! machine says that the instruction will also store, and where it does not.

use faultless_mm::{Counter, HugeMode, MemoryObject, Opened, Policy, flags, userfault};
use faultless_soft::{Atomics, Options, Soft, SoftCpu, SoftMemory, SoftSpace, Trap};
use faultless_tests::counting::{Counts, counted, faults};
use faultless_tests::userfault::{Handled, fault};
use faultless_tests::{available, verify_and_destroy};

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
const PAGES: u64 = HUGE / PAGE;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
/// An address at which tables of every level begin.
const AT: u64 = 1 << 36;

/// Runs `test` under every policy, on a machine with and on one without the answer.
fn on_each_machine(test: impl Fn(&SoftCpu<'_>, &SoftSpace, &'static SoftMemory, bool, Policy)) {
    for is_told in [false, true] {
        for &policy in Policy::ALL {
            let options = Options {
                memory: 64 << 20,
                check: true,
                huge: HugeMode::Never,
                atomics: match is_told {
                    true => Atomics::Told,
                    false => Atomics::ReadFirst,
                },
                ..Options::default()
            };
            let memory = Soft::start(options).unwrap();
            let before = available(memory);
            let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy).unwrap());
            SoftCpu::run(&space, 0, |cpu| test(cpu, &space, memory, is_told, policy));
            verify_and_destroy(space, before);
        }
    }
}

/// Adds nothing to the first word of each page.
fn touch(cpu: &SoftCpu<'_>, memory: &'static SoftMemory, pages: u64) -> Counts {
    let add = |page| assert_eq!(cpu.fetch_add(AT + page * PAGE, 0), Ok(0));
    counted(memory, || (0..pages).for_each(add)).0
}

#[test]
fn small_pages_take_one_fault_each() {
    on_each_machine(|cpu, space, memory, is_told, policy| {
        space.mmap(AT, HUGE, RW, ANON).unwrap();
        let counts = touch(cpu, memory, PAGES);
        let mut expected = match is_told {
            true => faults(policy, PAGES),
            false => faults(policy, 2 * PAGES),
        };
        expected.push((Counter::TableAlloc, 3));
        match is_told {
            true => expected.push((Counter::RmwFaults, PAGES)),
            // Each zero page is replaced, and flushed.
            false => expected.extend([
                (Counter::ZeroPageMaps, PAGES),
                (Counter::TlbLocalFlushOne, PAGES),
            ]),
        }
        counts.are(&expected, "populate");
        touch(cpu, memory, PAGES).are(&[], "again");
    });
}

#[test]
fn a_huge_page_takes_one_fault() {
    on_each_machine(|cpu, space, memory, is_told, policy| {
        memory.set_huge_mode(HugeMode::Always);
        space.mmap(AT, HUGE, RW, ANON).unwrap();
        let counts = touch(cpu, memory, PAGES);
        let mut expected = faults(policy, if is_told { 1 } else { 2 });
        expected.extend([(Counter::ThpFaultAlloc, 1), (Counter::TableAlloc, 2)]);
        match is_told {
            true => expected.push((Counter::RmwFaults, 1)),
            false => {
                expected.push((Counter::ThpZeroPageMaps, 1));
                // The whole TLB is scanned for so many pages.
                expected.push((Counter::TlbLocalFlushAll, 1));
            }
        }
        counts.are(&expected, "populate");
        assert_eq!(space.usage(AT..AT + HUGE).huge, HUGE);
    });
}

#[test]
fn loads_stay_loads() {
    on_each_machine(|cpu, space, memory, _, policy| {
        space.mmap(AT, 8 * PAGE, RW, ANON).unwrap();
        let load = |page| assert_eq!(cpu.load(AT + page * PAGE), Ok(0));
        let (counts, ()) = counted(memory, || (0..8).for_each(load));
        let mut expected = faults(policy, 8);
        expected.extend([(Counter::ZeroPageMaps, 8), (Counter::TableAlloc, 3)]);
        counts.are(&expected, "loads");
        // The zero page lets the read through, so that the fault is one on the write.
        let mut expected = faults(policy, 8);
        expected.push((Counter::TlbLocalFlushOne, 8));
        touch(cpu, memory, 8).are(&expected, "atomics after loads");
    });
}

#[test]
fn memory_that_allows_no_store_is_read() {
    on_each_machine(|cpu, space, memory, _, policy| {
        space.mmap(AT, PAGE, 1, ANON).unwrap();
        let (counts, result) = counted(memory, || cpu.fetch_add(AT, 1));
        assert!(matches!(result, Err(Trap::Segv { .. })));
        let mut expected = faults(policy, 2);
        expected.extend([
            (Counter::ZeroPageMaps, 1),
            (Counter::TableAlloc, 3),
            (Counter::FaultsRefused, 1),
        ]);
        if policy == Policy::Speculative {
            expected.push((Counter::SpfVmaAccess, 1));
        }
        counts.are(&expected, "read, then refused");
    });
}

#[test]
fn pages_of_objects_take_one_fault_each() {
    on_each_machine(|cpu, space, memory, is_told, policy| {
        let object = MemoryObject::new(memory, 4 * PAGE, None, 7).unwrap();
        let opened = Opened {
            store: Ok(&object),
            offset: 0,
            file: 1,
            writable: true,
        };
        let map = |more| space.mmap_object(AT, 4 * PAGE, RW, more | flags::FIXED, &opened);
        map(flags::PRIVATE).unwrap();
        let counts = touch(cpu, memory, 4);
        let mut expected = faults(policy, if is_told { 4 } else { 8 });
        expected.extend([(Counter::TableAlloc, 3), (Counter::Copies, 4)]);
        match is_told {
            true => expected.push((Counter::RmwFaults, 4)),
            false => expected.push((Counter::TlbLocalFlushOne, 4)),
        }
        counts.are(&expected, "private");

        space.munmap(AT, 4 * PAGE).unwrap();
        map(flags::SHARED).unwrap();
        let counts = touch(cpu, memory, 4);
        assert_eq!(counts.get(Counter::Copies), 0);
        assert_eq!(
            counts.get(Counter::RmwFaults),
            counts.get(Counter::Faults) * u64::from(is_told)
        );
        drop(object);
    });
}

#[test]
fn a_handler_is_told_of_a_store() {
    on_each_machine(|cpu, space, memory, is_told, _| {
        space.mmap(AT, PAGE, RW, ANON).unwrap();
        let handled = Handled::new(memory, space, 0);
        handled.register(AT, PAGE, userfault::MISSING).unwrap();
        let bring = |to: &Handled<'_>, message| {
            let flags = if is_told { userfault::FLAG_WRITE } else { 0 };
            assert_eq!(to.copy(fault(message, flags), 5, false).pages, 1);
        };
        assert_eq!(handled.beside(bring, || cpu.fetch_add(AT, 1)), Ok(5));
        assert_eq!(handled.take_messages(), 1);
        assert_eq!(cpu.load(AT), Ok(6));
        space.close_userfault(&handled.to);
    });
}

#[test]
fn a_write_protected_page_is_reported_once() {
    on_each_machine(|cpu, space, memory, _, _| {
        space.mmap(AT, PAGE, RW, ANON).unwrap();
        let handled = Handled::new(memory, space, userfault::WP_UNPOPULATED);
        handled
            .register(AT, PAGE, userfault::WRITE_PROTECT)
            .unwrap();
        handled.protect(AT, PAGE, true).unwrap();
        let allow = |to: &Handled<'_>, message| {
            let at = fault(
                message,
                userfault::FLAG_WRITE | userfault::FLAG_WRITE_PROTECT,
            );
            to.protect(at, PAGE, false).unwrap();
        };
        assert_eq!(handled.beside(allow, || cpu.fetch_add(AT, 1)), Ok(0));
        assert_eq!(handled.take_messages(), 1);
        space.close_userfault(&handled.to);
    });
}
