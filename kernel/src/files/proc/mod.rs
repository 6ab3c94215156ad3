//! `/proc`: entries with a text that is generated when it is read.
//!
//! An [`Entry`] is a value, not an object in memory: a name leads to it through the tables in `table`. Only
//! `processes` looks up processes.

mod own;
mod processes;
mod system;
mod table;
mod text;

use alloc::vec::Vec;

use super::directory::{Name, copy_name};
use super::node::{Node, PROC, Target};
use super::stat::Stat;
use crate::arch::time;
use crate::errno::{EINVAL, ENOENT, ENOTDIR, Errno};
pub use own::{Listing, MemoryFile, Own};
pub use system::System;
pub use table::Folder;
pub use text::Text;

use linux_raw_sys::general as linux;

/// What a path in `/proc` leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    Root,
    /// A directory with fixed content.
    Folder(Folder),
    /// A text about the system.
    System(System),
    /// A constant text.
    Fixed(&'static str),
    /// `self`, `thread-self` and `mounts`.
    Current(Current),
    /// A process's directory.
    Process(u32),
    /// An entry of that directory.
    Own(u32, Own),
    /// A descriptor of a process.
    Descriptor(u32, u32),
    /// A thread of a process: its directory shows the process's own entries.
    Thread(u32, u32),
}

/// The links to the calling process and thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Current {
    Process,
    Thread,
    Mounts,
}

/// An entry of a listing.
pub struct Listed {
    pub name: Name,
    pub entry: Entry,
}

fn number_of(name: &[u8]) -> Option<u32> {
    let text = core::str::from_utf8(name).ok()?;
    // "007" is no name of a process, nor is "+7".
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    if plain || text == "0" {
        text.parse().ok()
    } else {
        None
    }
}

fn decimal(number: u32) -> Result<Name, Errno> {
    let mut text = Text::new();
    text.add(format_args!("{number}"))?;
    Ok(text.into_bytes())
}

impl Entry {
    /// Whether it is a setting, which can be written.
    pub fn is_setting(self) -> bool {
        matches!(self, Self::System(system) if system.is_setting())
    }

    pub fn is_directory(self) -> bool {
        match self {
            Self::Root | Self::Folder(_) | Self::Process(_) | Self::Thread(..) => true,
            Self::Own(_, own) => own.is_directory(),
            _ => false,
        }
    }

    fn is_link(self) -> bool {
        match self {
            Self::Current(_) | Self::Descriptor(..) => true,
            Self::Own(_, own) => own.is_link(),
            _ => false,
        }
    }

    /// Looks up a name in this directory.
    pub fn lookup(self, name: &[u8]) -> Option<Self> {
        match self {
            Self::Root => table::find(table::ROOT, name).or_else(|| {
                let number = number_of(name)?;
                processes::exists(number).then_some(Self::Process(number))
            }),
            Self::Folder(folder) => table::find(folder.entries(), name),
            Self::Process(process) | Self::Thread(process, _) => {
                let own = Own::find(name)?;
                let thread = matches!(self, Self::Thread(..));
                // A thread has no threads of its own.
                (!thread || own != Own::Tasks).then_some(Self::Own(process, own))
            }
            Self::Own(process, Own::Descriptors) => {
                let number = number_of(name)?;
                let process = processes::find(process).ok()?;
                process.descriptors.get().get(u64::from(number)).ok()?;
                Some(Self::Descriptor(process.id, number))
            }
            Self::Own(process, Own::Tasks) => {
                let number = number_of(name)?;
                processes::has_thread(process, number).then_some(Self::Thread(process, number))
            }
            _ => None,
        }
    }

    /// The parent directory; `None` for `/proc` itself, which is in the root.
    pub fn parent(self) -> Option<Self> {
        match self {
            Self::Root => None,
            Self::Folder(folder) => Some(folder.parent().map_or(Self::Root, Self::Folder)),
            Self::Own(process, _) => Some(Self::Process(process)),
            Self::Descriptor(process, _) => Some(Self::Own(process, Own::Descriptors)),
            Self::Thread(process, _) => Some(Self::Own(process, Own::Tasks)),
            _ => Some(Self::Root),
        }
    }

    /// Its name, if it is a directory.
    ///
    /// # Errors
    /// `ENOTDIR`, `ENOMEM`.
    pub fn name(self) -> Result<Name, Errno> {
        match self {
            Self::Root => copy_name(b"proc"),
            Self::Folder(folder) => copy_name(folder.name().as_bytes()),
            Self::Process(number) | Self::Thread(_, number) => decimal(number),
            Self::Own(_, own) => copy_name(own.name().as_bytes()),
            _ => Err(ENOTDIR),
        }
    }

    /// The target, if it is a link.
    ///
    /// # Errors
    /// `ENOENT`, `ENOMEM`.
    pub fn target(self) -> Result<Option<Target>, Errno> {
        match self {
            Self::Descriptor(process, number) => {
                let process = processes::find(process).map_err(|_| ENOENT)?;
                let description = process.descriptors.get().get(u64::from(number));
                let description = description.map_err(|_| ENOENT)?;
                // A file of the tree is reached there, anything else through its description.
                let node = description.node();
                Ok(Some(Target::Node(
                    node.unwrap_or_else(|| Node::Open(description)),
                )))
            }
            Self::Current(_) | Self::Own(..) => match self.link_text()? {
                Some(text) => Ok(Some(Target::Path(text))),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// The text that `readlink` returns; `None` if it is no link.
    ///
    /// # Errors
    /// `ENOENT`, `ENOMEM`.
    pub fn link_text(self) -> Result<Option<Name>, Errno> {
        let mut text = Text::new();
        match self {
            Self::Current(Current::Process) => {
                text.add(format_args!("{}", processes::current()))?
            }
            Self::Current(Current::Thread) => text.add(format_args!(
                "{}/task/{}",
                processes::current(),
                crate::sched::current().id()
            ))?,
            Self::Current(Current::Mounts) => text.add(format_args!("self/mounts"))?,
            Self::Own(process, own) if own.is_link() => return own.link(process).map(Some),
            Self::Descriptor(process, number) => {
                return own::descriptor_link(process, number).map(Some);
            }
            _ => return Ok(None),
        }
        Ok(Some(text.into_bytes()))
    }

    /// Generates its text.
    ///
    /// # Errors
    /// `ENOENT` if its process is gone, `ENOMEM`.
    pub fn text(self) -> Result<Vec<u8>, Errno> {
        let mut text = Text::new();
        match self {
            Self::Fixed(fixed) => text.bytes(fixed.as_bytes())?,
            Self::System(system) => system.write(&mut text)?,
            Self::Own(process, own) => own.write(process, &mut text)?,
            _ => return Err(EINVAL),
        }
        Ok(text.into_bytes())
    }

    /// The next entry of a listing behind a position, and the position behind it. The first entry is behind
    /// position 2, where `.` and `..` end.
    ///
    /// # Errors
    /// `ENOMEM`; `ENOENT` if its process is gone.
    pub fn next(self, position: u64) -> Result<Option<(u64, Listed)>, Errno> {
        // Fixed entries come first, then numbered ones, each at a position computed from its number.
        const NUMBERS: u64 = 1 << 20;
        let fixed: &[table::Row] = match self {
            Self::Root => table::ROOT,
            Self::Folder(folder) => folder.entries(),
            _ => &[],
        };
        let own: &[Own] = match self {
            Self::Process(_) => Own::ALL,
            Self::Thread(..) => Own::OF_THREAD,
            _ => &[],
        };
        let place = position.saturating_sub(2) as usize;
        if let Some(&(name, entry)) = fixed.get(place) {
            let name = copy_name(name.as_bytes())?;
            return Ok(Some((position + 1, Listed { name, entry })));
        }
        if let Some(&own) = own.get(place) {
            let (Self::Process(process) | Self::Thread(process, _)) = self else {
                return Ok(None);
            };
            let name = copy_name(own.name().as_bytes())?;
            let entry = Self::Own(process, own);
            return Ok(Some((position + 1, Listed { name, entry })));
        }
        let from = (position + 1).saturating_sub(NUMBERS);
        let from = u32::try_from(from).unwrap_or(u32::MAX);
        let next = match self {
            Self::Root => processes::next(from).map(|number| (number, Self::Process(number))),
            Self::Own(process, Own::Descriptors) => {
                let owner = processes::find(process).map_err(|_| ENOENT)?;
                let next = owner.descriptors.with(|table| table.next(u64::from(from)));
                next.map(|number| (number as u32, Self::Descriptor(process, number as u32)))
            }
            Self::Own(process, Own::Tasks) => processes::next_thread(process, from)
                .map(|number| (number, Self::Thread(process, number))),
            _ => None,
        };
        let Some((number, entry)) = next else {
            return Ok(None);
        };
        let name = decimal(number)?;
        Ok(Some((NUMBERS + u64::from(number), Listed { name, entry })))
    }

    /// The inode number.
    fn inode(self) -> u64 {
        let process = |number: u32, what: u64| u64::from(number) << 16 | what;
        match self {
            Self::Root => 1,
            Self::Folder(folder) => 0x100 + folder as u64,
            Self::System(system) => 0x200 + system.number(),
            Self::Fixed(text) => 0x1_0000_0000 | text.as_ptr() as u64 & 0xffff_ffff,
            Self::Current(current) => 0x300 + current as u64,
            Self::Process(number) => process(number, 1),
            Self::Own(number, own) => process(number, 0x10 + own as u64),
            Self::Descriptor(number, descriptor) => {
                process(number, 0x8000 + u64::from(descriptor & 0x7fff))
            }
            Self::Thread(_, number) => process(number, 2),
        }
    }

    /// # Errors
    /// None so far.
    pub fn stat(self) -> Result<Stat, Errno> {
        let mode = if self.is_directory() {
            linux::S_IFDIR | 0o555
        } else if self.is_link() {
            linux::S_IFLNK | 0o777
        } else {
            let permissions = match self {
                Self::Own(_, own) => own.permissions(),
                Self::System(system) if system.is_setting() => 0o644,
                _ => 0o444,
            };
            linux::S_IFREG | permissions
        };
        let now = time::real_now();
        Ok(Stat {
            filesystem: PROC,
            number: self.inode(),
            mode,
            links: if self.is_directory() { 2 } else { 1 },
            block_size: 1024,
            accessed: now,
            modified: now,
            changed: now,
            born: now,
            ..Stat::default()
        })
    }
}
