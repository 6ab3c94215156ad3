//! Starting the program: its address space, its image, its stack, its first thread.

pub mod elf;
pub mod run_file;
pub mod stack;

use alloc::string::String;
use alloc::vec::Vec;

use crate::arch::TrapFrame;
use crate::files::initramfs;
use crate::memory::{self, Layout};
use crate::report::{self, refuse};
use crate::sched::thread::Thread;
use crate::sync::Once;
use crate::{process, sched};
use run_file::RunFile;

/// The stack's limit.
pub const STACK_LIMIT: u64 = Layout::LINUX_X86_64.stack_limit;

/// Where a program without a path is.
const BIN: &str = "/bin/";

/// What is run.
pub struct Program {
    pub run: RunFile,
    pub path: String,
    pub image: &'static [u8],
}

static PROGRAM: Once<Program> = Once::new();

static PARTS: Once<elf::Parts> = Once::new();

/// Where the program's file is in memory; nowhere before it is loaded.
pub fn parts() -> &'static [elf::Part] {
    PARTS.try_get().map_or(&[], |parts| parts)
}

/// The program that runs.
pub fn program() -> &'static Program {
    PROGRAM.get()
}

/// Starts the program; refuses with a line if it cannot be.
pub fn begin(run: RunFile) {
    let mut path = String::new();
    if path.try_reserve(run.program.len() + BIN.len()).is_err() {
        refuse(format_args!(
            "out of memory: no room for the program's name"
        ));
    }
    if !run.program.contains('/') {
        path.push_str(BIN);
    }
    path.push_str(run.program);
    let Some(image) = initramfs::find(path.trim_start_matches('/')) else {
        refuse(format_args!("{path}: not in the initramfs"));
    };
    let no_space = || refuse(format_args!("out of memory: no room for an address space"));
    let mut room = Vec::new();
    if room.try_reserve_exact(1).is_err() {
        no_space();
    }
    match memory::new_space(run.policy, Layout::LINUX_X86_64) {
        Ok(space) => room.push(space),
        Err(_) => no_space(),
    }
    process::set_space(&mut room.leak()[0]);
    crate::files::descriptors::open_standard();
    PROGRAM.set(Program { run, path, image });
    match Thread::new(process::new_id(), true, load, &TrapFrame::default()) {
        Ok(thread) => {
            let _ = process::add(thread);
            sched::enqueue(thread);
        }
        Err(_) => refuse(format_args!("out of memory: no room for the first thread")),
    }
}

/// The first thread's first act, in its own address space, because loading faults pages in.
fn load(thread: &'static Thread) {
    let program = program();
    let path = &program.path;
    let name = program
        .path
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .as_bytes();
    let mut short = [0; 16];
    let length = name.len().min(15);
    short[..length].copy_from_slice(&name[..length]);
    thread.name.set(short);
    let loaded = match elf::load(program.image) {
        Ok(loaded) => loaded,
        Err(error) => refuse(format_args!("{path}: {error}")),
    };
    let sp = match stack::set_up(program, &loaded) {
        Ok(sp) => sp,
        Err(error) => refuse(format_args!("{path}: {error}")),
    };
    PARTS.set(loaded.parts);
    // SAFETY: The thread runs, so its frame is its own.
    unsafe { *thread.frame() = TrapFrame::entry(loaded.entry, sp) };
    report::program_begins();
}
