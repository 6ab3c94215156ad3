//! Whose TLBs are flushed: those that may hold what goes, and no other's. Counted exactly, with
//! three CPUs that do one thing after another.

use std::sync::mpsc::{Receiver, Sender, channel};

use faultless_mm::{Counter, Policy, Unused, advice, flags};
use faultless_soft::{SoftCpu, SoftMemory, SoftSpace};
use faultless_tests::counting::{Counts, counted};
use faultless_tests::space;

const PAGE: u64 = 4096;
const RW: u32 = 3;
const AT: u64 = 1 << 36;
const TABLE: u64 = 2 << 20;
const FIXED: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;

type Work = Box<dyn FnOnce(&SoftCpu<'_>) + Send>;

/// CPUs, each of which does what it is told and says when that is done.
struct Cpus {
    work: Vec<Sender<Work>>,
    done: Receiver<()>,
    memory: &'static SoftMemory,
}

impl Cpus {
    /// Has one CPU do something. If that fails the test ends, as nobody says that it is done.
    fn on(&self, cpu: usize, work: impl FnOnce(&SoftCpu<'_>) + Send + 'static) {
        self.work[cpu].send(Box::new(work)).unwrap();
        self.done.recv().expect("a CPU has failed");
    }

    fn store(&self, cpu: usize, at: u64) {
        self.on(cpu, move |cpu| assert_eq!(cpu.store(at, 1), Ok(())));
    }

    fn load(&self, cpu: usize, at: u64) {
        self.on(cpu, move |cpu| assert!(cpu.load(at).is_ok()));
    }

    /// Checks what CPU 0 makes others flush: operations that ask others, and who is asked.
    #[track_caller]
    fn asks(&self, what: &str, others: &[usize], work: impl FnOnce(&SoftSpace) + Send + 'static) {
        let received = |cpu: usize| {
            let counters = self.memory.cpus()[cpu].counters();
            counters.get(Counter::TlbRemoteFlushReceived)
        };
        let before = [0, 1, 2].map(received);
        let work = || self.on(0, move |cpu| work(cpu.space()));
        let (counts, ()) = counted(self.memory, work);
        // Each answers before its next access; that one is no page of the test's.
        (1..3).for_each(|cpu| self.load(cpu, AT - TABLE));
        let asked: Vec<_> = (0..3).filter(|&cpu| received(cpu) > before[cpu]).collect();
        assert_eq!(asked, others, "{what}");
        let flushes = u64::from(!others.is_empty());
        assert_eq!(counts.get(Counter::TlbRemoteFlush), flushes, "{what}");
    }
}

/// Runs `test` with three CPUs in a space where 1024 pages can be written, under every policy. The
/// pages' tables stay; a page before them is there to be loaded.
fn with_cpus(test: impl Fn(&Cpus)) {
    for &policy in Policy::ALL {
        let (memory, space) = space(3, 64, policy);
        std::thread::scope(|scope| {
            let (says, done) = channel();
            let start = |cpu| {
                let (send, receive) = channel::<Work>();
                let (space, says) = (&space, says.clone());
                scope.spawn(move || {
                    SoftCpu::run(space, cpu, |cpu| {
                        for work in receive {
                            work(cpu);
                            let _ = says.send(());
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

fn unmap(space: &SoftSpace) {
    assert_eq!(space.munmap(AT, 2 * PAGE), Ok(()));
}

fn discard(space: &SoftSpace) {
    assert_eq!(space.madvise(AT, 2 * PAGE, advice::DONTNEED), Ok(()));
}

#[test]
fn ones_own_pages() {
    with_cpus(|cpus| {
        cpus.store(0, AT);
        cpus.asks("DONTNEED", &[], discard);
        cpus.store(0, AT);
        cpus.load(0, AT + PAGE);
        cpus.store(0, AT + PAGE);
        cpus.asks("lowered", &[], |space| {
            space.mprotect(AT, 2 * PAGE, 1).unwrap()
        });
        cpus.asks("raised", &[], |space| {
            space.mprotect(AT, 2 * PAGE, RW).unwrap()
        });
        cpus.asks("watched", &[], SoftSpace::clear_soft_dirty);
        cpus.asks("moved", &[], |space| {
            let to = AT + 100 * PAGE;
            let fixed = faultless_mm::remap_flags::MAYMOVE | faultless_mm::remap_flags::FIXED;
            assert_eq!(space.mremap(AT, 2 * PAGE, 2 * PAGE, fixed, to), Ok(to));
            assert_eq!(space.mremap(to, 2 * PAGE, 2 * PAGE, fixed, AT), Ok(AT));
        });
        cpus.asks("munmap", &[], unmap);
    });
}

#[test]
fn pages_that_another_cpu_has_loaded() {
    with_cpus(|cpus| {
        cpus.store(0, AT);
        cpus.load(1, AT);
        // Who has loaded it is not known any more.
        cpus.asks("DONTNEED", &[1, 2], discard);
        cpus.asks("and again", &[], discard);
        cpus.store(0, AT);
        cpus.store(1, AT + PAGE);
        cpus.asks("each its own", &[1], unmap);
    });
}

#[test]
fn pages_of_another_cpu() {
    with_cpus(|cpus| {
        cpus.store(2, AT);
        cpus.asks("DONTNEED", &[2], discard);
        // The zero page is mapped by CPU 1 and replaced by CPU 0, whose page it is then.
        cpus.load(1, AT);
        cpus.asks("zero page replaced", &[1], |space| {
            let written = faultless_mm::Access::Write;
            assert_eq!(space.fault(AT, written), faultless_mm::Outcome::Resolved);
        });
        cpus.store(0, AT);
        cpus.asks("munmap", &[], unmap);
    });
}

#[test]
fn a_thread_that_changes_its_cpu() {
    with_cpus(|cpus| {
        cpus.store(2, AT);
        // CPU 2 leaves, is taken up by the same thread, and knows nothing any more.
        cpus.on(2, |cpu| cpu.pause(|| ()));
        cpus.asks("it may have loaded it since", &[2], discard);
        cpus.store(2, AT);
        let (leave, left) = channel::<()>();
        let (go, gone) = channel::<()>();
        cpus.work[2]
            .send(Box::new(move |cpu| {
                cpu.pause(|| {
                    leave.send(()).unwrap();
                    let _ = gone.recv();
                });
            }))
            .unwrap();
        left.recv().unwrap();
        let (counts, ()) = counted(cpus.memory, || cpus.on(0, |cpu| discard(cpu.space())));
        assert_eq!(counts.get(Counter::TlbRemoteFlush), 0, "it is away");
        drop(go);
        cpus.done.recv().unwrap();
    });
}

#[test]
fn what_counts_as_not_used() {
    with_cpus(|cpus| {
        cpus.store(0, AT);
        cpus.load(1, AT);
        cpus.asks("cleared", &[1, 2], |space| {
            space.clear_accessed(Unused::All)
        });
        // A bit that is clear says nothing of who has loaded the page since.
        cpus.load(1, AT);
        cpus.asks("DONTNEED", &[1, 2], discard);
    });
}

#[test]
fn tables() {
    with_cpus(|cpus| {
        let unmap = |space: &SoftSpace| assert_eq!(space.munmap(AT + 512 * PAGE, TABLE), Ok(()));
        let map = |cpus: &Cpus| {
            cpus.on(0, |cpu| {
                let at = AT + 512 * PAGE;
                assert_eq!(cpu.space().mmap(at, TABLE, RW, FIXED), Ok(at));
            });
        };
        // Only CPU 0 has walked the table.
        cpus.asks("one's own", &[], unmap);
        map(cpus);
        cpus.store(0, AT + 512 * PAGE);
        cpus.load(1, AT + 513 * PAGE);
        cpus.asks("walked", &[1, 2], unmap);
        map(cpus);
        cpus.store(1, AT + 512 * PAGE);
        cpus.asks("another's", &[1], unmap);
    });
}

#[test]
fn mapping_and_unmapping_interrupts_nobody() {
    with_cpus(|cpus| {
        cpus.on(1, |_| ());
        let work = || {
            cpus.on(0, |cpu| {
                for _ in 0..100 {
                    let anywhere = flags::PRIVATE | flags::ANONYMOUS;
                    let at = cpu.space().mmap(0, 16 * PAGE, RW, anywhere).unwrap();
                    (0..16).for_each(|page| cpu.store(at + page * PAGE, 1).unwrap());
                    cpu.space().munmap(at, 16 * PAGE).unwrap();
                }
            });
        };
        let (counts, ()): (Counts, ()) = counted(cpus.memory, work);
        assert_eq!(counts.get(Counter::TlbRemoteFlush), 0);
        assert_eq!(counts.get(Counter::Munmap), 100);
    });
}
