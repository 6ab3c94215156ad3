//! Programs on the host's Linux, for comparison with the kernel: in a fixed environment, and
//! with no process left behind, however they end.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use crate::programs::scratch;
use crate::surroundings;

/// Longer than any program takes on a busy host.
const PATIENCE: Duration = Duration::from_secs(180);

/// How a program ended, and what it and its children had printed by then.
#[derive(Debug)]
pub struct Ended {
    /// Its status, if it exited.
    pub exit: Option<i32>,
    /// The signal, if one killed it.
    pub signal: Option<i32>,
    /// Whether it was killed because it did not end in time.
    pub was_late: bool,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// The output of a program that exits with status 0.
pub fn printed_on_the_host(program: &[u8]) -> String {
    let ended = run(program, &[]);
    assert_eq!((ended.exit, ended.signal), (Some(0), None), "{ended:?}");
    ended.stdout
}

/// How a program ends: status and signal.
pub fn on_the_host(program: &[u8], arguments: &[&str]) -> (Option<i32>, Option<i32>) {
    let ended = run(program, arguments);
    if ended.exit != Some(0) {
        eprint!("{}", ended.stderr);
    }
    (ended.exit, ended.signal)
}

fn run(program: &[u8], arguments: &[&str]) -> Ended {
    let folder = scratch("host");
    let path = folder.join("test");
    fs::write(&path, program).expect("a file in our folder");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    let ended = finish(command(&path).arg0("test").args(arguments));
    fs::remove_dir_all(&folder).expect("the folder is ours");
    ended
}

/// A command that runs a program in the fixed environment.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    surroundings::fix(&mut command);
    command
}

/// Runs the program of `command` to its end, or kills it when it is far too late.
pub fn finish(command: &mut Command) -> Ended {
    let ended = finish_within(command, PATIENCE);
    assert!(!ended.was_late, "it does not end: {ended:?}");
    ended
}

/// The same with a given time limit.
///
/// Output goes to files: a pipe would stay open until the last process left behind has ended.
pub fn finish_within(command: &mut Command, patience: Duration) -> Ended {
    let folder = scratch("output");
    let file = |name: &str| File::create(folder.join(name)).expect("a file in our folder");
    let mut child = start(command.stdout(file("out")).stderr(file("err"))).expect("it starts");
    let was_late = !ends_within(&child, patience);
    // Before the wait: until then no other session gets this number.
    end_session(child.id());
    let status = child.wait().expect("it is our child");
    let read = |name: &str| {
        let bytes = fs::read(folder.join(name)).expect("our file");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (stdout, stderr) = (read("out"), read("err"));
    fs::remove_dir_all(&folder).expect("the folder is ours");
    Ended {
        exit: status.code(),
        signal: status.signal(),
        was_late,
        stdout,
        stderr,
    }
}

/// Starts the program, and repeats while it is busy. A fork in another thread may have inherited the file open for
/// writing, and until that child's exec the file cannot be executed.
fn start(command: &mut Command) -> io::Result<Child> {
    for _ in 0..1000 {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
    command.spawn()
}

/// Whether the child ends in time. It stays a zombie.
fn ends_within(child: &Child, patience: Duration) -> bool {
    let begun = Instant::now();
    loop {
        // SAFETY: an empty `siginfo_t`, to be filled in.
        let mut info = unsafe { std::mem::zeroed::<libc::siginfo_t>() };
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: asks for a child of ours.
        let asked = unsafe { libc::waitid(libc::P_PID, child.id(), &raw mut info, how) };
        assert_eq!(asked, 0, "{}", io::Error::last_os_error());
        // SAFETY: `waitid` has filled it in, with 0 while the child runs.
        if unsafe { info.si_pid() } != 0 {
            return true;
        }
        if begun.elapsed() > patience {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Kills all processes of a session, in every group, until none is left.
fn end_session(session: u32) {
    while let members = members_of(session)
        && !members.is_empty()
    {
        for process in members {
            // SAFETY: sends a signal; a process that has ended meanwhile does not get it.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The processes of a session that have not ended.
fn members_of(session: u32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("Linux has /proc");
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_member = |process: &i32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // The fields behind the name, which may contain any character: state, parent, group, session.
        let Some((_, fields)) = stat.rsplit_once(") ") else {
            return false;
        };
        let fields: Vec<_> = fields.split(' ').collect();
        let state = fields.first().copied().unwrap_or("X");
        let is_over = matches!(state, "Z" | "X" | "x");
        !is_over && fields.get(3) == Some(&session.to_string().as_str())
    };
    numbers.filter(is_member).collect()
}
