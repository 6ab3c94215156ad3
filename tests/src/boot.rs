//! The kernel in QEMU, started as `kernel/README.md` describes and not by `faultless`, the checks of
//! which would keep bad programs and bad archives away from the kernel. `FAULTLESS_ARCH=aarch64` boots that kernel.

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::arch::{Arch, split};
use crate::linux;
pub use crate::programs::compile;
use crate::programs::{compile_dynamic, compile_for_the_host, root, scratch};

/// Longer than any run takes on a busy host.
const PATIENCE: Duration = Duration::from_secs(180);

/// A machine to boot.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// CPUs.
    pub cpus: u32,
    /// MiB of memory.
    pub memory: u32,
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// The report's fields.
    pub exit: Option<i32>,
    /// The report's fields.
    pub signal: Option<i32>,
    /// The report's fields; the quotes are still around it.
    pub error: Option<String>,
    /// The number of system calls.
    pub system_calls: Option<u64>,
    /// The number of verifications, and the highest number of address spaces in one of them.
    pub verified: Option<(u64, u64)>,
    /// The number of allocations on the kernel heap that failed on purpose.
    pub heap_failures: Option<u64>,
    /// What the program printed.
    pub stdout: String,
    /// The standard error of the program, and the kernel's messages.
    pub stderr: String,
}

impl Ended {
    /// Returns `self`, and asserts that the kernel has verified itself unless it reports an error.
    fn verified(self) -> Self {
        if self.error.is_none() {
            self.assert_verified();
        }
        self
    }

    /// Asserts that the kernel has verified itself: while the last process ran, and after it.
    pub fn assert_verified(&self) {
        let verified = self.verified.expect("it was asked for");
        assert!(verified.0 >= 2 && verified.1 >= 1, "{self:?}");
    }
}

/// An archive in cpio's `newc` format.
pub fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, content) in files.iter().chain([&("TRAILER!!!", &[][..])]) {
        let fields = [
            0,
            0o100_755,
            0,
            0,
            1,
            0,
            content.len(),
            0,
            0,
            0,
            0,
            name.len() + 1,
            0,
        ];
        bytes.extend_from_slice(b"070701");
        for field in fields {
            bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// Makes the kernel verify itself at the end, and periodically until then.
pub const VERIFIED: &str = "verify=1\0verify-every=50\0";

/// An archive with a program, and the file that requests its run, verified.
pub fn archive_of(program: &[u8], arguments: &[&str]) -> Vec<u8> {
    archive_with(program, arguments, &[])
}

/// The same with additional files.
pub fn archive_with(program: &[u8], arguments: &[&str], others: &[(&str, &[u8])]) -> Vec<u8> {
    let mut run = format!("{VERIFIED}exec=/bin/test\0argv=test\0").into_bytes();
    for argument in arguments {
        run.extend_from_slice(format!("argv={argument}\0").as_bytes());
    }
    let mut files = vec![("bin/test", program), (".faultless/run", &run[..])];
    files.extend(others);
    archive(&files)
}

impl Machine {
    /// A machine with some memory and `cpus` CPUs.
    pub fn with_cpus(cpus: u32) -> Self {
        Self { cpus, memory: 64 }
    }

    /// Boots an archive, and waits for the end.
    pub fn boot(self, archive: &[u8]) -> Ended {
        self.boot_with(archive, &[], &[])
    }

    /// The same with files in QEMU's folder, and further options.
    pub fn boot_with(self, archive: &[u8], files: &[(&str, &[u8])], options: &[&str]) -> Ended {
        let folder = scratch("boot");
        for (name, content) in files.iter().chain([&("image", archive)]) {
            fs::write(folder.join(name), content).expect("a file in our folder");
        }
        let arch = Arch::of_machines();
        let mut qemu = arch.emulator();
        qemu.current_dir(&folder)
            .args(["-display", "none"])
            .args(["-nodefaults", "-no-user-config", "-no-reboot"])
            .args(["-smp", &self.cpus.to_string()])
            .args(["-m", &format!("{}M", self.memory)])
            .args(["-initrd", "image", "-kernel"])
            .arg(arch.kernel());
        qemu.args(["-accel", "tcg,thread=multi"]).args(options);
        qemu.stdin(Stdio::null());
        let mut child = qemu.spawn().expect("QEMU starts");
        let begun = Instant::now();
        while child.try_wait().expect("QEMU can be waited for").is_none() {
            if begun.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                let said = fs::read_to_string(folder.join("err")).unwrap_or_default();
                panic!("the run does not end; it said: {said}");
            }
            thread::sleep(Duration::from_millis(5));
        }
        let read = |name: &str| {
            let bytes = fs::read(folder.join(name)).expect("QEMU makes the file");
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (control, mut stdout, mut stderr) = (read("control"), read("out"), read("err"));
        // Before what the kernel says when it dies.
        if let Ok(pieces) = fs::read(folder.join("pieces")) {
            let [out, err] = split(&pieces);
            (stdout, stderr) = (out + &stdout, err + &stderr);
        }
        fs::remove_dir_all(&folder).expect("the folder is ours");
        assert!(
            !stderr.contains("panic"),
            "the kernel panicked: {stderr}{control}"
        );
        let field = |key: &str| {
            let from = control.rfind(&format!("\"{key}\":"))? + key.len() + 3;
            let text = control[from..].trim_end();
            // `error` is the last field, the others are numbers.
            let end = if key == "error" {
                text.len() - 1
            } else {
                text.find([',', '}'])?
            };
            (&text[..end] != "null").then(|| text[..end].to_owned())
        };
        assert!(control.ends_with("}\n"), "no report: {control:?} {stderr}");
        let number = |key| field(key).and_then(|value| value.parse().ok());
        Ended {
            exit: field("exit").and_then(|value| value.parse().ok()),
            signal: field("signal").and_then(|value| value.parse().ok()),
            error: field("error"),
            system_calls: number("syscalls"),
            heap_failures: number("heap_failures"),
            verified: number("moments").zip(number("spaces")),
            stdout,
            stderr,
        }
    }

    /// Boots with a program. The kernel verifies itself, and a violation becomes the run's error.
    pub fn run(self, program: &[u8], arguments: &[&str]) -> Ended {
        self.boot(&archive_of(program, arguments)).verified()
    }
}

/// How a program of `tests/programs` ends on the host: status and signal.
pub fn on_the_host(name: &str, arguments: &[&str]) -> (Option<i32>, Option<i32>) {
    linux::on_the_host(&compile_for_the_host(name), arguments)
}

/// Asserts that a program of `tests/programs` prints the same lines on a machine as on the
/// host.
pub fn assert_prints_as_on_linux(name: &str, machine: Machine) {
    let linux = linux::printed_on_the_host(&compile_for_the_host(name));
    assert_prints(&archive_of(&compile(name), &[]), &linux, machine);
}

/// Asserts that a program of `tests/programs` prints the same on a machine as on Linux 6.12, if the host's output
/// may differ: `NAME.linux-6.12`, the output of `./x compare --linux 6.12 --output`.
pub fn assert_prints_as_on_linux_6_12(name: &str, machine: Machine) {
    let record = root().join(format!("tests/programs/{name}.linux-6.12"));
    let linux = fs::read_to_string(record).expect("a recorded output");
    assert_prints(&archive_of(&compile(name), &[]), &linux, machine);
}

/// The same as [`assert_prints_as_on_linux`] for a program that is dynamically linked.
pub fn assert_prints_as_on_linux_when_dynamic(name: &str, machine: Machine) {
    let arch = Arch::of_machines();
    let program = compile_dynamic(name, arch);
    let linux = linux::printed_on_the_host(&compile_dynamic(name, Arch::X86_64));
    let library = fs::read(arch.library()).expect("the musl package has it");
    let others = [(&arch.interpreter()[1..], &library[..])];
    assert_prints(&archive_with(&program, &[], &others), &linux, machine);
}

fn assert_prints(archive: &[u8], linux: &str, machine: Machine) {
    let ended = machine.boot(archive).verified();
    assert_eq!((ended.exit, &ended.error), (Some(0), &None), "{ended:?}");
    for (here, there) in ended.stdout.lines().zip(linux.lines()) {
        assert_eq!(here, there, "the kernel's line, and Linux's");
    }
    assert_eq!(ended.stdout, linux);
}
