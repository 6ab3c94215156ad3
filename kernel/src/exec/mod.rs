//! Programs: finding one, loading it into an address space, beginning to run it.
//!
//! `first` starts the first process, `execve` replaces the program of the caller's; both end in
//! [`Plan::load`], which runs in the new address space, because loading faults pages in.

pub mod elf;
pub mod execve;
pub mod first;
mod load;
pub mod run_file;
pub mod script;
pub mod stack;
pub mod strings;

use alloc::string::String;

use crate::arch::TrapFrame;
use crate::errno::{ENOMEM, Errno};
use crate::files::{image, place};
use crate::memory::Layout;
use crate::process;
use crate::sched::thread::Thread;
use crate::shared::Shared;
use elf::Object;
use strings::Strings;

/// The stack's limit.
pub const STACK_LIMIT: u64 = Layout::LINUX_X86_64.stack_limit;

pub use crate::files::image::Image;

/// What a process runs.
pub struct Program {
    /// The file's real path.
    pub path: String,
    pub arguments: Strings,
    pub environment: Strings,
    /// From the first to the last byte that may be executed.
    pub code: (u64, u64),
}

impl Program {
    /// The last part of its path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// A program that is going to run.
pub struct Plan {
    /// The program's file, or the interpreter's.
    pub path: String,
    /// What the thread will be called: the last part of the path that was asked for.
    pub name: [u8; 16],
    pub arguments: Strings,
    pub environment: Strings,
    image: Image,
    object: Object,
    /// The program that loads this one.
    interpreter: Option<(Image, Object)>,
}

impl Plan {
    /// Looks through a program, and through its interpreter.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn new(
        path: String,
        name: [u8; 16],
        (arguments, environment): (Strings, Strings),
        image: Image,
    ) -> Result<Self, elf::Error> {
        let object = Object::of_program(&image)?;
        let interpreter = match &object.interpreter {
            None => None,
            Some(path) => {
                let image = image::find(path).map_err(elf::Error::Interpreter)?;
                let object = Object::of_interpreter(&image)?;
                Some((image, object))
            }
        };
        Ok(Self {
            path,
            name,
            arguments,
            environment,
            image,
            object,
            interpreter,
        })
    }

    /// Loads the program into the current process's address space, which is empty, and makes the
    /// current thread, the only one, begin it.
    ///
    /// # Errors
    /// What is wrong with it, or no memory.
    pub fn load(self, thread: &Thread) -> Result<(), elf::Error> {
        let loaded = load::load((&self.image, &self.object), self.interpreter.as_ref())?;
        let sp = stack::set_up(&self, &loaded)?;
        thread.name.set(self.name);
        let program = Program {
            path: place::real_path(&self.path).unwrap_or(self.path),
            arguments: self.arguments,
            environment: self.environment,
            code: loaded.code,
        };
        let program = Shared::new(program).map_err(|_| elf::Error::NoMemory)?;
        let process = process::current();
        process.set_program(program);
        process::space().set_running(self.image.into_running());
        let no_new = thread.no_new_privileges.get();
        let mut limits = process.limits.lock();
        limits.capabilities = limits.capabilities.of_program(no_new);
        process::space().set_limits(&limits.memory());
        drop(limits);
        // SAFETY: The thread runs, so its frame is its own.
        unsafe { *thread.frame() = TrapFrame::entry(loaded.start, sp) };
        Ok(())
    }
}

/// What a thread that runs this path is called.
pub fn short_name(path: &str) -> [u8; 16] {
    let name = path.rsplit('/').next().unwrap_or_default().as_bytes();
    let mut short = [0; 16];
    let length = name.len().min(15);
    short[..length].copy_from_slice(&name[..length]);
    short
}

/// A string on the heap.
///
/// # Errors
/// `ENOMEM`.
pub fn string(parts: &[&str]) -> Result<String, Errno> {
    let mut string = String::new();
    let length = parts.iter().map(|part| part.len()).sum();
    string.try_reserve_exact(length).map_err(|_| ENOMEM)?;
    parts.iter().for_each(|part| string.push_str(part));
    Ok(string)
}
