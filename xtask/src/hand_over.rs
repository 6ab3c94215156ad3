//! Provides what a command line of `faultless` needs, then executes `faultless`.
//!
//! The command knows its arguments, this tool knows how to install and build. So the command is
//! built first, which needs only cargo, and queried (`FAULTLESS_PLAN=1`): it checks the
//! whole command line and prints one line `needs: NAME…`. Any other output is its final
//! answer: help, a list, or a refusal.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};

use crate::arch::Arch;
use crate::layout::Layout;
use crate::refusal::{self, Refusal};
use crate::setup::Need;
use crate::{build, setup};

/// The prefix of the answer to `FAULTLESS_PLAN=1`.
const ANSWER: &str = "needs:";

/// Builds and installs what `arguments` need, and executes the command.
pub fn to_the_command(layout: &Layout, arguments: &[OsString]) -> Result<ExitCode, Refusal> {
    build::command(layout)?;
    let plan = Command::new(layout.command())
        .args(arguments)
        .env("FAULTLESS_PLAN", "1")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Refusal::new(format!("cannot start the command: {error}")))?;
    let answer = String::from_utf8_lossy(&plan.stdout);
    let Some(needs) = answer
        .lines()
        .next()
        .and_then(|line| line.strip_prefix(ANSWER))
    else {
        // A closed stdout is no error.
        let _ = std::io::stdout().write_all(&plan.stdout);
        let status = plan.status.code().and_then(|code| u8::try_from(code).ok());
        return Ok(ExitCode::from(status.unwrap_or(refusal::STATUS)));
    };

    let mut command = Command::new(layout.command());
    command.args(arguments);
    let mut without_kernel = false;
    for word in needs.split_whitespace() {
        // `kernel?`: optional; the command handles its absence.
        let (name, optional) = match word.strip_suffix('?') {
            Some(name) => (name, true),
            None => (word, false),
        };
        // `linux-6.1?`: one of several kernels, each of which is optional. `linux-6.1-modules?`: its modules.
        if let Some(series) = name.strip_prefix("linux-").filter(|_| optional) {
            let (series, arch) = Arch::split(series);
            let provided = match series.strip_suffix("-modules") {
                Some(series) => setup::linux::provide_modules(layout, series, arch),
                None => setup::linux::provide(layout, series, arch),
            };
            if let Err(refusal) = provided {
                eprintln!("x: {refusal}");
            }
            continue;
        }
        if optional && without_kernel {
            continue;
        }
        match provide(layout, name) {
            Ok(()) => {}
            Err(refusal) if optional => {
                without_kernel = true;
                command.env("FAULTLESS_NO_KERNEL", refusal.to_string());
            }
            Err(refusal) => return Err(refusal),
        }
    }
    let error = command.exec();
    Err(Refusal::new(format!("cannot start the command: {error}")))
}

/// Installs and builds one thing that the command needs.
fn provide(layout: &Layout, name: &str) -> Result<(), Refusal> {
    let (plain, arch) = Arch::split(name);
    match plain {
        "qemu" => setup::provide(layout, &[Need::Qemu(arch)]),
        "kernel" => {
            setup::provide(layout, &[Need::BareMetal(arch)])?;
            build::kernel(layout, arch)
        }
        "kernel-without-events" => {
            setup::provide(layout, &[Need::BareMetal(arch)])?;
            build::kernel_without_events(layout, arch)
        }
        "workloads" => {
            setup::provide(layout, &[Need::Musl(arch)])?;
            build::workloads(layout, arch)
        }
        "linux-init" => {
            setup::provide(layout, &[Need::Musl(arch)])?;
            build::linux_init(layout, arch)
        }
        "executor" => {
            setup::provide(layout, &[Need::Static(arch)])?;
            build::executor(layout, arch)
        }
        "recorder" => build::recorder(layout),
        _ => Err(Refusal::new(format!(
            "the command needs '{name}', which ./x does not know"
        ))),
    }
}
