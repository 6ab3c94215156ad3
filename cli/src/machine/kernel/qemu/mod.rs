//! Starts the emulator, and waits for it. What differs between architectures is in a file for each.

mod aarch64;
mod x86_64;

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
use crate::arch::Arch;
use crate::interrupt;
use crate::machine::{Accel, Request};

/// How often the wait looks whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// How long a stopped machine may take to report its counters.
const PATIENCE: Duration = Duration::from_secs(1);

/// An emulator of one architecture, and its machine.
struct Emulator {
    /// Its program.
    program: &'static str,
    /// Debian's package of it.
    package: &'static str,
    /// The kind of machine, with its options.
    machine: &'static str,
    /// The command of QEMU's monitor on which our kernel reports its counters and turns the machine off.
    report: &'static str,
}

impl Emulator {
    const fn of(arch: Arch) -> Self {
        match arch {
            Arch::X86_64 => x86_64::EMULATOR,
            Arch::AArch64 => aarch64::EMULATOR,
        }
    }
}

/// The sockets of what the guest writes, and of what it reads.
pub struct Channels<'a> {
    /// What another kernel's first process passes on of the program's stdout; ours only when it dies.
    pub stdout: &'a Path,
    /// The same of stderr.
    pub stderr: &'a Path,
    /// The kernel's report; see `control`.
    pub control: &'a Path,
    /// The program's output and messages of our kernel, in their order; see `pieces`.
    pub pieces: &'a Path,
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
    emulator: Emulator,
    messages: Messages,
}

/// Checks that QEMU can be used; the error is the reason if not.
pub fn check(arch: Arch) -> Result<()> {
    if env::var_os("FAULTLESS_NO_QEMU").is_some_and(|value| !value.is_empty() && value != "0") {
        bail!("QEMU cannot be had: FAULTLESS_NO_QEMU is set");
    }
    let Emulator {
        program, package, ..
    } = Emulator::of(arch);
    if !is_in_path(program) {
        bail!("QEMU ({program}) is missing: install Debian's {package}, or run this with ./x");
    }
    Ok(())
}

/// Refuses an accelerator that this host does not have.
pub fn check_accel(accel: Accel, arch: Arch) -> Result<()> {
    if accel == Accel::Kvm {
        if Arch::of_host() != Some(arch) {
            let (arch, host) = (arch.title(), env::consts::ARCH);
            bail!("--accel kvm: this host ({host}) does not execute {arch}");
        }
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
        channels: &Channels<'_>,
        options: &[OsString],
    ) -> Result<Self> {
        let emulator = Emulator::of(request.arch);
        let mut command = command(emulator.program);
        command.args(machine(request, memory)).args(options);
        command
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(initramfs);
        command.args(match request.arch {
            Arch::X86_64 => x86_64::devices(channels),
            Arch::AArch64 => aarch64::devices(channels),
        });
        command.arg("-chardev").arg({
            let mut monitor = chardev("monitor", channels.monitor);
            monitor.push(",server=on,wait=off");
            monitor
        });
        command.args(["-mon", "chardev=monitor,mode=readline"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        // Ctrl-C reaches only this command, which then stops the machine in order.
        command.process_group(0);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {}", emulator.program))?;
        let stderr = child.stderr.take().context("QEMU has no stderr")?;
        Ok(Qemu {
            child,
            monitor: channels.monitor.to_path_buf(),
            emulator,
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

    /// Gives the kernel a moment to report its counters and to turn the machine off. After that moment the machine
    /// is stopped without a report.
    fn ask_for_a_report(&mut self) {
        let line = format!("{}\n", self.emulator.report);
        let asked = UnixStream::connect(&self.monitor)
            .and_then(|mut monitor| monitor.write_all(line.as_bytes()).map(|()| monitor));
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
fn command(program: &str) -> Command {
    if !is_in_path("setpriv") {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}

fn is_in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The options of a disk of the guest, in the file `path`.
pub fn disk(path: &Path, arch: Arch) -> Vec<OsString> {
    let path = path.to_string_lossy().replace(',', ",,");
    let place = match arch {
        Arch::X86_64 => x86_64::DISK_PLACE,
        Arch::AArch64 => aarch64::DISK_PLACE,
    };
    // Nothing has to survive the machine.
    let drive = format!("file={path},if=none,id=swap,format=raw,cache=unsafe");
    let device = format!("virtio-blk-pci,drive=swap,disable-legacy=on{place}");
    ["-drive", &drive, "-device", &device]
        .map(OsString::from)
        .to_vec()
}

/// QEMU's options for the machine, without those for its channels.
pub fn machine(request: &Request, memory: Option<&GuestMemory>) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    let size = format!("{}k", request.memory.0 >> 10);
    let machine = Emulator::of(request.arch).machine;
    match memory {
        None => option("-machine", machine.to_owned()),
        Some(memory) => {
            option("-machine", format!("{machine},memory-backend=memory"));
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
