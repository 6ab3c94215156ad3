//! Runs a command and announces it only if it takes long.
//!
//! Work that ends within a second prints nothing: a build with nothing to do is silent.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long work may take before it is announced.
const SILENT: Duration = Duration::from_secs(1);
/// The time between two progress messages.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);
/// How often the command is polled.
const POLL: Duration = Duration::from_millis(10);

/// Runs `command` to its end, and announces `what` on stderr if it takes more than a moment.
///
/// stdin is closed, and stdout goes to stderr.
pub fn run(what: &str, command: &mut Command) -> io::Result<ExitStatus> {
    command.stdin(Stdio::null()).stdout(io::stderr());
    wait(what, command)
}

/// As [`run`], with all output of the command in the file `log`.
pub fn run_logged(what: &str, command: &mut Command, log: &Path) -> io::Result<ExitStatus> {
    let file = File::create(log)?;
    command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file);
    wait(what, command)
}

fn wait(what: &str, command: &mut Command) -> io::Result<ExitStatus> {
    let mut child = command.spawn()?;
    let start = Instant::now();
    let mut next = SILENT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let elapsed = start.elapsed();
        if elapsed >= next {
            match next == SILENT {
                true => eprintln!("x: {what}"),
                false => eprintln!("x: {what}: {} s so far", elapsed.as_secs()),
            }
            next = elapsed + SIGN_OF_LIFE;
        }
        thread::sleep(POLL);
    }
}
