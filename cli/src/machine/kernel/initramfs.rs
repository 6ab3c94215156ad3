//! What the kernel finds in memory when it starts: the program, and how to run it.
//!
//! `/bin/NAME` is the program; `/.faultless/run` holds fields `KEY=VALUE`, each ended by a NUL
//! byte, in any order but that of the arguments. `kernel/README.md` describes them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::cpio::{Archive, FILE, FOLDER, PROGRAM};
use crate::machine::Request;

/// The environment that every program starts with, whatever the host's is.
const ENVIRONMENT: [&str; 2] = ["PATH=/bin", "HOME=/"];

/// The archive for `request`, whose program is `content` and is called `name`.
pub fn build(request: &Request, name: &OsStr, content: &[u8]) -> Vec<u8> {
    let path = [b"bin/", name.as_bytes()].concat();
    let mut archive = Archive::default();
    archive.add(b".", FOLDER, b"");
    archive.add(b"bin", FOLDER, b"");
    archive.add(&path, PROGRAM, content);
    archive.add(b".faultless", FOLDER, b"");
    archive.add(b".faultless/run", FILE, &fields(request, &path));
    archive.finish()
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

fn fields(request: &Request, path: &[u8]) -> Vec<u8> {
    let mut fields = Vec::new();
    let mut field = |key: &str, value: &[u8]| {
        for part in [key.as_bytes(), b"=", value, b"\0"] {
            fields.extend_from_slice(part);
        }
    };
    field("exec", &[b"/", path].concat());
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
    fields
}

#[cfg(test)]
mod tests {
    use super::{Request, fields};
    use crate::machine::{Accel, Policy};
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
            count_instructions: false,
            stdout: Sink::Nowhere,
        };
        let text = String::from_utf8(fields(&request, b"bin/ebizzy")).unwrap();
        let lines: Vec<_> = text.split_terminator('\0').collect();
        assert_eq!(
            lines[..4],
            ["exec=/bin/ebizzy", "argv=./ebizzy", "argv=-S", "argv="]
        );
        assert!(lines.contains(&"policy=vma-lock") && lines.contains(&"cpus=4"));
    }
}
