//! Starts the emulator, and waits for it.

use std::env;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::guest_memory::GuestMemory;
use super::input::Input;
use crate::interrupt;
use crate::machine::{Accel, Request};

/// The emulator's program.
const PROGRAM: &str = "qemu-system-x86_64";
/// How often the wait looks whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// How long a stopped machine may take to report its counters.
const PATIENCE: Duration = Duration::from_secs(1);

/// The ports on which the guest writes, with what it writes there.
pub struct Ports<'a> {
    /// The program's output, and messages of the kernel; see `output`.
    pub output: [(&'static str, &'a Path); 3],
    /// The kernel's report; see `control`.
    pub control: &'a Path,
    /// The serial console of another kernel.
    pub console: Option<&'a Path>,
    /// The program's stdin, if it has one.
    pub stdin: Option<&'a Input>,
    /// Where QEMU takes commands.
    pub monitor: &'a Path,
}

/// Why QEMU ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// By itself.
    Itself,
    /// The time limit was reached.
    TimedOut,
    /// The user interrupted it.
    Interrupted,
}

/// A running machine.
pub struct Qemu {
    child: Child,
    monitor: PathBuf,
    messages: Messages,
}

/// Checks that QEMU can be used; the error is the reason if not.
pub fn check() -> Result<()> {
    if env::var_os("FAULTLESS_NO_QEMU").is_some_and(|value| !value.is_empty() && value != "0") {
        bail!("QEMU cannot be had: FAULTLESS_NO_QEMU is set");
    }
    if !is_in_path(PROGRAM) {
        bail!("QEMU is missing: ./x setup installs it, or install Debian's qemu-system-x86");
    }
    Ok(())
}

/// Refuses an accelerator that this host does not have.
pub fn check_accel(accel: Accel) -> Result<()> {
    if accel == Accel::Kvm {
        let device = OpenOptions::new().read(true).write(true).open("/dev/kvm");
        device.context("--accel kvm: cannot open /dev/kvm")?;
    }
    Ok(())
}

impl Qemu {
    /// Starts a machine for `request`, with further `options` of QEMU. Its memory is `memory`, or QEMU's own.
    pub fn start(
        request: &Request,
        kernel: &Path,
        initramfs: &Path,
        memory: Option<&GuestMemory>,
        ports: &Ports<'_>,
        options: &[OsString],
    ) -> Result<Self> {
        let mut command = command();
        command.args(machine(request, memory)).args(options);
        command
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(initramfs);
        for (port, socket) in ports.output.into_iter().chain([("0xeb", ports.control)]) {
            let name = format!("port{port}");
            command.arg("-chardev").arg(chardev(&name, socket));
            command
                .arg("-device")
                .arg(format!("isa-debugcon,iobase={port},chardev={name}"));
        }
        if let Some(console) = ports.console {
            command.arg("-chardev").arg(chardev("console", console));
            command.args(["-serial", "chardev:console"]);
        }
        if let Some(input) = ports.stdin {
            command
                .arg("-chardev")
                .arg(chardev("stdin", input.socket()));
            command.arg("-object").arg(input.window());
            command.args(["-device", "ivshmem-plain,memdev=window"]);
            command.args(["-device", "isa-serial,iobase=0x3f8,irq=4,chardev=stdin"]);
        }
        command.arg("-chardev").arg({
            let mut monitor = chardev("monitor", ports.monitor);
            monitor.push(",server=on,wait=off");
            monitor
        });
        command.args(["-mon", "chardev=monitor,mode=readline"]);
        command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        // Ctrl-C reaches only this command, which then stops the machine in order.
        command.process_group(0);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {PROGRAM}"))?;
        let stderr = child.stderr.take().context("QEMU has no stderr")?;
        Ok(Qemu {
            child,
            monitor: ports.monitor.to_path_buf(),
            messages: gather(stderr),
        })
    }

    /// Waits until QEMU ends, or stops it. Returns why it ended, and QEMU's own messages.
    pub fn wait(mut self, timeout: Option<Duration>) -> Result<(Stop, String)> {
        let start = Instant::now();
        let stop = loop {
            if self
                .child
                .try_wait()
                .context("cannot wait for QEMU")?
                .is_some()
            {
                break Stop::Itself;
            }
            if self.messages.kvm_failed.load(Ordering::Relaxed) {
                // QEMU keeps the stopped machine, and there is nothing to wait for.
                self.child.kill().context("cannot stop QEMU")?;
                self.child.wait().context("cannot wait for QEMU")?;
                break Stop::Itself;
            }
            if interrupt::is_requested() {
                break Stop::Interrupted;
            }
            if timeout.is_some_and(|limit| start.elapsed() >= limit) {
                break Stop::TimedOut;
            }
            thread::sleep(POLL);
        };
        if stop != Stop::Itself {
            self.ask_for_a_report();
            // It may have ended since.
            let _ = self.child.kill();
            self.child.wait().context("cannot wait for QEMU")?;
        }
        Ok((stop, self.messages.text.join().unwrap_or_default()))
    }

    /// Gives the kernel a moment to report its counters: on an NMI it does so, and turns the machine off. After
    /// that moment the machine is stopped without a report.
    fn ask_for_a_report(&mut self) {
        let asked = UnixStream::connect(&self.monitor)
            .and_then(|mut monitor| monitor.write_all(b"nmi\n").map(|()| monitor));
        // Kept open until the end: QEMU may drop the input of a connection that is closed.
        let Ok(_monitor) = asked else { return };
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(POLL),
                _ => return,
            }
        }
    }
}

/// The emulator's command. QEMU ends with this process, even if this process is killed.
fn command() -> Command {
    if !is_in_path("setpriv") {
        return Command::new(PROGRAM);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", PROGRAM]);
    command
}

fn is_in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// QEMU's options for the machine, without those for its ports.
pub fn machine(request: &Request, memory: Option<&GuestMemory>) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    let size = format!("{}k", request.memory.0 >> 10);
    match memory {
        None => option("-machine", "q35".to_owned()),
        Some(memory) => {
            option("-machine", "q35,memory-backend=memory".to_owned());
            let path = memory.path();
            let object =
                format!("memory-backend-file,id=memory,size={size},mem-path={path},share=on");
            option("-object", object);
        }
    }
    match (request.accel, request.count_instructions) {
        (Accel::Kvm, _) => option("-accel", "kvm".to_owned()),
        // One instruction takes 1 ns of the guest's clock; an idle guest's clock jumps ahead.
        (Accel::Tcg, true) => {
            option("-accel", "tcg,thread=single".to_owned());
            option("-icount", "shift=0,sleep=off".to_owned());
        }
        (Accel::Tcg, false) => option("-accel", "tcg,thread=multi".to_owned()),
    }
    option("-cpu", "max".to_owned());
    option("-smp", request.cpus.to_string());
    option("-m", size);
    option("-display", "none".to_owned());
    arguments.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned));
    arguments
}

/// A character device that connects to a socket; QEMU wants commas doubled.
fn chardev(name: &str, socket: &Path) -> OsString {
    let path = socket.to_string_lossy().replace(',', ",,");
    format!("socket,id={name},path={path}").into()
}

/// QEMU's messages.
struct Messages {
    /// All of them, when QEMU has ended.
    text: JoinHandle<String>,
    /// Whether one of them says that KVM has given the machine up.
    kvm_failed: Arc<AtomicBool>,
}

/// Collects QEMU's messages.
fn gather(mut stderr: ChildStderr) -> Messages {
    let kvm_failed = Arc::new(AtomicBool::new(false));
    let failed = Arc::clone(&kvm_failed);
    let text = thread::spawn(move || {
        let mut text = Vec::new();
        let mut piece = [0; 4096];
        // After an error, the text read so far is used.
        while let Ok(length @ 1..) = stderr.read(&mut piece) {
            text.extend_from_slice(&piece[..length]);
            if gives_up(&String::from_utf8_lossy(&text)) {
                failed.store(true, Ordering::Relaxed);
            }
        }
        String::from_utf8_lossy(&text).trim().to_owned()
    });
    Messages { text, kvm_failed }
}

/// Whether QEMU says that KVM has given a running machine up. QEMU itself does not end then.
fn gives_up(messages: &str) -> bool {
    ["KVM internal error", "KVM: entry failed"]
        .iter()
        .any(|sign| messages.contains(sign))
}

/// The message with which QEMU refuses or fails because of the host's KVM, if it does.
pub fn of_kvm(messages: &str) -> Option<&str> {
    messages
        .lines()
        .find(|line| line.to_ascii_lowercase().contains("kvm"))
}

#[cfg(test)]
mod tests {
    use super::{gives_up, of_kvm};

    #[test]
    fn failures_of_kvm_are_known() {
        let stopped = "KVM internal error. Suberror: 1\nemulation failure\nRAX=0";
        let assertion = "qemu: error: failed to set MSR 0x48f to 0x7fffff00036dfb\n\
                         qemu: kvm.c:2777: kvm_buf_set_msrs: Assertion `ret == nmsrs' failed.";
        assert!(gives_up(stopped) && !gives_up(assertion));
        assert!(gives_up("KVM: entry failed, hardware error 0x80000021"));
        assert_eq!(of_kvm(stopped), Some("KVM internal error. Suberror: 1"));
        assert!(of_kvm(assertion).is_some_and(|line| line.contains("Assertion")));
        assert_eq!(of_kvm("cannot set up guest memory"), None);
    }
}
