//! Builds the initramfs that the kernel finds at its start: the program, how to run it, and its files.
//!
//! `/.faultless/run` names the program. It holds fields `KEY=VALUE`, each ended by a NUL byte; only the order
//! of the arguments matters. `kernel/README.md` describes them. Every file is packed under its real path, so
//! no file has two paths.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::Result;

use faultless_trace::{Mask, WORDS};

use super::Module;
use super::cpio::{Archive, FILE, FOLDER, OPEN_FOLDER, PROGRAM};
use super::input::StandardInput;
use super::load::{LIBRARY_PATH, Load, PATH};
use super::packing::Packing;
use crate::arch::Arch;
use crate::machine::Request;

/// Milliseconds between two verifications by the kernel.
const VERIFY_EVERY: u32 = 100;

/// The folder of the modules that Linux's first process loads.
const MODULES: &str = ".faultless/modules";

/// The archive for `request`.
pub fn build(
    request: &Request,
    record: Mask,
    load: &Load,
    input: &StandardInput,
) -> Result<Vec<u8>> {
    let mut packing = Packing::new(request.memory);
    packing.add(Path::new("."), FOLDER, b"")?;
    packing.add(Path::new(".faultless"), FOLDER, b"")?;
    let run = fields(request, record, load, input);
    packing.add(Path::new(".faultless/run"), FILE, &run)?;
    if let StandardInput::Content(content) = input {
        packing.add(Path::new(".faultless/stdin"), FILE, content)?;
    }
    if let Some(content) = &load.content {
        packing.add_parents(&load.tree, &load.program)?;
        packing.add(&load.program, PROGRAM, content)?;
    }
    for added in &load.added {
        packing.add_parents(&load.tree, &added.guest)?;
        packing.add_from_host(&added.host, &added.guest)?;
    }
    if let Some(root) = &request.files.root {
        packing.add_from_host(root, Path::new(""))?;
    }
    for path in &load.needed {
        packing.add_from_tree(&load.tree, path)?;
    }
    Ok(packing.finish())
}

/// An archive to append to the first one: what Linux needs to run the program. The names of the modules sort in
/// their order.
pub fn of_linux(init: &[u8], modules: &[Module]) -> Vec<u8> {
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys"] {
        archive.add(folder.as_bytes(), FOLDER, b"");
    }
    archive.add(b"tmp", OPEN_FOLDER, b"");
    archive.add(b"init", PROGRAM, init);
    if !modules.is_empty() {
        archive.add(MODULES.as_bytes(), FOLDER, b"");
    }
    for (number, module) in modules.iter().enumerate() {
        let name = format!("{MODULES}/{number:02}-{}", module.file);
        archive.add(name.as_bytes(), FILE, &module.content);
    }
    archive.finish()
}

fn fields(request: &Request, record: Mask, load: &Load, input: &StandardInput) -> Vec<u8> {
    let mut fields = Vec::new();
    let mut field = |key: &str, value: &[u8]| {
        for part in [key.as_bytes(), b"=", value, b"\0"] {
            fields.extend_from_slice(part);
        }
    };
    let program = load.program.as_os_str();
    field("exec", &[b"/", program.as_bytes()].concat());
    for argument in &request.program {
        field("argv", argument.as_bytes());
    }
    for variable in environment(request, load) {
        field("env", variable.as_bytes());
    }
    field("policy", request.policy.name().as_bytes());
    field("cpus", request.cpus.to_string().as_bytes());
    // This machine has a serial port even where no channel is behind it.
    if request.arch == Arch::AArch64 && !matches!(input, StandardInput::Pieces) {
        field("stdin", b"0");
    }
    if let Some(swap) = request.swap {
        field("swap", swap.field().as_bytes());
    }
    field("huge", request.huge.field().as_bytes());
    if !request.atomic_rmw {
        field("atomic-rmw", b"0");
    }
    if let Some(kvm) = &request.kvm {
        field("kvm", kvm.field().as_bytes());
        field("kvm-linux", kvm.of_linux().as_bytes());
    }
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

/// The environment that the program starts with. It does not depend on the host's: only the user's variables and
/// the loader's `LD_LIBRARY_PATH` change it.
fn environment(request: &Request, load: &Load) -> Vec<OsString> {
    let mut variables: Vec<(&str, OsString)> =
        vec![("PATH", PATH.join(":").into()), ("HOME", "/".into())];
    let mut set = |name, value| {
        variables.retain(|&(other, _)| other != name);
        variables.push((name, value));
    };
    for given in &request.files.variables {
        set(&given.name, given.value.clone());
    }
    if let Some(folders) = &load.library_path {
        set(LIBRARY_PATH, folders.clone());
    }
    let join = |(name, value): (&str, OsString)| {
        let mut variable = OsString::from(format!("{name}="));
        variable.push(value);
        variable
    };
    variables.into_iter().map(join).collect()
}

/// Events that each CPU's ring should hold: up to 2 MiB, and all rings together at most a sixteenth of the memory.
fn events(request: &Request) -> u64 {
    let bytes = request.memory.0 / 16 / u64::from(request.cpus.max(1));
    bytes.min(2 << 20) / (WORDS as u64 * 8)
}

#[cfg(test)]
mod tests {
    use super::{Arch, Load, Mask, Request, StandardInput, fields};
    use crate::machine::{Accel, Files, Policy};
    use crate::show::Sink;
    use crate::size::Size;
    use crate::tree::Tree;
    use std::collections::BTreeSet;

    #[test]
    fn tells_the_kernel_what_to_run() {
        let mut request = Request {
            arch: Arch::X86_64,
            program: vec!["./ebizzy".into(), "-S".into(), "".into()],
            policy: Policy::VmaLock,
            cpus: 4,
            memory: Size::mebi(64),
            swap: Some("1M".parse().unwrap()),
            huge: crate::huge::Huge::Never,
            kvm: Some("tdp_mmu=N".parse().unwrap()),
            atomic_rmw: true,
            accel: Accel::Tcg,
            timeout: None,
            list_unknown: false,
            verify: false,
            count_instructions: false,
            stdout: Sink::Nowhere,
            files: Files {
                variables: vec!["HOME=/tmp".parse().unwrap()],
                ..Files::default()
            },
        };
        let load = Load {
            program: "bin/ebizzy".into(),
            content: None,
            tree: Tree::default(),
            added: Vec::new(),
            needed: BTreeSet::new(),
            library_path: Some("/a:/b".into()),
            warnings: Vec::new(),
        };
        let text = |request: &Request, record, input| {
            let fields = fields(request, record, &load, input);
            String::from_utf8(fields).unwrap()
        };
        let nothing = StandardInput::Nothing;
        let plain = text(&request, Mask::NONE, &nothing);
        let lines: Vec<_> = plain.split_terminator('\0').collect();
        assert_eq!(
            lines[..4],
            ["exec=/bin/ebizzy", "argv=./ebizzy", "argv=-S", "argv="]
        );
        assert!(lines.contains(&"policy=vma-lock") && lines.contains(&"cpus=4"));
        assert!(lines.contains(&"env=PATH=/bin:/usr/bin"), "{plain}");
        assert!(lines.contains(&"env=LD_LIBRARY_PATH=/a:/b"), "{plain}");
        let homes: Vec<_> = lines.iter().filter(|line| line.contains("HOME")).collect();
        assert_eq!(homes, [&"env=HOME=/tmp"]);
        assert!(lines.contains(&"swap=zram:1048576"), "{plain}");
        assert!(lines.contains(&"kvm=tdp_mmu=N"), "{plain}");
        assert!(!plain.contains("record"));
        let recorded = text(&request, Mask::LATENCIES, &nothing);
        assert!(
            recorded.contains("\0record=1\0record-events=32768\0"),
            "{recorded}"
        );
        assert!(!plain.contains("stdin="));
        request.arch = Arch::AArch64;
        assert!(text(&request, Mask::NONE, &nothing).contains("\0stdin=0\0"));
        assert!(!text(&request, Mask::NONE, &StandardInput::Pieces).contains("stdin="));
    }
}
