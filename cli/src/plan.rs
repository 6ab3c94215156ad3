//! Tells `./x` what a command line needs to be built and installed, before anything starts.
//!
//! With `FAULTLESS_PLAN=1` a command checks its input as always, prints one line
//! `needs: NAME…` instead of doing its work, and ends. A name that ends in `?` is wanted, but its
//! absence is not an error.

use std::env;
use std::process::ExitCode;

use crate::compare::Series;

/// Something that `./x` installs and builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The emulator.
    Qemu,
    /// The kernel image.
    Kernel,
    /// The kernel image without events.
    KernelWithoutEvents,
    /// The packaged workloads for the kernel.
    Workloads,
    /// The program that runs random programs on a kernel.
    Executor,
    /// This command with recording.
    Recorder,
    /// The first process of a Linux beside our kernel.
    LinuxInit,
    /// Debian's kernel of this series. Without it, the other series are still compared.
    Linux(Series),
    /// The modules of that kernel that its swap needs.
    LinuxModules(Series),
}

impl Need {
    const fn name(self) -> &'static str {
        match self {
            Need::Qemu => "qemu",
            Need::Kernel => "kernel",
            Need::KernelWithoutEvents => "kernel-without-events",
            Need::Workloads => "workloads",
            Need::Executor => "executor",
            Need::Recorder => "recorder",
            Need::LinuxInit => "linux-init",
            Need::Linux(series) => series.peer(),
            Need::LinuxModules(series) => series.modules(),
        }
    }

    const fn is_wanted_only(self) -> bool {
        matches!(self, Need::Linux(_) | Need::LinuxModules(_))
    }
}

/// Whether a command can do without its needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// The command cannot do its work without them.
    Required,
    /// The command does something else without them.
    Wanted,
}

/// Answers `./x` if it asks; `None` when the command is to do its work.
pub fn answer(needs: &[Need], urgency: Urgency) -> Option<ExitCode> {
    if !is_asked() {
        return None;
    }
    let name = |need: &Need| {
        let wanted = urgency == Urgency::Wanted || need.is_wanted_only();
        format!(" {}{}", need.name(), if wanted { "?" } else { "" })
    };
    let names: Vec<_> = needs.iter().map(name).collect();
    println!("needs:{}", names.concat());
    Some(ExitCode::SUCCESS)
}

fn is_asked() -> bool {
    env::var_os("FAULTLESS_PLAN").is_some_and(|value| value == "1")
}
