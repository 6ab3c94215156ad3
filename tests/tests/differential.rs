//! The host's kernel and the soft machine do the same.
//!
//! Random scripts of operations run in a child process on the host's kernel and
//! on the soft machine. Compared are errors, addresses, contents of every page
//! of a window, signals with `si_code` and `si_addr`, and the mappings.
//!
//! Deliberate differences, kept out of the scripts or levelled:
//!
//! | what | why |
//! | --- | --- |
//! | neighbours in `/proc/self/maps` with equal protection are joined on both sides | Linux does not merge mappings with different reverse maps (`anon_vma`) or accounting; ours depend on attributes alone |
//! | `mremap` of no mapping, or of one here that is several there: left out | see the first line for why there are several; Linux 6.17 looks at the source later than 6.12 |
//! | files and huge pages: not generated here | `fuzz/` has files |
//! | an address outside the window is only "elsewhere" | it depends on what else the process has; `sealed` compares the choice exactly |
//! | mappings that grow down and touch each other: no limit on their size is reached | Linux counts the limit over what it happened to merge |
//! | `PROT_GROWSDOWN`: not generated here (`tree_many.rs` has cases) | it extends over what Linux happened to merge: a mapping that grew until it touched its neighbour is not merged with it, and ours no longer tell the two apart |
//! | pages of the zero page in a child: `mincore` not generated where much is locked | Linux copies them only if a page of the mapping was ever written |
//! | at limits, `mprotect` over neighbours with equal protection: left out | Linux keeps apart what an `mmap` split that failed at a limit |
//! | at limits, `mremap` to where something is: left out | Linux 6.17 looks at limits before it unmaps that, 6.12 afterwards (`limits.rs`) |
//! | `MREMAP_DONTUNMAP` of what is locked: not generated | Linux unlocks all of the mapping a part of which moves, and goes on counting it as locked |
//! | `mlockall(MCL_CURRENT)`, limits and the heap: not generated (`mlock.rs`, `limits.rs`) | what else the process has counts |
//! | addresses below `vm.mmap_min_addr` | depends on the capabilities of the test process |
//! | `MADV_PAGEOUT`: not generated | it frees pages that `MADV_FREE` made lazily freed; ours has no effect yet |
//! | `MADV_HWPOISON`, `MADV_SOFT_OFFLINE`: not generated | they break the host's memory |
//! | guards on a host older than 6.13 | Linux has them since then |
//! | `mremap` of what is sealed | Linux 6.17 looks at the destination first |
//! | just below the heap, and stacks above it: not touched | what is there depends on the program |
//! | protection `PROT_EXEC` alone on a host with protection keys | Linux makes it execute-only there |

use faultless_mm::{Layout, Limits, Policy};
use faultless_soft::SoftMemory;
use faultless_tests::heap;
use faultless_tests::host::Host;
use faultless_tests::machine;
use faultless_tests::operations::{
    OPEN, SEALED, far, forking, limited, limited_forking, near, remapping, sealed, sealing,
};
use faultless_tests::random::cases;
use faultless_tests::script::{LEFT_OUT, Op, Window};
use faultless_tests::soft::run_soft;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

const PROGRAM: &str = env!("CARGO_BIN_EXE_host-child");

/// The part of the address space that a script works on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    /// A window of the address space.
    Window,
    /// A window that is the only free part of the address space.
    Sealed,
    /// The heap: addresses count from where it begins.
    Heap,
}

fn compare(
    host: &mut Option<Host>,
    memory: &'static SoftMemory,
    window: &Window,
    about: About,
    turn: usize,
    script: &[Op],
) -> Result<(), TestCaseError> {
    let fail = |why: String| TestCaseError::fail(why);
    let mut child = match host.take() {
        Some(child) => child,
        None => {
            Host::start(PROGRAM, window, about == About::Sealed).map_err(|e| fail(e.to_string()))?
        }
    };
    let layout = Layout {
        commit_pages: child.commit_pages,
        ..Layout::LINUX_X86_64
    };
    let layout = if about == About::Sealed {
        Layout {
            lowest: window.start,
            mmap_base: window.end,
            ..layout
        }
    } else {
        layout
    };
    let limits = Limits {
        locked: child.locked,
        ..Limits::LINUX
    };
    let brk = child.brk;
    let moved: Vec<Op>;
    let script = match about {
        About::Window | About::Sealed => script,
        About::Heap => {
            let whole = script.iter().copied().chain(heap::finish());
            moved = whole.map(|op| op.moved(brk)).collect();
            &moved
        }
    };
    let expected = child.run(script).map_err(|e| fail(e.to_string()))?;
    // A sealed mapping cannot be unmapped.
    if !script.iter().any(|op| matches!(op, Op::Mseal { .. })) {
        *host = Some(child);
    }
    let policy = Policy::ALL[turn % Policy::ALL.len()];
    let mut script = script.to_vec();
    for (op, line) in script.iter_mut().zip(&expected) {
        if line == LEFT_OUT {
            *op = Op::LeftOut;
        }
    }
    let script = script.as_slice();
    let (lines, sound) = run_soft(memory, policy, layout, &limits, brk, window, script);
    let length = expected.len().max(lines.len());
    for i in 0..length {
        let (here, there) = (lines.get(i), expected.get(i));
        if here != there {
            let what = script.get(i).map_or("afterwards".into(), Op::to_string);
            return Err(fail(format!(
                "step {i}, {what}: here {here:?}, on the host {there:?}"
            )));
        }
    }
    sound.map_err(fail)
}

fn check(least: u64, window: &Window, about: About, ops: impl Strategy<Value = Op>) {
    // A CPU for each generation of a family.
    let memory = machine(40, 64);
    let mut host = None;
    let host = std::cell::RefCell::new(&mut host);
    let turn = std::cell::Cell::new(0);
    let scripts = prop::collection::vec(ops, 1..40);
    let result = cases(least, &scripts, |script| {
        turn.set(turn.get() + 1);
        compare(
            &mut host.borrow_mut(),
            memory,
            window,
            about,
            turn.get(),
            &script,
        )
    });
    if let Err((seed, failure)) = result {
        let text = match &failure {
            proptest::test_runner::TestError::Fail(why, script) => {
                let lines: String = script.iter().map(|op| format!("  {op}\n")).collect();
                format!("{why}\n{lines}")
            }
            other => other.to_string(),
        };
        panic!("FAULTLESS_SEED={seed}: {text}");
    }
}

#[test]
fn operations_in_a_window() {
    check(400, &OPEN, About::Window, near());
}

/// Scripts with `mremap`, where Linux has one mapping as well.
#[test]
fn mappings_that_move() {
    check(400, &OPEN, About::Window, remapping());
}

/// Scripts that seal mappings, which cannot be unmapped.
#[test]
fn mappings_that_are_sealed() {
    check(200, &OPEN, About::Window, sealing());
}

/// Trees of processes: each sees its memory as it was at its fork.
#[test]
fn processes_that_fork() {
    check(200, &OPEN, About::Window, forking());
}

#[test]
fn arguments_from_beyond() {
    let ops = prop_oneof![2 => near(), 1 => far()];
    check(200, &OPEN, About::Window, ops);
}

#[test]
fn addresses_that_the_kernel_chooses() {
    check(300, &SEALED, About::Sealed, sealed());
}

#[test]
fn memory_that_is_locked_or_limited() {
    check(500, &OPEN, About::Window, limited());
}

/// Locks and limits of parents and children.
#[test]
fn limits_of_processes_that_fork() {
    check(200, &OPEN, About::Window, limited_forking());
}

#[test]
fn the_heap() {
    check(400, &heap::NOWHERE, About::Heap, heap::heap());
}
