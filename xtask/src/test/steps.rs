//! The steps of `./x test`, quick ones first. To add a check, add a row.

use crate::arch::Arch::{self, AArch64, X86_64};
use crate::setup::Need;
use crate::setup::linux_tests::{self, Family};

/// One check, or a group of checks that share a build.
pub struct Step {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it checks.
    pub about: &'static str,
    /// The programs that it needs on the machine.
    pub needs: &'static [Need],
    /// The folders and files that it tests, and their dependencies.
    pub sources: &'static [&'static str],
    /// The command. The tests that it reports are counted; if it reports none, it counts as one.
    pub run: Run,
}

/// How a step runs.
#[derive(Debug)]
pub enum Run {
    /// Cargo in the workspace.
    Workspace(&'static [&'static str]),
    /// Cargo in the workspace with `--cfg NAME`, in a target folder of its own.
    WithCfg(&'static str, &'static [&'static str]),
    /// The order of the rooms of `crates/mm`.
    Rooms,
    /// Cargo in the workspace for Linux on AArch64, run by QEMU as single programs, with or without `--cfg NAME`; only for
    /// `--full` or by name.
    OnAArch64(Option<&'static str>, &'static [&'static str]),
    /// Clippy in the kernel for an architecture.
    KernelClippy(Arch),
    /// Cargo in the workspace, every warning of rustdoc an error.
    Documented(&'static [&'static str]),
    /// Cargo in the workspace, without what it has unpacked of the same versions before.
    Packed(&'static [&'static str]),
    /// Cargo in the workspace, after building the kernel and the packaged workloads for an architecture.
    Booted(Arch, &'static [&'static str]),
    /// The same, only for `--full` or by name, because it takes long.
    BootedLong(Arch, &'static [&'static str]),
    /// The same, after building a family of Linux's own tests, only for `--full` or by name.
    LinuxTests(&'static Family, &'static [&'static str]),
    /// The same as [`Run::Booted`], after building the executor and fetching Debian's Linux 6.12, too.
    Differential(Arch, &'static [&'static str]),
    /// The same without the executor, with all of Debian's kernels, only for `--full` or by name.
    Compared(&'static [&'static str]),
}

impl Step {
    /// Whether it runs only if it is named or everything is requested.
    pub fn is_for_full(&self) -> bool {
        matches!(
            self.run,
            Run::BootedLong(..)
                | Run::LinuxTests(..)
                | Run::Compared(_)
                | Run::OnAArch64(..)
                // Needs what rustup downloads, which not every machine can.
                | Run::Differential(AArch64, _)
        )
    }
}

/// The files that determine how the crates are built.
const WORKSPACE: [&str; 2] = ["Cargo.toml", "Cargo.lock"];

/// The crates with models.
const MODELLED: &[&str] = &[
    WORKSPACE[0],
    WORKSPACE[1],
    "crates/sync",
    "crates/paging",
    "crates/frames",
    "crates/swap",
    "crates/trace",
    "crates/mm",
];

/// The folders that are built for the host.
const HOST: &[&str] = &[
    WORKSPACE[0],
    WORKSPACE[1],
    "crates",
    "tests",
    "workloads",
    "fuzz",
    "cli",
    "examples",
    "xtask",
];

/// The same, and the kernel.
const ALL: &[&str] = &[
    WORKSPACE[0],
    WORKSPACE[1],
    "crates",
    "tests",
    "workloads",
    "fuzz",
    "cli",
    "examples",
    "xtask",
    "kernel",
];

/// The tests of both differential steps.
const DIFFERENTIAL: &[&str] = &[
    "test",
    "--package=faultless-cli",
    "--test=fuzz",
    "--",
    "--ignored",
    "--test-threads=1",
];

/// All steps.
pub const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        about: "the workspace is formatted",
        sources: HOST,
        needs: &[Need::Lints],
        run: Run::Workspace(&["fmt", "--all", "--check"]),
    },
    Step {
        name: "fmt-kernel",
        about: "the kernel is formatted",
        sources: &["kernel"],
        needs: &[Need::Lints],
        run: Run::Workspace(&["fmt", "--manifest-path=kernel/Cargo.toml", "--check"]),
    },
    Step {
        name: "rooms",
        about: "the rooms of the memory core depend on each other in one order",
        sources: &["crates/mm", "xtask"],
        needs: &[],
        run: Run::Rooms,
    },
    Step {
        name: "clippy",
        about: "no warning in the workspace",
        sources: HOST,
        needs: &[Need::Lints],
        run: Run::Workspace(&["clippy", "--workspace", "--all-targets", "--", "-Dwarnings"]),
    },
    Step {
        name: "features",
        about: "the memory core builds, without a warning, when speculation is left out",
        sources: HOST,
        needs: &[Need::Lints],
        run: Run::Workspace(&[
            "clippy",
            "--package=faultless-mm",
            "--package=faultless-soft",
            "--no-default-features",
            "--",
            "-Dwarnings",
        ]),
    },
    Step {
        name: "clippy-kernel",
        about: "no warning in the kernel",
        sources: ALL,
        needs: &[Need::Lints],
        run: Run::KernelClippy(X86_64),
    },
    Step {
        name: "clippy-kernel-aarch64",
        about: "the same for AArch64",
        sources: ALL,
        needs: &[Need::Lints, Need::BareMetal(AArch64)],
        run: Run::KernelClippy(AArch64),
    },
    Step {
        name: "docs",
        about: "the libraries' documentation has no broken link",
        needs: &[],
        sources: HOST,
        run: Run::Documented(&[
            "doc",
            "--no-deps",
            "--package=faultless-sync",
            "--package=faultless-trace",
            "--package=faultless-paging",
            "--package=faultless-frames",
            "--package=faultless-swap",
            "--package=faultless-mm",
            "--package=faultless-soft",
        ]),
    },
    Step {
        name: "package",
        about: "the libraries can be published: each is packed, and built from what was packed",
        needs: &[],
        sources: MODELLED,
        run: Run::Packed(&[
            "package",
            "--allow-dirty",
            "--package=faultless-sync",
            "--package=faultless-trace",
            "--package=faultless-paging",
            "--package=faultless-frames",
            "--package=faultless-swap",
            "--package=faultless-mm",
        ]),
    },
    Step {
        name: "workspace",
        about: "unit, property, differential, stress and command tests, and the example port",
        sources: HOST,
        needs: &[],
        run: Run::Workspace(&["test", "--workspace", "--no-fail-fast"]),
    },
    Step {
        name: "loom",
        about: "models of the protocols, every interleaving, and their broken variants",
        sources: MODELLED,
        needs: &[],
        run: Run::WithCfg(
            "loom",
            &[
                "test",
                "--profile=model",
                "--no-fail-fast",
                "--package=faultless-sync",
                "--package=faultless-paging",
                "--package=faultless-swap",
                "--package=faultless-mm",
                "--package=faultless-tdp",
                "--test=loom",
            ],
        ),
    },
    Step {
        name: "shuttle",
        about: "whole operations against each other, in random interleavings",
        sources: MODELLED,
        needs: &[],
        run: Run::WithCfg(
            "shuttle",
            &[
                "test",
                "--profile=model",
                "--no-fail-fast",
                "--package=faultless-sync",
                "--package=faultless-mm",
                "--package=faultless-tdp",
                "--test=shuttle*",
            ],
        ),
    },
    Step {
        name: "record",
        about: "which cache lines a fault writes",
        sources: HOST,
        needs: &[],
        run: Run::WithCfg(
            "record",
            &[
                "test",
                "--profile=model",
                "--no-fail-fast",
                "--package=faultless-tests",
                "--test=record",
            ],
        ),
    },
    Step {
        name: "boot",
        about: "the kernel with 1, 2 and 4 CPUs: every workload under every policy, test programs",
        sources: ALL,
        needs: &[
            Need::Qemu(X86_64),
            Need::Musl(X86_64),
            Need::BareMetal(X86_64),
            Need::Busybox,
            Need::Sqlite,
            Need::StressNg(X86_64),
        ],
        run: Run::Booted(
            X86_64,
            &[
                "test",
                "--no-fail-fast",
                "--package=faultless-cli",
                "--package=faultless-tests",
                "--test=boot*",
                "--",
                "--ignored",
                "--test-threads=2",
            ],
        ),
    },
    Step {
        name: "aarch64",
        about: "the kernel on AArch64: workloads under every policy, programs with libraries, what only it has",
        sources: ALL,
        needs: &[
            Need::Qemu(AArch64),
            Need::Musl(X86_64),
            Need::Musl(AArch64),
            Need::CrossGlibc,
            Need::BareMetal(AArch64),
        ],
        run: Run::Booted(
            AArch64,
            &[
                "test",
                "--no-fail-fast",
                "--package=faultless-cli",
                "--package=faultless-tests",
                "--test=aarch64",
                "--test=boot_hostile",
                "--test=boot_kernel",
                "--",
                "--ignored",
                "--test-threads=2",
                "--skip=iretq_in_user_mode_comes_to_an_end",
                // QEMU has other limits for archives.
                "--skip=an_archive_that_fills_memory_is_refused",
            ],
        ),
    },
    Step {
        name: "aarch64-programs",
        about: "the test programs of x86-64 on AArch64 (with --full or by name)",
        sources: ALL,
        needs: &[
            Need::Qemu(AArch64),
            Need::Musl(X86_64),
            Need::Musl(AArch64),
            Need::BareMetal(AArch64),
        ],
        run: Run::BootedLong(
            AArch64,
            &[
                "test",
                "--no-fail-fast",
                "--package=faultless-tests",
                "--test=boot_disk",
                "--test=boot_files",
                "--test=boot_heap",
                "--test=boot_hostile_calls",
                "--test=boot_mapped",
                "--test=boot_memory",
                "--test=boot_processes",
                "--test=boot_stale",
                "--",
                "--ignored",
                "--test-threads=2",
                // Instructions and devices of x86-64.
                "--skip=a_device",
                "--skip=memory_that_is_executed_only",
                // They print addresses, and the size or the bytes of the program's own code.
                "--skip=lines_of_maps",
                "--skip=memory_by_its_addresses",
                "--skip=what_flags_of_mappings_do",
                // Its arguments depend on the order in which they are evaluated.
                "--skip=one_node",
            ],
        ),
    },
    Step {
        name: "stress-ng",
        about: "Debian's stress-ng in the kernel, every stressor of memory (with --full or by name)",
        sources: ALL,
        needs: &[
            Need::Qemu(X86_64),
            Need::Musl(X86_64),
            Need::BareMetal(X86_64),
            Need::StressNg(X86_64),
        ],
        run: Run::BootedLong(
            X86_64,
            &[
                "test",
                "--no-fail-fast",
                "--package=faultless-cli",
                "--test=stress_ng",
                "--",
                "--ignored",
                "--test-threads=1",
            ],
        ),
    },
    Step {
        name: "aarch64-soft",
        about: "the soft machine's faults, locks and stress, compiled for AArch64 (with --full or by name)",
        sources: HOST,
        needs: &[Need::Static(AArch64), Need::QemuUser],
        run: Run::OnAArch64(
            None,
            &[
                "test",
                "--package=faultless-tests",
                "--features=aarch64",
                "--test=soft",
                "--",
                "fault::",
                "lock::",
                "table::",
                "reclaim::",
            ],
        ),
    },
    Step {
        name: "aarch64-loom",
        about: "models of page tables and locks, compiled for AArch64 (with --full or by name)",
        sources: MODELLED,
        needs: &[Need::Static(AArch64), Need::QemuUser],
        run: Run::OnAArch64(
            Some("loom"),
            &[
                "test",
                "--profile=model",
                "--no-fail-fast",
                "--package=faultless-sync",
                "--package=faultless-paging",
                "--test=loom",
                "--",
                // They start this very program again.
                "--skip=broken_park_without_a_second_look",
                "--skip=broken_wake_without_a_turn",
            ],
        ),
    },
    Step {
        name: "aarch64-java",
        about: "Debian's OpenJDK for AArch64, which touches its heap at the start (fetched; with --full or by name)",
        sources: ALL,
        needs: &[
            Need::Qemu(AArch64),
            Need::Musl(X86_64),
            Need::Musl(AArch64),
            Need::BareMetal(AArch64),
            Need::Java,
        ],
        run: Run::BootedLong(
            AArch64,
            &[
                "test",
                "--package=faultless-cli",
                "--test=aarch64_java",
                "--",
                "--ignored",
            ],
        ),
    },
    Step {
        name: "aarch64-stress-ng",
        about: "the same for AArch64 (fetched, not installed; with --full or by name)",
        sources: ALL,
        needs: &[
            Need::Qemu(AArch64),
            Need::Musl(X86_64),
            Need::Musl(AArch64),
            Need::BareMetal(AArch64),
            Need::StressNg(AArch64),
        ],
        run: Run::BootedLong(
            AArch64,
            &[
                "test",
                "--no-fail-fast",
                "--package=faultless-cli",
                "--test=stress_ng",
                "--",
                "--ignored",
                "--test-threads=1",
            ],
        ),
    },
    Step {
        name: "uffd",
        about: "Linux's own tests of userfaultfd and of huge pages in the kernel (source fetched; with --full or by name)",
        sources: ALL,
        needs: &[
            Need::Qemu(X86_64),
            Need::Musl(X86_64),
            Need::BareMetal(X86_64),
            Need::LinuxTests,
        ],
        run: Run::LinuxTests(
            &linux_tests::MM,
            &[
                "test",
                "--no-fail-fast",
                "--package=faultless-cli",
                "--test=uffd",
                "--test=linux_mm",
                "--",
                "--ignored",
                "--test-threads=1",
            ],
        ),
    },
    Step {
        name: "kvm",
        about: "Linux's own tests of KVM in the kernel (source fetched; with --full or by name)",
        sources: ALL,
        needs: &[
            Need::Qemu(X86_64),
            Need::Musl(X86_64),
            Need::BareMetal(X86_64),
            Need::LinuxTests,
        ],
        run: Run::LinuxTests(
            &linux_tests::KVM,
            &[
                "test",
                "--no-fail-fast",
                "--package=faultless-cli",
                "--test=kvm",
                "--",
                "--ignored",
                "--test-threads=1",
            ],
        ),
    },
    Step {
        name: "growth",
        about: "no call takes longer because its process has more memory (with --full or by name)",
        sources: ALL,
        needs: &[
            Need::Qemu(X86_64),
            Need::Musl(X86_64),
            Need::BareMetal(X86_64),
        ],
        run: Run::BootedLong(
            X86_64,
            &[
                "test",
                "--no-fail-fast",
                "--package=faultless-cli",
                "--test=growth",
                "--",
                "--ignored",
                "--test-threads=1",
            ],
        ),
    },
    Step {
        name: "compare",
        about: "programs in our kernel and in Debian's Linux (fetched; with --full or by name)",
        sources: ALL,
        needs: &[
            Need::Qemu(X86_64),
            Need::Musl(X86_64),
            Need::BareMetal(X86_64),
        ],
        run: Run::Compared(&[
            "test",
            "--no-fail-fast",
            "--package=faultless-cli",
            "--test=compare",
            "--",
            "--ignored",
            "--test-threads=1",
        ]),
    },
    Step {
        name: "differential",
        about: "programs of memory operations on Debian's Linux 6.12 (fetched), our kernel, the soft machine",
        sources: ALL,
        needs: &[
            Need::Qemu(X86_64),
            Need::Musl(X86_64),
            Need::BareMetal(X86_64),
        ],
        run: Run::Differential(X86_64, DIFFERENTIAL),
    },
    Step {
        name: "differential-aarch64",
        about: "the same on AArch64: Debian's Linux 6.12 (fetched), our kernel (with --full or by name)",
        sources: ALL,
        needs: &[
            Need::Qemu(AArch64),
            Need::Musl(AArch64),
            Need::Static(AArch64),
            Need::BareMetal(AArch64),
        ],
        run: Run::Differential(AArch64, DIFFERENTIAL),
    },
];
