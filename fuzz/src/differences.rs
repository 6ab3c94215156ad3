//! Deliberate differences from Linux in one table. Any other difference is a bug.
//!
//! `docs/differences.md` is generated from this table, and a test compares them.

use std::fmt::Write as _;

use crate::address::{HUGE, Scene};
use crate::arch::Arch;
use crate::kinds::{COLLAPSE, is_guard, is_needed_soon};
use crate::memory::Limited;
use crate::op::{LEFT_OUT, Op};
use crate::program::Program;

/// A deliberate difference.
pub struct Difference {
    /// A short name.
    pub name: &'static str,
    /// The difference.
    pub what: &'static str,
    /// Its reason.
    pub why: &'static str,
    /// How comparisons deal with it.
    pub how: How,
}

/// How comparisons deal with a difference.
pub enum How {
    /// Records are written so that it does not show.
    Levelled,
    /// Programs are generated so that it does not occur.
    Avoided,
    /// Operations that Linux 6.12 does not have, on this architecture, are left out before programs run on it.
    Missing(fn(&Op, Arch) -> bool),
    /// A failed operation with equal answers may have left different states behind: it is left out on all sides
    /// if a later answer differs.
    Aftermath(fn(&Seen<'_>) -> bool),
    /// An operation with this difference is left out on all sides, and the program compared without it.
    LeftOut(fn(&Seen<'_>) -> bool),
}

/// An operation with different answers.
pub struct Seen<'a> {
    /// The operation.
    pub op: &'a Op,
    /// The program.
    pub program: &'a Program,
    /// The names of the two systems.
    pub systems: [&'a str; 2],
    /// Our answer.
    pub ours: &'a str,
    /// The other system's answer.
    pub theirs: &'a str,
}

/// Whether an operation is an `MADV_COLLAPSE`, with huge pages on.
fn collapses(seen: &Seen<'_>) -> bool {
    let is_advice = matches!(seen.op.kind().name, "madvise" | "process_madvise");
    is_advice && seen.op.arguments[2] == COLLAPSE && seen.program.scene == Scene::Huge
}

/// Whether there is no whole huge page in the range of an operation.
fn collapses_nothing(op: &Op) -> bool {
    let [start, length, ..] = op.arguments;
    start.next_multiple_of(HUGE) >= start.saturating_add(length) / HUGE * HUGE
}

/// The table.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "joined",
        what: "neighbours in `/proc/PID/maps` with equal attributes are one line",
        why: "Linux keeps mappings apart if their pages were first touched apart (reverse maps, \
              accounting); ours depend on attributes alone",
        how: How::Levelled,
    },
    Difference {
        name: "kept-apart",
        what: "`mremap` over what Linux keeps apart although its attributes are equal works",
        why: "it is one mapping here, by the first line of this table",
        how: How::LeftOut(|seen| {
            seen.op.kind().name == "mremap" && seen.theirs.starts_with(LEFT_OUT)
        }),
    },
    Difference {
        name: "past-a-guard",
        what: "how far `mlockall` populates a mapping behind a guard",
        why: "Linux leaves out the rest of the mapping, and keeps apart what is one mapping here, by \
              the first line of this table; the host's has guards",
        how: How::Aftermath(|seen| {
            seen.systems.contains(&"host")
                && seen.op.kind().name == "mlockall"
                && !seen.ours.starts_with("errno")
        }),
    },
    Difference {
        name: "elsewhere",
        what: "the address of a mapping that is placed outside the programs' window",
        why: "it depends on what else the process has; sealed programs compare the choice exactly",
        how: How::Levelled,
    },
    Difference {
        name: "shards",
        what: "the addresses of mappings once threads that map, or change mappings, have contended",
        why: "each CPU then has a shard of the address space, and no mapping is put without need into \
              a shard around named addresses; on Linux the threads wait for each other \
              (decision 12)",
        how: How::Avoided,
    },
    Difference {
        name: "grows-down",
        what: "`mprotect` with `PROT_GROWSDOWN` alone",
        why: "it extends over what Linux happened to merge: a mapping that grew until it touched \
              its neighbour is not merged with it there, and ours no longer tell the two apart",
        how: How::Avoided,
    },
    Difference {
        name: "stack-limit",
        what: "an access below a stack that had to grow beyond `RLIMIT_STACK` is refused",
        why: "the limit counts the whole mapping, which Linux may keep apart: see the first line of this \
              table",
        how: How::LeftOut(|seen| {
            let refused = "signal 11 code 1 ";
            seen.program.limits(Limited::Stack)
                && seen.ours.contains(refused)
                && !seen.theirs.contains(refused)
        }),
    },
    Difference {
        name: "old-and-new",
        what: "which unwritten pages count as written, where a part of a mapping is newer than \
               a clearing of soft-dirty bits",
        why: "all of them do as long as the newer part is there. Linux has one bit for what it has merged: \
              `mmap` sets it, `mprotect` and `mremap` may lose it when they merge, and it stays when the newer \
              part has gone",
        how: How::Avoided,
    },
    Difference {
        name: "zero-pages",
        what: "whether `mincore` in a child counts pages of zeroes that its parent had read",
        why: "Linux copies no page tables of a mapping that was never written to, because of its \
              reverse maps; a child here has the same pages as its parent",
        how: How::LeftOut(|seen| {
            let answered = |answer: &str| !answer.starts_with("errno");
            let is_child = seen.op.actor.process != 0;
            seen.op.kind().name == "mincore"
                && is_child
                && answered(seen.ours)
                && answered(seen.theirs)
        }),
    },
    Difference {
        name: "fault-counts",
        what: "how many faults an access takes to memory that is shared or a file's, and a load in \
               a child",
        why: "a fault maps what is there around it, which on Linux depends on its caches; and Linux \
              copies no page tables of a mapping that was never written to",
        how: How::Levelled,
    },
    Difference {
        name: "counts-after-clearing",
        what: "how many faults an access takes once soft-dirty bits were cleared",
        why: "a new mapping on Linux makes all that it is joined with count as written, and what is \
              joined differs, by the first line of this table",
        how: How::Avoided,
    },
    Difference {
        name: "restartable",
        what: "`membarrier` has no restartable sequences",
        why: "nor has the kernel: `rseq` is `ENOSYS`, with which C libraries do without",
        how: How::Avoided,
    },
    Difference {
        name: "five-levels",
        what: "addresses from 2^47 on; on AArch64 from 2^48 on",
        why: "with five levels of tables Linux has them for programs that ask, and does not refuse \
              lengths that reach them; ours has four, and the Linux compared with is told to (`no5lvl`, `arm64.nolva`)",
        how: How::Avoided,
    },
    Difference {
        name: "execute-only",
        what: "`PROT_EXEC` alone",
        why: "whether it can be read depends on the CPU, and the host compared with may have no \
              protection keys; `tests/programs/execute_only.c` is compared with Linux 6.12",
        how: How::Avoided,
    },
    Difference {
        name: "halves",
        what: "`mprotect` or `mmap` that fails at the limit of mappings leaves no split behind, and \
               neighbours with equal attributes count as one",
        why: "nothing is split here; Linux keeps the halves apart. That limit is the whole system's",
        how: How::Avoided,
    },
    Difference {
        name: "halves-left",
        what: "what `mprotect` has changed when it fails at `RLIMIT_DATA`",
        why: "an `mmap` that failed at that limit has split what it would have replaced, on Linux, which \
              changes one part after the other until one is too much. Here it is still one mapping, of which \
              nothing changes",
        how: How::Aftermath(|seen| {
            seen.op.kind().name == "mprotect"
                && seen.ours.starts_with("errno 12")
                && seen.program.limits(Limited::Data)
        }),
    },
    Difference {
        name: "committed",
        what: "memory made read-only is no longer committed",
        why: "nothing can be written to it; Linux goes on counting it if it ever was",
        how: How::Avoided,
    },
    Difference {
        name: "reserved",
        what: "`mincore` counts pages that `fallocate` reserved, of which there are none behind the end",
        why: "reserved pages are present here; Linux reports them as present after the first access",
        how: How::Avoided,
    },
    Difference {
        name: "left-locked",
        what: "`MREMAP_DONTUNMAP` of a part of locked memory unlocks that part",
        why: "Linux unlocks the whole mapping, and goes on counting it as locked",
        how: How::Avoided,
    },
    Difference {
        name: "no-swap",
        what: "which pages `mincore` counts, and how many faults an access takes, once a program has paged memory \
               out",
        why: "the host's Linux may have no swap device; the Linux that is emulated has one",
        how: How::LeftOut(|seen| {
            seen.systems.contains(&"host")
                && matches!(seen.op.kind().name, "mincore" | "faults")
                && seen.program.pages_out()
                && !seen.ours.starts_with("errno")
                && !seen.theirs.starts_with("errno")
        }),
    },
    Difference {
        name: "swap-cache",
        what: "how many faults an access takes to a page that was paged out, and shared by a fork, and which of these \
               `mincore` counts",
        why: "each process reads the page for itself, and may write it at once; Linux keeps what one has read for \
              the others (decision 17)",
        how: How::LeftOut(|seen| {
            matches!(seen.op.kind().name, "mincore" | "faults")
                && seen.program.pages_out()
                && seen.program.has_process(1)
                && !seen.ours.starts_with("errno")
                && !seen.theirs.starts_with("errno")
        }),
    },
    Difference {
        name: "needed-soon",
        what: "an access to a page that `MADV_WILLNEED` has brought back takes no fault",
        why: "it is mapped at once; Linux reads it into its swap cache, and the access takes a minor fault (decision 17)",
        how: How::LeftOut(|seen| {
            seen.op.kind().name == "faults"
                && seen.ours.ends_with("after 0 minor and 0 major")
                && seen.theirs.ends_with("after 1 minor and 0 major")
                && seen.program.pages_out()
                && seen.program.ops.iter().any(is_needed_soon)
        }),
    },
    Difference {
        name: "swapped-off",
        what: "a store to a page that `swapoff` has brought back takes no fault",
        why: "it is mapped as by a load; Linux maps it read-only, and the store takes a minor fault",
        how: How::LeftOut(|seen| {
            let is_swap = |op: &Op| op.kind().name == "swap";
            seen.op.kind().name == "faults"
                && seen.program.pages_out()
                && seen.program.ops.iter().any(is_swap)
        }),
    },
    Difference {
        name: "not-needed",
        what: "what is left of lazily freed and of droppable memory that a program pages out",
        why: "here nothing; on Linux what another CPU has in a list stays, and so does, without a swap device, what \
              `MADV_FREE` would otherwise discard from there. `tests/programs/swaps.c` is compared with Linux 6.12",
        how: How::Avoided,
    },
    Difference {
        name: "collapse-untouched",
        what: "`MADV_COLLAPSE` of less than a huge page, or beside a hole, in a mapping that was never written: 0, or \
               `ENOMEM`, and not `EINVAL`",
        why: "whether a mapping was ever written is no attribute of it here; Linux refuses one that has no reverse map yet",
        how: How::LeftOut(|seen| {
            let is_ours = seen.ours == "errno 12"
                || !seen.ours.starts_with("errno") && collapses_nothing(seen.op);
            collapses(seen) && is_ours && seen.theirs == "errno 22"
        }),
    },
    Difference {
        name: "collapse-shared",
        what: "`MADV_COLLAPSE` in shared memory, and of files, is `EINVAL`",
        why: "their small pages are not collapsed here yet",
        how: How::LeftOut(|seen| {
            let shares = |op: &Op| op.kind().name == "mmap" && op.arguments[3] & 1 != 0;
            let has_others = seen.program.has_files() || seen.program.ops.iter().any(shares);
            collapses(seen) && seen.ours == "errno 22" && has_others
        }),
    },
    Difference {
        name: "huge-pages-behind-the-end",
        what: "huge pages of shared memory do not reach behind its end, whatever `shmem_enabled` says, and files of the tree \
               have none with `force`",
        why: "no page lies behind an object's end. `tests/programs/huge_shared.c` is compared with Linux 6.12",
        how: How::Avoided,
    },
    Difference {
        name: "huge-pages-in-memory",
        what: "which pages are in memory, and how many faults accesses take, where huge pages are on",
        why: "a huge page takes the place of an empty table here, and of the huge zero page as a whole; Linux maps small \
              pages there. `tests/programs/huge.c` is compared with Linux 6.12",
        how: How::Avoided,
    },
    Difference {
        name: "pool-copies",
        what: "after a fork, a write to private memory of the pool of huge pages copies a small page, which is not of the pool; \
               `VmRSS` counts pages of the pool",
        why: "a page of the pool is split like others. Linux copies the whole, and kills the child when the pool is empty. \
              `tests/programs/hugetlb.c` is compared with Linux 6.12",
        how: How::Avoided,
    },
    Difference {
        name: "devices",
        what: "a device is mapped shared alone (`EINVAL`), and from outside a program it is not reached \
               (`EIO`); neighbours of it that follow each other are one line, and one mapping",
        why: "only a device's driver knows what a private copy of its page would be, and most refuse it \
              on Linux, too; `/dev/mem` there does not. A child faults where Linux copies entries",
        how: How::Avoided,
    },
    Difference {
        name: "damage",
        what: "`MADV_HWPOISON` and `MADV_SOFT_OFFLINE` are refused, with privileges too",
        why: "they would break the memory of the machine that the programs run on",
        how: How::Avoided,
    },
    Difference {
        name: "guards",
        what: "`MADV_GUARD_INSTALL` and `MADV_GUARD_REMOVE` are there",
        why: "Linux has them since 6.13; the soft machine is compared with the host's, if that has",
        how: How::Missing(|op, _| is_guard(op.kind(), op.arguments[2])),
    },
    Difference {
        name: "branch-targets",
        what: "`PROT_BTI` and `PROT_MTE` are refused on AArch64",
        why: "programs are told that the CPU has neither; Linux refuses them there, too",
        how: How::Avoided,
    },
    Difference {
        name: "soft-dirty-on-aarch64",
        what: "there are soft-dirty bits on AArch64",
        why: "they are kept for mappings and in the core's own bits of entries, as on x86-64; Linux 6.12 has them on x86-64, \
              PowerPC and s390 only",
        how: How::Missing(|op, arch| arch == Arch::AArch64 && op.kind().name == "soft_dirty"),
    },
    Difference {
        name: "no-soft-dirty",
        what: "which pages count as written since soft-dirty bits were cleared",
        why: "the host's Linux may be built without them (`CONFIG_MEM_SOFT_DIRTY`); Debian's 6.12 has \
              them",
        how: How::LeftOut(|seen| {
            seen.systems.contains(&"host") && seen.op.kind().name == "soft_dirty"
        }),
    },
    Difference {
        name: "newer-mremap",
        what: "which error `mremap` gives when several fit, and lengths of `MREMAP_DONTUNMAP`",
        why: "the host's Linux is newer than 6.12: from 6.17 on the source is looked at later, and \
              lengths are compared in whole pages",
        how: How::LeftOut(|seen| seen.systems.contains(&"host") && seen.op.kind().name == "mremap"),
    },
    Difference {
        name: "newer-process_madvise",
        what: "`process_madvise` about the process itself takes four kinds of advice only",
        why: "so does Linux 6.12; the host's is newer, and takes all",
        how: How::LeftOut(|seen| {
            seen.systems.contains(&"host") && seen.op.kind().name == "process_madvise"
        }),
    },
    Difference {
        name: "failed-process_madvise",
        what: "what `process_madvise` has done when it fails in the same way",
        why: "Linux 6.12 refuses the kind of advice; the host's newer one comes as far as what refuses it",
        how: How::Aftermath(|seen| {
            seen.systems.contains(&"host")
                && seen.op.kind().name == "process_madvise"
                && seen.ours.starts_with("errno")
        }),
    },
    Difference {
        name: "failed-mremap",
        what: "what `mremap` to a fixed place has unmapped when it fails",
        why: "the host's Linux is newer than 6.12: from 6.17 on more is looked at before anything is \
              unmapped",
        how: How::Aftermath(|seen| {
            seen.systems.contains(&"host")
                && seen.op.kind().name == "mremap"
                && (seen.ours.starts_with("errno") || seen.ours.ends_with("kept apart"))
        }),
    },
];

/// Where fault counts are compared.
const FAULT_COUNTS: &str = "\n## Fault counts\n\n\
    The operation `faults` loads or stores a word and shows by how much that raised the thread's \
    minor and major faults (`getrusage` with `RUSAGE_THREAD`). They are compared where Linux 6.12 \
    defines them, which is where they depend on nothing but what the program did:\n\n\
    * private memory without a file, in the process that has mapped it: 1 for the first load or \
    store of a page, 1 more for the first store after a load, 0 for what is there; 1 again after \
    `MADV_DONTNEED`, and for the first store of either side after `fork`; 0 after `mprotect` has \
    removed a right and restored it;\n\
    * the same in a child, of stores;\n\
    * the same where a page was paged out and no fork shares it: 1 major fault, and none for the store after a load;\n\
    * an access that ends in a signal, because nothing is mapped there or not for this access: 0.\n\n\
    Transparent huge pages are off (`PR_SET_THP_DISABLE`), but in the programs of scene `huge`, and one thread acts at a time. Loads and \
    stores of files and of shared memory are done, and their answers compared, without counts.\n";

/// The program without operations that Linux 6.12 does not have.
pub fn without_missing(mut program: Program, arch: Arch) -> Program {
    let is_missing = |op: &Op| {
        DIFFERENCES
            .iter()
            .any(|row| matches!(row.how, How::Missing(is_missing) if is_missing(op, arch)))
    };
    for op in &mut program.ops {
        if is_missing(op) {
            *op = op.left_out();
        }
    }
    program
}

/// The row that explains different answers, if one does.
pub fn explain(seen: &Seen<'_>) -> Option<&'static Difference> {
    DIFFERENCES.iter().find(|row| match row.how {
        How::LeftOut(explains) => explains(seen),
        How::Levelled | How::Avoided | How::Missing(_) | How::Aftermath(_) => false,
    })
}

/// The row for an operation that may have left different states behind in spite of equal answers.
pub fn left_behind(seen: &Seen<'_>) -> Option<&'static Difference> {
    DIFFERENCES.iter().find(|row| match row.how {
        How::Aftermath(explains) => explains(seen),
        _ => false,
    })
}

/// The table as a page.
pub fn page() -> String {
    let mut page = String::from(
        "# Differences from Linux\n\n\
         Memory operations that Faultless deliberately answers otherwise than Linux 6.12. The table \
         is `fuzz/src/differences.rs`, and `./x fuzz differential` reports every other difference. \
         *Levelled*: records are written so that it does not show. *Avoided*: programs are drawn so \
         that it does not occur. *Left out*: an operation with this difference is left out on both \
         sides, the rest of the program is compared, and the report counts it. *Left out beforehand*: \
         the same, with Linux 6.12 alone, and not counted.\n\n\
         | name | what | why | in comparisons |\n| --- | --- | --- | --- |\n",
    );
    for row in DIFFERENCES {
        let how = match row.how {
            How::Levelled => "levelled",
            How::Avoided => "avoided",
            How::Missing(_) => "left out beforehand",
            How::Aftermath(_) | How::LeftOut(_) => "left out",
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "| {} | {} | {} | {how} |",
            row.name, row.what, row.why
        );
    }
    page.push_str(FAULT_COUNTS);
    page
}
