//! The run of one workload, from the machine's start to the report.

use std::io::{self, Write};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use faultless_frames::{FrameSource as _, NoMemory};
use faultless_soft::{Soft, SoftCpu, SoftMemory};
use faultless_trace::Counter;

use crate::Workload;
use crate::report::{Error, Options, Report};
use crate::swap::Device;
use crate::system::{End, Process, console};

/// Runs a workload with arguments on a machine of its own. Its output goes to `stdout` and
/// `stderr` while it runs; a failed write does not stop it.
///
/// # Errors
/// When it cannot be started, or [`Options::check`] finds an error.
pub fn run(
    name: &str,
    arguments: &[String],
    options: &Options<'_>,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> Result<Report, Error> {
    let workload = crate::WORKLOADS
        .iter()
        .find(|workload| workload.name == name);
    let workload = workload.ok_or_else(|| Error::UnknownName(name.to_owned()))?;
    start(workload, arguments, options, stdout, stderr)
}

fn start(
    workload: &Workload,
    arguments: &[String],
    options: &Options<'_>,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> Result<Report, Error> {
    let memory = start_machine(options).map_err(Error::Machine)?;
    (options.started)(memory.cpus());
    let swap = options.swap.map(|swap| Device::begin(memory, swap));
    let swap = swap.transpose().map_err(|NoMemory| Error::NoSwap)?;
    let frames = || available(memory) + swap.as_ref().map_or(0, Device::frames);
    let before = options.check.then(frames);
    let space = SoftCpu::attend(memory, 0, || Soft::space(memory, options.policy));
    let space = space.map_err(|_| Error::NoMemory)?;

    let (sender, receiver) = console::channel();
    let process = Process::new(workload.name, space, options, sender);
    let started = Instant::now();
    thread::scope(|scope| {
        let main = || process.run_main(|thread| (workload.main)(thread, arguments));
        let spawned = thread::Builder::new().spawn_scoped(scope, main);
        spawned.map_err(Error::Machine)?;
        console::serve(&receiver, &process, options.stop, stdout, stderr);
        Ok(())
    })?;

    let total = |&counter: &Counter| (counter.name(), memory.total(counter));
    let counters = Counter::ALL.iter().map(total).collect();
    let (end, space) = process.into_parts();
    let space = Arc::into_inner(space).ok_or_else(|| {
        Error::Violation("a guest was left behind, and uses the address space".to_owned())
    })?;
    let verified = SoftCpu::attend(memory, 0, || {
        let verified = if options.check {
            space.verify().map(|_| ())
        } else {
            Ok(())
        };
        space.destroy();
        verified
    });
    verified.map_err(|violation| Error::Violation(violation.to_string()))?;
    if let Some(before) = before {
        check_frames(before, frames())?;
    }
    let (end, at) = end.unwrap_or((End::Stopped, Instant::now()));
    Ok(Report {
        exit: if let End::Exit(status) = end {
            Some(status)
        } else {
            None
        },
        signal: if let End::Signal(signal) = end {
            Some(signal)
        } else {
            None
        },
        seconds: at.duration_since(started).as_secs_f64(),
        counters,
    })
}

fn start_machine(options: &Options<'_>) -> io::Result<&'static SoftMemory> {
    Soft::start(faultless_soft::Options {
        huge: options.huge,
        cpus: options.cpus,
        memory: options.memory,
        check: options.check,
        record: options.record,
        ..faultless_soft::Options::default()
    })
}

/// Frames of a huge page.
const HUGE_PAGE: u64 = 512;

/// The number of frames that can be allocated, after all deferred frees. Called while no CPU runs.
fn available(memory: &'static SoftMemory) -> u64 {
    SoftCpu::attend(memory, 0, || {
        // Each call advances the epoch by one; the object that was retired last needs the most.
        for _ in 0..4 {
            memory.expedite();
        }
        memory.drain();
        let allocator = memory.machine().allocator();
        // The huge zero page stays once it was made.
        let huge_zero = allocator.huge_zero_frame().map_or(0, |_| HUGE_PAGE);
        allocator.census().available() + huge_zero
    })
}

fn check_frames(before: u64, after: u64) -> Result<(), Error> {
    if before == after {
        return Ok(());
    }
    Err(Error::Violation(format!(
        "{before} frames were available at the start, {after} at the end"
    )))
}

#[cfg(test)]
mod tests {
    use super::{Options, Report, Workload, start};
    use crate::system::{Barrier, Stop, Thread};

    fn run(main: fn(&Thread<'_>, &[String]) -> Result<i32, Stop>) -> (Report, Vec<u8>) {
        let options = Options {
            memory: 16 << 20,
            check: true,
            ..Options::default()
        };
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let workload = Workload { name: "test", main };
        let report = start(&workload, &[], &options, &mut stdout, &mut stderr);
        (report.unwrap_or_else(|error| panic!("{error}")), stdout)
    }

    #[test]
    fn an_access_that_is_not_allowed_kills() {
        let (report, stdout) = run(|thread, _| {
            thread.load(0x1000)?;
            Ok(0)
        });
        assert_eq!((report.exit, report.signal), (None, Some(11)));
        assert!(stdout.is_empty());
    }

    #[test]
    fn a_thread_that_dies_takes_the_others_along() {
        let (report, stdout) = run(|thread, _| {
            let barrier = &Barrier::new(99);
            thread.team(|team| {
                for number in 0..5 {
                    let wait = move |thread: &Thread<'_>| barrier.wait(thread);
                    team.start(number, wait)
                        .map_err(|error| thread.die(error))?;
                }
                let fault = |thread: &Thread<'_>| thread.store(0xffff_8000_0000_0000, 1);
                team.start(6, fault).map_err(|error| thread.die(error))
            })?;
            thread.print("too late".to_owned());
            Ok(0)
        });
        assert_eq!((report.exit, report.signal), (None, Some(11)));
        assert!(stdout.is_empty());
    }

    #[test]
    fn a_status_is_passed_on() {
        let (report, stdout) = run(|thread, _| {
            thread.print("said\n".to_owned());
            Ok(7)
        });
        assert_eq!((report.exit, report.signal), (Some(7), None));
        assert_eq!(stdout, b"said\n");
        assert!(
            report
                .counters
                .iter()
                .any(|&(name, times)| name == "mmap" && times == 4)
        );
    }
}
