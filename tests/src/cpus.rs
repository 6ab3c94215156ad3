//! Three CPUs that run one after another, and which of them a flush interrupts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};

use faultless_mm::{Counter, HugeMode, Policy, flags};
use faultless_soft::{SoftCpu, SoftMemory, SoftSpace};

use crate::counting::counted;
use crate::space;

const PAGE: u64 = 4096;
const RW: u32 = 3;
const TABLE: u64 = 2 << 20;
/// The address of the 1024 mapped pages.
pub const AT: u64 = 1 << 36;
/// Anonymous, private, at a fixed address.
pub const FIXED: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;

/// Work for a CPU.
pub type Work = Box<dyn FnOnce(&SoftCpu<'_>) + Send>;

/// CPUs, each of which runs the work that it is sent and reports when it is done.
pub struct Cpus {
    /// The work queue of each CPU.
    pub work: Vec<Sender<Work>>,
    /// Receives a message for each completed work: whether it succeeded.
    pub done: Receiver<bool>,
    /// The machine's memory core.
    pub memory: &'static SoftMemory,
}

impl Cpus {
    /// Runs `work` on one CPU. A failure of the work fails the test.
    pub fn on(&self, cpu: usize, work: impl FnOnce(&SoftCpu<'_>) + Send + 'static) {
        self.work[cpu].send(Box::new(work)).unwrap();
        assert_eq!(self.done.recv(), Ok(true), "CPU {cpu} has failed");
    }

    /// Stores to a page.
    pub fn store(&self, cpu: usize, at: u64) {
        self.on(cpu, move |cpu| assert_eq!(cpu.store(at, 1), Ok(())));
    }

    /// Loads from a page.
    pub fn load(&self, cpu: usize, at: u64) {
        self.on(cpu, move |cpu| assert!(cpu.load(at).is_ok()));
    }

    /// Asserts that an operation of CPU 0 flushes exactly the CPUs in `others`, with one request if there are any.
    #[track_caller]
    pub fn asks(
        &self,
        what: &str,
        others: &[usize],
        work: impl FnOnce(&SoftSpace) + Send + 'static,
    ) {
        let received = |cpu: usize| {
            let counters = self.memory.cpus()[cpu].counters();
            counters.get(Counter::TlbRemoteFlushReceived)
        };
        let before = [0, 1, 2].map(received);
        let work = || self.on(0, move |cpu| work(cpu.space()));
        let (counts, ()) = counted(self.memory, work);
        // Each CPU answers before its next access, which is to a page outside of the test.
        (1..3).for_each(|cpu| self.load(cpu, AT - TABLE));
        let asked: Vec<_> = (0..3).filter(|&cpu| received(cpu) > before[cpu]).collect();
        assert_eq!(asked, others, "{what}");
        let flushes = u64::from(!others.is_empty());
        assert_eq!(counts.get(Counter::TlbRemoteFlush), flushes, "{what}");
    }
}

/// Runs `test` with three CPUs in a space with 1024 writable pages, under every policy. The pages' tables stay; a
/// page before them can be loaded.
pub fn with_cpus(test: impl Fn(&Cpus)) {
    for &policy in Policy::ALL {
        let (memory, space) = space(3, 64, policy);
        // What is counted are small pages, and their tables.
        memory.set_huge_mode(HugeMode::Never);
        std::thread::scope(|scope| {
            let (says, done) = channel();
            let start = |cpu| {
                let (send, receive) = channel::<Work>();
                let (space, says) = (&space, says.clone());
                scope.spawn(move || {
                    SoftCpu::run(space, cpu, |cpu| {
                        for work in receive {
                            // A failure is reported too, so that the waiting CPU learns of it.
                            let done = catch_unwind(AssertUnwindSafe(|| work(cpu)));
                            let _ = says.send(done.is_ok());
                        }
                    });
                });
                send
            };
            let work = (0..3).map(start).collect();
            drop(says);
            let cpus = Cpus { work, done, memory };
            cpus.on(0, |cpu| {
                let map = |at, pages| cpu.space().mmap(at, pages * PAGE, RW, FIXED).unwrap();
                map(AT - TABLE, 1);
                map(AT, 1024);
                cpu.store(AT + 511 * PAGE, 1).unwrap();
                cpu.store(AT + 1023 * PAGE, 1).unwrap();
            });
            (1..3).for_each(|cpu| cpus.load(cpu, AT - TABLE));
            test(&cpus);
            cpus.on(0, |cpu| assert!(cpu.space().verify().is_ok()));
        });
        SoftCpu::attend(memory, 0, || space.destroy());
    }
}
