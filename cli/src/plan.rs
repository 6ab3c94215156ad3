//! What a command line needs to be built and installed, told to `./x` before anything starts.
//!
//! With `FAULTLESS_PLAN=1` a command checks its input as always, prints one line
//! `needs: NAME…` instead of doing its work, and ends. A name that ends in `?` is wanted, but its
//! absence is not an error.

use std::env;
use std::process::ExitCode;

/// Something that `./x` installs and builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The emulator.
    Qemu,
    /// The kernel image.
    Kernel,
    /// The packaged workloads for the kernel.
    Workloads,
    /// This command with recording.
    Recorder,
}

impl Need {
    const fn name(self) -> &'static str {
        match self {
            Need::Qemu => "qemu",
            Need::Kernel => "kernel",
            Need::Workloads => "workloads",
            Need::Recorder => "recorder",
        }
    }
}

/// Whether a need can be done without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// The command cannot do its work without.
    Required,
    /// The command does something else without.
    Wanted,
}

/// Answers `./x` if it asks; `None` when the command is to do its work.
pub fn answer(needs: &[Need], urgency: Urgency) -> Option<ExitCode> {
    if !is_asked() {
        return None;
    }
    let mark = if urgency == Urgency::Wanted { "?" } else { "" };
    let names: Vec<_> = needs
        .iter()
        .map(|need| format!(" {}{mark}", need.name()))
        .collect();
    println!("needs:{}", names.concat());
    Some(ExitCode::SUCCESS)
}

fn is_asked() -> bool {
    env::var_os("FAULTLESS_PLAN").is_some_and(|value| value == "1")
}
