//! Tells `./x` what a command line needs to be built and installed, before anything starts.
//!
//! With `FAULTLESS_PLAN=1` a command checks its input as always, prints one line
//! `needs: NAME…` instead of doing its work, and ends. A name that ends in `?` is wanted, but its
//! absence is not an error.

use std::env;
use std::process::ExitCode;

use crate::arch::Arch;
use crate::compare::Series;

/// Something that `./x` installs and builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The emulator.
    Qemu(Arch),
    /// The kernel image.
    Kernel(Arch),
    /// The kernel image without events.
    KernelWithoutEvents(Arch),
    /// The packaged workloads for the kernel.
    Workloads(Arch),
    /// The program that runs random programs on a kernel.
    Executor(Arch),
    /// This command with recording.
    Recorder,
    /// The first process of a Linux beside our kernel.
    LinuxInit(Arch),
    /// Debian's kernel of this series. Without it, the other series are still compared.
    Linux(Series, Arch),
    /// The modules of that kernel that its swap needs.
    LinuxModules(Series, Arch),
}

impl Need {
    /// Its name; for AArch64 it ends in `-aarch64`.
    fn name(self) -> String {
        let (name, arch) = match self {
            Need::Qemu(arch) => ("qemu", arch),
            Need::Kernel(arch) => ("kernel", arch),
            Need::KernelWithoutEvents(arch) => ("kernel-without-events", arch),
            Need::Workloads(arch) => ("workloads", arch),
            Need::Executor(arch) => ("executor", arch),
            Need::Recorder => return "recorder".to_owned(),
            Need::LinuxInit(arch) => ("linux-init", arch),
            Need::Linux(series, arch) => (series.peer(), arch),
            Need::LinuxModules(series, arch) => (series.modules(), arch),
        };
        format!("{name}{}", arch.suffix())
    }

    const fn is_wanted_only(self) -> bool {
        matches!(self, Need::Linux(..) | Need::LinuxModules(..))
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
