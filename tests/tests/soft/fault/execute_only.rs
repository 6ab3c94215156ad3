//! Execute-only memory, on a soft machine that supports it and on one that does not.

use faultless_mm::{
    Access, AddressSpace, Errno, FrameSource, Machine, Mover, Outcome, Policy, SegvCode, Taken,
    advice, flags, lock_flags,
};
use faultless_soft::{Options, Soft, SoftCpu, SoftSpace, Trap};

const PAGE: u64 = 4096;
const AT: u64 = 1 << 36;
const READ: u32 = 1;
const RW: u32 = 3;
const EXECUTE: u32 = 4;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;

fn on_each_machine(test: impl Fn(&SoftCpu<'_>, &SoftSpace, bool)) {
    for execute_only in [false, true] {
        for &policy in Policy::ALL {
            let options = Options {
                cpus: 1,
                memory: 16 << 20,
                check: true,
                execute_only,
                ..Options::default()
            };
            let memory = Soft::start(options).unwrap();
            let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap();
            SoftCpu::run(&space, 0, |cpu| test(cpu, &space, execute_only));
            SoftCpu::attend(memory, 0, || {
                AddressSpace::verify_together(&[&space]).unwrap_or_else(|wrong| panic!("{wrong}"));
                space.destroy();
            });
        }
    }
}

fn refused<T>(code: SegvCode, address: u64) -> Result<T, Trap> {
    Err(Trap::Segv { code, address })
}

#[test]
fn loads_are_refused_where_the_machine_can() {
    on_each_machine(|cpu, space, execute_only| {
        space.mmap(AT, 4 * PAGE, RW, ANON).unwrap();
        cpu.store(AT, 7).unwrap();
        space.mprotect(AT, 4 * PAGE, EXECUTE).unwrap();
        for at in [AT, AT + PAGE] {
            assert_eq!(space.fault(at, Access::Execute), Outcome::Resolved);
            // The page is present now.
            match execute_only {
                true => {
                    assert_eq!(cpu.load(at), refused(SegvCode::KeyErr, at));
                    assert_eq!(cpu.store(at, 1), refused(SegvCode::KeyErr, at));
                }
                false => {
                    assert!(cpu.load(at).is_ok());
                    assert_eq!(cpu.store(at, 1), refused(SegvCode::AccErr, at));
                }
            }
        }
        let absent = AT + 2 * PAGE;
        let load = cpu.load(absent);
        match execute_only {
            true => assert_eq!(load, refused(SegvCode::KeyErr, absent)),
            false => assert_eq!(load, Ok(0)),
        }
        // Execute together with another access is readable on both machines.
        for protection in [READ | EXECUTE, 2 | EXECUTE, READ] {
            space.mprotect(AT, 4 * PAGE, protection).unwrap();
            assert_eq!(cpu.load(AT), Ok(7));
        }
        space.mprotect(AT, 4 * PAGE, EXECUTE).unwrap();
        assert_eq!(cpu.load(AT).is_err(), execute_only);
    });
}

#[test]
fn a_child_and_a_page_that_moves_keep_it() {
    on_each_machine(|cpu, space, execute_only| {
        space.mmap(AT, PAGE, RW, ANON).unwrap();
        cpu.store(AT, 7).unwrap();
        space.mprotect(AT, PAGE, EXECUTE).unwrap();
        let child = space.fork().unwrap();
        assert_eq!(
            child.fault(AT, Access::Read) != Outcome::Resolved,
            execute_only
        );
        child.verify().unwrap();
        child.destroy();

        let machine = space.memory().machine();
        let frames = machine.frames();
        let to = frames.allocate(machine.cpu()).unwrap();
        let from = space.translate(AT).unwrap();
        Mover::new(space.memory())
            .unwrap()
            .migrate(from, to)
            .unwrap();
        frames.free(machine.cpu(), from);
        assert_eq!(cpu.load(AT).is_err(), execute_only);
        space.verify().unwrap();
    });
}

#[test]
fn requests_of_pages() {
    on_each_machine(|_, space, execute_only| {
        space.mmap(AT, 2 * PAGE, EXECUTE, ANON).unwrap();
        assert!(space.pin(AT, Taken::ToRead).is_err());
        let populate = |advice| space.madvise(AT, PAGE, advice);
        assert_eq!(populate(advice::POPULATE_READ), Err(Errno::EINVAL));
        assert_eq!(populate(advice::POPULATE_WRITE), Err(Errno::EINVAL));
        let locked = space.mlock(AT, PAGE, 0);
        match execute_only {
            true => assert_eq!(locked, Err(Errno::ENOMEM)),
            false => assert_eq!(locked, Ok(())),
        }
        assert_eq!(space.mlock(AT, PAGE, lock_flags::ONFAULT), Ok(()));
        // A debugger can read it nevertheless.
        let mut seen = 0;
        space
            .access(AT + PAGE, Access::Read, &mut |_| seen += 1)
            .unwrap();
        assert_eq!(seen, 1);
    });
}
