//! Starts the first process, the program that the machine was booted to run.

use super::run_file::RunFile;
use super::strings::Strings;
use super::{Plan, Program, short_name, string};
use crate::arch::TrapFrame;
use crate::errno::Errno;
use crate::files::place::Place;
use crate::files::{self, image};
use crate::process::family::{self, Entry};
use crate::process::limits::Limits;
use crate::process::{FIRST, INIT, Process, UserSpace};
use crate::report::{self, refuse};
use crate::sched;
use crate::sched::thread::Thread;
use crate::shared::Shared;
use crate::signal::Signals;
use crate::signal::action::Actions;
use crate::sync::Once;

/// The directory of a program without a path.
const BIN: &str = "/bin/";

static RUN: Once<RunFile> = Once::new();

/// The run file, as the command wrote it.
pub fn run() -> &'static RunFile {
    RUN.get()
}

fn out_of_memory(_: Errno) -> ! {
    refuse(format_args!("out of memory: no room for the first process"))
}

/// Starts the program; ends the run with an error line if it cannot start.
pub fn begin(run: RunFile) {
    RUN.set(run);
    let process = make().unwrap_or_else(|error| out_of_memory(error));
    let thread = Thread::new(process.id, true, load, &TrapFrame::default());
    let thread = thread.unwrap_or_else(|error| out_of_memory(error));
    thread.set_process(process.clone());
    let added = process.add(thread).and_then(|()| {
        family::with(|family| {
            family.add(Entry {
                id: FIRST,
                parent: INIT,
                maker: INIT,
                group: FIRST,
                session: FIRST,
                process: Some(process.clone()),
                ended: None,
                change: None,
                has_execed: true,
                exit_signal: linux_raw_sys::general::SIGCHLD,
                hangs_up: false,
            })
        })
    });
    added.unwrap_or_else(|error| out_of_memory(error));
    sched::enqueue(thread);
}

fn make() -> Result<Shared<Process>, Errno> {
    let id = family::new_id()?;
    let nothing = Program {
        path: string(&[run().program])?,
        arguments: Strings::new(),
        environment: Strings::new(),
        code: (0, 0),
    };
    Process::new(
        id,
        UserSpace::new(run().policy, &Limits::new().memory())?,
        Shared::new(nothing)?,
        Signals::new(Actions::new()?),
        Limits::new(),
        (
            Shared::new(files::standard()?)?,
            Shared::new(Place::root())?,
        ),
    )
}

/// Entry function of the first thread: loads the program.
fn load(thread: &'static Thread) {
    let run = run();
    let path = if run.program.contains('/') {
        string(&[run.program])
    } else {
        string(&[BIN, run.program])
    };
    let mut path = path.unwrap_or_else(|error| out_of_memory(error));
    let name = short_name(&path);
    let find = |path: &str| image::find(path.as_bytes());
    let Ok(mut image) = find(&path) else {
        refuse(format_args!("{path}: not in the initramfs"));
    };
    let collect = |texts: &[&[u8]]| {
        let mut strings = Strings::new();
        let pushed = texts.iter().try_for_each(|text| strings.push(text));
        pushed.map(|()| strings)
    };
    let texts = collect(&run.arguments).and_then(|arguments| {
        let environment = collect(&run.environment)?;
        Ok((arguments, environment))
    });
    let (mut arguments, environment) = match texts {
        Ok(texts) => texts,
        Err(crate::errno::E2BIG) => refuse(format_args!(
            "{path}: the arguments and the environment are too large"
        )),
        Err(error) => out_of_memory(error),
    };
    if let Err(Errno(number)) = super::script::resolve(&mut path, &mut arguments, &mut image, find)
    {
        refuse(format_args!(
            "{path}: its interpreter cannot be run (error {number})"
        ));
    }
    let asked = string(&[&path]).unwrap_or_else(|error| out_of_memory(error));
    let plan = Plan::new(path, name, (arguments, environment), image);
    if let Err(error) = plan.and_then(|plan| plan.load(thread)) {
        refuse(format_args!("{asked}: {error}"));
    }
    report::program_begins();
}
