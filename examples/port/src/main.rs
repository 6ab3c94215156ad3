//! A minimal machine around `faultless-mm`.
//!
//! Two CPUs (threads), 4 MiB of memory (a `Vec`), a frame source of its own (a
//! stack of numbers) and a TLB of its own (a map per CPU). `machine.rs` is the
//! port; this file is a program that runs on it.
//!
//! Run it with `cargo run -p faultless-example-port`.

mod machine;

use std::error::Error;

use faultless_mm::{AddressSpace, Counter, Layout, OwnedSpace, PAGE_SIZE, Policy, advice, flags};
use machine::{Cpu, Machine};

const READ: u32 = faultless_mm::PROT_READ;
const READ_WRITE: u32 = READ | faultless_mm::PROT_WRITE;
const PAGES: u64 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let memory = Machine::start(2, 1024);
    for &policy in Policy::ALL {
        let frames = memory.machine().free_frames();
        Machine::as_cpu(memory, 0, || -> Result<(), Box<dyn Error>> {
            let space = OwnedSpace::new(memory, policy, Layout::LINUX_X86_64)?;
            run(&space)?;
            let used = space.verify()?;
            println!("{policy}: {} pages in {} tables", used.pages, used.tables);
            space.destroy();
            Ok(())
        })?;
        assert!(
            memory.machine().free_frames() + 8 >= frames,
            "frames were lost"
        );
    }
    for counter in [Counter::Faults, Counter::Spf, Counter::TableAlloc] {
        println!("{:>20} {}", counter.name(), memory.total(counter));
    }
    Ok(())
}

/// Two CPUs touch the same pages at the same time; then mappings change.
fn run(space: &AddressSpace<Machine>) -> Result<(), Box<dyn Error>> {
    let first = Cpu::enter(space, 0);
    let anonymous = flags::PRIVATE | flags::ANONYMOUS;
    let at = space.mmap(0, PAGES * PAGE_SIZE, READ_WRITE, anonymous)?;

    std::thread::scope(|scope| {
        scope.spawn(|| {
            Machine::as_cpu(space.memory(), 1, || {
                let second = Cpu::enter(space, 1);
                for page in 0..PAGES {
                    second
                        .store(at + page * PAGE_SIZE + 8, page)
                        .expect("a store");
                }
            });
        });
        for page in 0..PAGES {
            first.store(at + page * PAGE_SIZE, page).expect("a store");
        }
    });
    for page in 0..PAGES {
        let address = at + page * PAGE_SIZE;
        assert_eq!(
            (first.load(address)?, first.load(address + 8)?),
            (page, page)
        );
    }

    space.mprotect(at, PAGE_SIZE, READ)?;
    assert!(
        first.store(at, 1).is_err(),
        "a store through an old translation"
    );
    space.madvise(at + PAGE_SIZE, PAGE_SIZE, advice::DONTNEED)?;
    assert_eq!(first.load(at + PAGE_SIZE)?, 0);
    space.munmap(at, 10 * PAGE_SIZE)?;
    assert!(first.load(at).is_err(), "a load through an old translation");
    Ok(())
}
