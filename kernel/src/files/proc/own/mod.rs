//! The entries of a process's directory.

mod listing;
mod maps;
pub mod memory;
mod smaps;
mod status;

use super::processes;
use super::text::Text;
use crate::errno::{EINVAL, ENOENT, Errno};
use crate::files::description::{Description, Object};
use crate::files::directory::{Name, copy_name};
use crate::files::place;
pub use listing::Listing;
pub use memory::MemoryFile;

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Own {
    Auxiliary,
    ClearRefs,
    CommandLine,
    Name,
    Directory,
    Environment,
    Program,
    Descriptors,
    Limits,
    Maps,
    Memory,
    Mounts,
    PageMap,
    Root,
    Sizes,
    SizesTogether,
    Stat,
    StatMemory,
    Status,
    Tasks,
}

impl Own {
    /// All entries, in the order of their names.
    pub const ALL: &'static [Self] = &[
        Self::Auxiliary,
        Self::ClearRefs,
        Self::CommandLine,
        Self::Name,
        Self::Directory,
        Self::Environment,
        Self::Program,
        Self::Descriptors,
        Self::Limits,
        Self::Maps,
        Self::Memory,
        Self::Mounts,
        Self::PageMap,
        Self::Root,
        Self::Sizes,
        Self::SizesTogether,
        Self::Stat,
        Self::StatMemory,
        Self::Status,
        Self::Tasks,
    ];

    /// The entries of a thread's directory.
    pub const OF_THREAD: &'static [Self] = Self::ALL.split_at(Self::ALL.len() - 1).0;

    pub fn name(self) -> &'static str {
        match self {
            Self::Auxiliary => "auxv",
            Self::ClearRefs => "clear_refs",
            Self::CommandLine => "cmdline",
            Self::Name => "comm",
            Self::Directory => "cwd",
            Self::Environment => "environ",
            Self::Program => "exe",
            Self::Descriptors => "fd",
            Self::Limits => "limits",
            Self::Maps => "maps",
            Self::Memory => "mem",
            Self::Mounts => "mounts",
            Self::PageMap => "pagemap",
            Self::Root => "root",
            Self::Sizes => "smaps",
            Self::SizesTogether => "smaps_rollup",
            Self::Stat => "stat",
            Self::StatMemory => "statm",
            Self::Status => "status",
            Self::Tasks => "task",
        }
    }

    pub fn find(name: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.iter();
        all.find(|own| own.name().as_bytes() == name).copied()
    }

    pub fn is_directory(self) -> bool {
        matches!(self, Self::Descriptors | Self::Tasks)
    }

    pub fn is_link(self) -> bool {
        matches!(self, Self::Directory | Self::Program | Self::Root)
    }

    /// The permissions of an entry that is neither a directory nor a link.
    pub fn permissions(self) -> u32 {
        match self {
            Self::ClearRefs => 0o200,
            Self::Memory => 0o600,
            Self::PageMap => 0o400,
            _ => 0o444,
        }
    }

    /// The target of a link.
    pub fn link(self, process: u32) -> Result<Name, Errno> {
        let process = processes::find(process).map_err(|_| ENOENT)?;
        match self {
            Self::Directory => place::path_of(&process.place.directory()),
            Self::Program => copy_name(process.program().path.as_bytes()),
            _ => copy_name(b"/"),
        }
    }

    pub fn write(self, number: u32, text: &mut Text) -> Result<(), Errno> {
        // These also work for a process that has ended.
        match self {
            Self::Name => return text.line(format_args!("{}", status::printable(number))),
            Self::Stat => return status::stat(number, text),
            Self::Status => return status::status(number, text),
            _ => {}
        }
        let process = processes::find(number)?;
        match self {
            Self::Auxiliary => Ok(()),
            Self::CommandLine => text.bytes(process.program().arguments.bytes()),
            Self::Environment => text.bytes(process.program().environment.bytes()),
            Self::Limits => status::limits(&process, text),
            Self::SizesTogether => smaps::rollup(&process, text),
            Self::Mounts => text.add(format_args!(
                "tmpfs / tmpfs rw 0 0\nproc /proc proc ro 0 0\n"
            )),
            Self::StatMemory => status::statm(&process, text),
            _ => Err(EINVAL),
        }
    }
}

/// The target of a descriptor's link.
pub fn descriptor_link(process: u32, number: u32) -> Result<Name, Errno> {
    let process = processes::find(process).map_err(|_| ENOENT)?;
    let description = process.descriptors.get().get(u64::from(number));
    let description = description.map_err(|_| ENOENT)?;
    let mut text = Text::new();
    let number = description.stat()?.number;
    match &description.object {
        Object::Stream(_) | Object::Pipe(_) => text.add(format_args!("pipe:[{number}]"))?,
        Object::Event(_) => text.add(format_args!("anon_inode:[eventfd]"))?,
        Object::Faults(_) => text.add(format_args!("anon_inode:[userfaultfd]"))?,
        Object::Guest(handle) => text.add(format_args!("anon_inode:{handle}"))?,
        Object::Epoll(_) => text.add(format_args!("anon_inode:[eventpoll]"))?,
        Object::Process(_) => text.add(format_args!("anon_inode:[pidfd]"))?,
        Object::Directory(node) => return place::path_of(node),
        _ => return opened_path(&description),
    }
    Ok(text.into_bytes())
}

/// The path by which a description was opened, marked if it no longer leads there.
fn opened_path(description: &Description) -> Result<Name, Errno> {
    let origin = description.origin().ok_or(ENOENT)?;
    let mut text = Text::new();
    origin.write(&mut text, |there| {
        description.node().is_some_and(|node| node.is(there))
    })?;
    Ok(text.into_bytes())
}
