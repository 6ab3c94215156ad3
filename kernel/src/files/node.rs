//! The target of a path: an inode of the tree in memory, an entry of `/proc`, or an open object without a
//! path.

use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::general as linux;

use super::content::{self, Content};
use super::description::Description;
use super::device::Device;
use super::directory::{self, Directory, Name};
use super::proc;
use super::source::Kind;
use super::stat::Stat;
use super::usage::Usage;
use crate::arch::time;
use crate::errno::{EINVAL, ENOTDIR, Errno};
use crate::shared::Shared;
use crate::sync::SpinLock;

/// The target of a path.
#[derive(Clone)]
pub enum Node {
    Memory(Shared<Inode>),
    Proc(proc::Entry),
    /// Reached through `/proc/self/fd`: an object without a place in the tree.
    Open(Shared<Description>),
}

/// A file, directory, symbolic link or device in memory.
pub struct Inode {
    pub number: u64,
    pub body: Body,
    meta: SpinLock<Meta>,
}

/// The content of an inode, by its type.
pub enum Body {
    File(File),
    Directory(Directory),
    Link(Name),
    Device(Device),
    /// The bitmap of idle pages ([`super::page_idle`]).
    PageIdle,
    /// A setting of the machine, with a text like one of `/proc`.
    Setting(proc::System),
}

/// A regular file.
pub struct File {
    pub content: Content,
    pub usage: Usage,
}

/// Attributes that can change.
#[derive(Clone, Copy)]
pub struct Meta {
    /// The lower twelve bits of the mode.
    pub permissions: u32,
    pub user: u32,
    pub group: u32,
    pub links: u32,
    /// Nanoseconds since 1970: last access, change of content, change of attributes, birth.
    pub accessed: u64,
    pub modified: u64,
    pub changed: u64,
    pub born: u64,
}

/// Returns a number that no other inode has.
fn next_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

impl Inode {
    /// Makes an inode with the links that a new entry gives it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(body: Body, permissions: u32) -> Result<Shared<Self>, Errno> {
        Self::numbered(next_number(), body, permissions)
    }

    fn numbered(number: u64, body: Body, permissions: u32) -> Result<Shared<Self>, Errno> {
        let now = time::real_now();
        let links = if matches!(body, Body::Directory(_)) {
            2
        } else {
            1
        };
        Shared::new(Self {
            number,
            body,
            meta: SpinLock::new(Meta {
                permissions,
                user: 0,
                group: 0,
                links,
                accessed: now,
                modified: now,
                changed: now,
                born: now,
            }),
        })
    }

    /// Makes a regular file.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new_file(
        kind: Kind,
        archive: &'static [u8],
        permissions: u32,
    ) -> Result<Shared<Self>, Errno> {
        let number = next_number();
        let file = File {
            content: Content::new(number, kind, archive)?,
            usage: Usage::new(),
        };
        Self::numbered(number, Body::File(file), permissions)
    }

    pub fn meta(&self) -> Meta {
        *self.meta.lock()
    }

    /// Changes attributes.
    pub fn change(&self, f: impl FnOnce(&mut Meta)) {
        let mut meta = self.meta.lock();
        meta.changed = time::real_now();
        f(&mut meta);
    }

    /// Updates the times after a change of the content.
    pub fn touch(&self) {
        let mut meta = self.meta.lock();
        meta.modified = time::real_now();
        meta.changed = meta.modified;
    }

    /// The directory, if it is one.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn directory(&self) -> Result<&Directory, Errno> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(ENOTDIR),
        }
    }

    fn stat(&self) -> Stat {
        let meta = self.meta();
        let (kind, size, blocks) = match &self.body {
            Body::File(File { content, .. }) => {
                (linux::S_IFREG, content.size(), content.allocated() / 512)
            }
            // As Linux's tmpfs: 20 bytes for each entry.
            Body::Directory(directory) => (linux::S_IFDIR, 20 * (directory.length() as u64 + 2), 0),
            Body::Link(target) => (linux::S_IFLNK, target.len() as u64, 0),
            Body::Device(device) if device.is_block() => (linux::S_IFBLK, 0, 0),
            Body::Device(_) => (linux::S_IFCHR, 0, 0),
            Body::PageIdle | Body::Setting(_) => (linux::S_IFREG, 0, 0),
        };
        let device = match &self.body {
            Body::Device(device) => device.number(),
            _ => (0, 0),
        };
        Stat {
            filesystem: MEMORY,
            number: self.number,
            mode: kind | meta.permissions,
            links: meta.links,
            user: meta.user,
            group: meta.group,
            device,
            size,
            block_size: content::PAGE,
            blocks,
            accessed: meta.accessed,
            modified: meta.modified,
            changed: meta.changed,
            born: meta.born,
        }
    }
}

/// Device numbers of file systems.
pub const MEMORY: u32 = 1;
pub const PROC: u32 = 2;
pub const NO_PATH: u32 = 3;

impl Node {
    pub fn is_directory(&self) -> bool {
        match self {
            Self::Memory(inode) => inode.directory().is_ok(),
            Self::Proc(entry) => entry.is_directory(),
            Self::Open(_) => false,
        }
    }

    /// Whether both are the same file.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Memory(one), Self::Memory(other)) => one.is(other),
            (Self::Proc(one), Self::Proc(other)) => one == other,
            _ => false,
        }
    }

    /// Looks up a name in this directory.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn lookup(&self, name: &[u8]) -> Result<Option<Self>, Errno> {
        match self {
            Self::Memory(inode) => Ok(inode.directory()?.lookup(name)),
            Self::Proc(entry) if entry.is_directory() => Ok(entry.lookup(name).map(Self::Proc)),
            _ => Err(ENOTDIR),
        }
    }

    /// The parent directory; the root is its own parent.
    ///
    /// # Errors
    /// `ENOTDIR`; `ENOENT` if it was removed.
    pub fn parent(&self) -> Result<Self, Errno> {
        match self {
            Self::Memory(inode) => Ok(match inode.directory()?.parent()? {
                Some(parent) => Self::Memory(parent),
                None => self.clone(),
            }),
            Self::Proc(entry) => Ok(entry.parent().map_or_else(super::tree::root, Self::Proc)),
            Self::Open(_) => Err(ENOTDIR),
        }
    }

    /// The target of a symbolic link; `None` if it is no link.
    ///
    /// # Errors
    /// `ENOENT`, `ENOMEM`.
    pub fn target(&self) -> Result<Option<Target>, Errno> {
        match self {
            Self::Memory(inode) => match &inode.body {
                Body::Link(target) => Ok(Some(Target::Path(directory::copy_name(target)?))),
                _ => Ok(None),
            },
            Self::Proc(entry) => entry.target(),
            Self::Open(_) => Ok(None),
        }
    }

    pub fn stat(&self) -> Result<Stat, Errno> {
        match self {
            Self::Memory(inode) => Ok(inode.stat()),
            Self::Proc(entry) => entry.stat(),
            Self::Open(description) => description.stat(),
        }
    }

    /// The inode, if there is one with attributes that can change.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn inode(&self) -> Result<&Shared<Inode>, Errno> {
        match self {
            Self::Memory(inode) => Ok(inode),
            _ => Err(EINVAL),
        }
    }
}

/// The target of a symbolic link.
pub enum Target {
    Path(Name),
    /// Reached directly, whatever the path says: the links of `/proc/self/fd`.
    Node(Node),
}
