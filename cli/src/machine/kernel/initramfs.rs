//! What the kernel finds in memory when it starts: the program, how to run it, and its files.
//!
//! `/bin/NAME` is the program; `/.faultless/run` holds fields `KEY=VALUE`, each ended by a NUL
//! byte, in any order but that of the arguments. `kernel/README.md` describes them.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

use faultless_trace::{Mask, WORDS};

use super::cpio::{Archive, FILE, FOLDER, PROGRAM};
use super::input::StandardInput;
use super::packing::Packing;
use crate::machine::Request;
use crate::program::Program;

/// The environment that every program starts with, whatever the host's is.
const ENVIRONMENT: [&str; 2] = ["PATH=/bin:/usr/bin", "HOME=/"];

/// Milliseconds between two moments at which the kernel verifies itself.
const VERIFY_EVERY: u32 = 100;

/// The archive for `request`, whose program is `content`.
pub fn build(
    request: &Request,
    record: Mask,
    program: &Program,
    content: &[u8],
    input: &StandardInput,
) -> Result<Vec<u8>> {
    let path = program_path(program);
    let mut packing = Packing::new(request.memory);
    packing.add(Path::new("."), FOLDER, b"")?;
    packing.add(Path::new(".faultless"), FOLDER, b"")?;
    let run = fields(request, record, &path);
    packing.add(Path::new(".faultless/run"), FILE, &run)?;
    if let StandardInput::Content(content) = input {
        packing.add(Path::new(".faultless/stdin"), FILE, content)?;
    }
    if !matches!(program, Program::InRoot(_)) {
        packing.add(Path::new("bin"), FOLDER, b"")?;
        packing.add(&path, PROGRAM, content)?;
    }
    for added in &request.files.added {
        packing.add_from_host(&added.host, &added.guest)?;
    }
    if let Some(root) = &request.files.root {
        packing.add_from_host(root, Path::new(""))?;
    }
    Ok(packing.finish())
}

/// An archive to be put behind the first one: what Linux needs to run the program in that.
pub fn of_linux(init: &[u8]) -> Vec<u8> {
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "tmp"] {
        archive.add(folder.as_bytes(), FOLDER, b"");
    }
    archive.add(b"init", PROGRAM, init);
    archive.finish()
}

/// Where the program is, without a slash at the beginning.
fn program_path(program: &Program) -> PathBuf {
    match program {
        Program::InRoot(path) => path.clone(),
        program => Path::new("bin").join(program.name()),
    }
}

fn fields(request: &Request, record: Mask, path: &Path) -> Vec<u8> {
    let mut fields = Vec::new();
    let mut field = |key: &str, value: &[u8]| {
        for part in [key.as_bytes(), b"=", value, b"\0"] {
            fields.extend_from_slice(part);
        }
    };
    field("exec", &[b"/", path.as_os_str().as_bytes()].concat());
    for argument in &request.program {
        field("argv", argument.as_bytes());
    }
    for variable in ENVIRONMENT {
        field("env", variable.as_bytes());
    }
    field("policy", request.policy.name().as_bytes());
    field("cpus", request.cpus.to_string().as_bytes());
    if request.list_unknown {
        field("list-unknown", b"1");
    }
    if request.verify {
        field("verify", b"1");
        field("verify-every", VERIFY_EVERY.to_string().as_bytes());
    }
    if record != Mask::NONE {
        field("record", record.bits().to_string().as_bytes());
        field("record-events", events(request).to_string().as_bytes());
    }
    fields
}

/// Events that each CPU's ring should hold: up to 2 MiB of them, and of all together no more than
/// a sixteenth of the memory.
fn events(request: &Request) -> u64 {
    let bytes = request.memory.0 / 16 / u64::from(request.cpus.max(1));
    bytes.min(2 << 20) / (WORDS as u64 * 8)
}

#[cfg(test)]
mod tests {
    use super::{Mask, Path, Request, fields};
    use crate::machine::{Accel, Files, Policy};
    use crate::show::Sink;
    use crate::size::Size;

    #[test]
    fn tells_the_kernel_what_to_run() {
        let request = Request {
            program: vec!["./ebizzy".into(), "-S".into(), "".into()],
            policy: Policy::VmaLock,
            cpus: 4,
            memory: Size::mebi(64),
            accel: Accel::Tcg,
            timeout: None,
            list_unknown: false,
            verify: false,
            count_instructions: false,
            stdout: Sink::Nowhere,
            files: Files::default(),
        };
        let text = |record| {
            let fields = fields(&request, record, Path::new("bin/ebizzy"));
            String::from_utf8(fields).unwrap()
        };
        let plain = text(Mask::NONE);
        let lines: Vec<_> = plain.split_terminator('\0').collect();
        assert_eq!(
            lines[..4],
            ["exec=/bin/ebizzy", "argv=./ebizzy", "argv=-S", "argv="]
        );
        assert!(lines.contains(&"policy=vma-lock") && lines.contains(&"cpus=4"));
        assert!(!plain.contains("record"));
        let recorded = text(Mask::LATENCIES);
        assert!(
            recorded.contains("\0record=1\0record-events=32768\0"),
            "{recorded}"
        );
    }
}
