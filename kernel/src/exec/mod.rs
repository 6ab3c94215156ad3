//! Finds a program, loads it into an address space and starts it.
//!
//! `first` starts the first process; `execve` replaces the caller's program. Both end in [`Plan::load`],
//! which runs in the new address space because loading faults pages in.

pub mod elf;
pub mod execve;
pub mod first;
mod load;
pub mod run_file;
pub mod script;
pub mod stack;
pub mod strings;
mod trampoline;

use alloc::string::String;

use crate::arch::TrapFrame;
use crate::arch::layout::USUAL;
use crate::errno::{ENOMEM, Errno};
use crate::files::{image, place};
use crate::process;
use crate::sched::thread::Thread;
use crate::shared::Shared;
use elf::Object;
use strings::Strings;

/// The stack limit.
pub const STACK_LIMIT: u64 = USUAL.stack_limit;

pub use crate::files::image::Image;

/// The program that a process runs.
pub struct Program {
    /// The file's real path.
    pub path: String,
    pub arguments: Strings,
    pub environment: Strings,
    /// The range of executable bytes: start and end.
    pub code: (u64, u64),
}

impl Program {
    /// The last component of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// A program that was checked and is ready to load.
pub struct Plan {
    /// The path of the program's file, or of the script's interpreter.
    pub path: String,
    /// The thread's name: the last component of the requested path.
    pub name: [u8; 16],
    pub arguments: Strings,
    pub environment: Strings,
    image: Image,
    object: Object,
    /// The interpreter (`PT_INTERP`) that loads this program.
    interpreter: Option<(Image, Object)>,
}

impl Plan {
    /// Checks a program and its interpreter.
    ///
    /// # Errors
    /// The reason why either cannot run.
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

    /// Loads the program into the current process's empty address space, and starts the current thread, the
    /// only one, at its entry.
    ///
    /// # Errors
    /// The reason why it cannot run, or no memory.
    pub fn load(self, thread: &Thread) -> Result<(), elf::Error> {
        let loaded = load::load((&self.image, &self.object), self.interpreter.as_ref())?;
        let sp = stack::set_up(&self, &loaded)?;
        trampoline::map()?;
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

/// The name of a thread that runs this path.
pub fn short_name(path: &str) -> [u8; 16] {
    let name = path.rsplit('/').next().unwrap_or_default().as_bytes();
    let mut short = [0; 16];
    let length = name.len().min(15);
    short[..length].copy_from_slice(&name[..length]);
    short
}

/// Concatenates the parts into a string on the heap.
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
