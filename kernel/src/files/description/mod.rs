//! Open file descriptions: `open` makes them, `dup` and `fork` share them, with their position and status
//! flags.

mod transfer;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::general as linux;

use super::device::Device;
use super::epoll;
use super::event::Event;
use super::lock::{self, FileId, Owner};
use super::node::{Body, File, Inode, NO_PATH, Node};
use super::origin::Origin;
use super::pipe;
use super::proc;
use super::readiness::{Events, Readiness};
use super::stat::Stat;
use super::stream::Stream;
use super::turn::Turn;
use super::usage::Writing;
use super::userfault::Faults;
use crate::arch::uaccess;
use crate::errno::{EBADF, EINVAL, Errno};
use crate::kvm;
use crate::process::Process;
use crate::shared::Shared;
use crate::sync::SpinLock;
pub use transfer::At;

/// Flags that `F_SETFL` can change.
pub const CHANGEABLE: u32 =
    linux::O_APPEND | linux::O_NONBLOCK | linux::O_DIRECT | linux::O_NOATIME;

/// What a description has open.
pub enum Object {
    /// A regular file.
    File(Shared<Inode>),
    Directory(Node),
    /// A file of `/proc`, and its text as of the last read from its beginning.
    Text(proc::Entry, SpinLock<Option<Shared<Vec<u8>>>>),
    /// A file of `/proc` with a record for each mapping of a process.
    Listing(proc::Entry, proc::Listing),
    /// A file of `/proc` that shows a process's memory, by address, or its state.
    Memory(proc::Entry, proc::MemoryFile),
    Device(Device, Node),
    /// The bitmap of idle pages.
    PageIdle(Node),
    Stream(Stream),
    Pipe(pipe::End),
    Event(Event),
    Epoll(epoll::Control),
    Faults(Faults),
    /// A virtual machine, or a part of one.
    Guest(kvm::Handle),
    /// A process, by `pidfd_open`.
    Process(Shared<Process>),
    /// Opened with `O_PATH`: only the name counts.
    Path(Node),
}

/// An open file description.
pub struct Description {
    pub object: Object,
    /// Set for a regular file open for writing.
    _writing: Option<Writing>,
    /// The access mode, and flags of `open` that `F_GETFL` shows.
    flags: AtomicU32,
    position: AtomicU64,
    /// Held by a call that uses and moves the position.
    turn: Turn,
    /// Where it was found.
    origin: Option<Shared<Origin>>,
    /// Never reused: the mappings of one description belong together.
    pub number: u64,
    /// Epoll instances that watch it.
    pub watched: epoll::Watched,
}

/// Returns a number that no other opened object has, or will have.
pub fn next_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

impl Description {
    /// Makes a description of an object with these flags.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(
        object: Object,
        flags: u32,
        origin: Option<Shared<Origin>>,
    ) -> Result<Shared<Self>, Errno> {
        Self::of_file(object, flags, origin, None)
    }

    /// The same, for a regular file that may be open for writing.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn of_file(
        object: Object,
        flags: u32,
        origin: Option<Shared<Origin>>,
        writing: Option<Writing>,
    ) -> Result<Shared<Self>, Errno> {
        Shared::new(Self {
            object,
            _writing: writing,
            flags: AtomicU32::new(flags),
            position: AtomicU64::new(0),
            turn: Turn::new(),
            origin,
            number: next_number(),
            watched: epoll::Watched::new(),
        })
    }

    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Sets the flags in `mask` to their values in `to`.
    pub fn set_flags(&self, mask: u32, to: u32) {
        let update = |flags| Some(flags & !mask | to & mask);
        let _ = self
            .flags
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }

    fn may(&self, access: u32) -> Result<(), Errno> {
        let flags = self.flags();
        let mode = flags & linux::O_ACCMODE;
        if flags & linux::O_PATH == 0 && (mode == access || mode == linux::O_RDWR) {
            Ok(())
        } else {
            Err(EBADF)
        }
    }

    /// # Errors
    /// `EBADF` if it is not open for reading.
    pub fn may_read(&self) -> Result<(), Errno> {
        self.may(linux::O_RDONLY)
    }

    /// # Errors
    /// `EBADF` if it is not open for writing.
    pub fn may_write(&self) -> Result<(), Errno> {
        self.may(linux::O_WRONLY)
    }

    /// Whether calls may wait.
    pub fn waits(&self) -> bool {
        self.flags() & linux::O_NONBLOCK == 0
    }

    /// The events that are ready now.
    pub fn events(&self) -> Events {
        match &self.object {
            Object::Stream(stream) => stream.events(),
            Object::Device(Device::Terminal(_), _) => Events::WRITABLE | Stream::Input.events(),
            Object::Pipe(end) => end.events(),
            Object::Event(event) => event.events(),
            Object::Faults(faults) => faults.events(self.waits()),
            Object::Epoll(control) => control.events(),
            Object::Process(process) => process.events(),
            _ => Events::READABLE | Events::WRITABLE,
        }
    }

    /// The watchers to notify when that changes; none if it never does.
    pub fn readiness(&self) -> Option<&Readiness> {
        match &self.object {
            Object::Stream(stream) => stream.readiness(),
            Object::Device(Device::Terminal(_), _) => Stream::Input.readiness(),
            Object::Pipe(end) => Some(end.readiness()),
            Object::Event(event) => Some(event.readiness()),
            Object::Faults(faults) => Some(faults.readiness()),
            Object::Epoll(control) => Some(control.readiness()),
            Object::Process(process) => Some(&process.watchers),
            _ => None,
        }
    }

    /// The attributes that `stat` shows.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn stat(&self) -> Result<Stat, Errno> {
        match &self.object {
            Object::File(inode) => Node::Memory(inode.clone()).stat(),
            Object::Directory(node)
            | Object::Device(_, node)
            | Object::PageIdle(node)
            | Object::Path(node) => node.stat(),
            Object::Text(entry, _) | Object::Listing(entry, _) | Object::Memory(entry, _) => {
                entry.stat()
            }
            Object::Stream(stream) => Ok(stream.stat()),
            Object::Pipe(end) => Ok(end.stat()),
            Object::Event(_)
            | Object::Epoll(_)
            | Object::Faults(_)
            | Object::Guest(_)
            | Object::Process(_) => Ok(Stat {
                filesystem: NO_PATH,
                number: 4,
                mode: 0o600,
                links: 1,
                block_size: 4096,
                ..Stat::default()
            }),
        }
    }

    /// The key of the locks of its file.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn file_id(&self) -> Result<FileId, Errno> {
        let stat = self.stat()?;
        Ok((stat.filesystem, stat.number))
    }

    /// The open node, if it has a place in the tree.
    pub fn node(&self) -> Option<Node> {
        match &self.object {
            Object::File(inode) => Some(Node::Memory(inode.clone())),
            Object::Directory(node)
            | Object::Device(_, node)
            | Object::PageIdle(node)
            | Object::Path(node) => Some(node.clone()),
            Object::Text(entry, _) | Object::Listing(entry, _) | Object::Memory(entry, _) => {
                Some(Node::Proc(*entry))
            }
            _ => None,
        }
    }

    /// The directory, for calls that take one.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn directory(&self) -> Result<Node, Errno> {
        self.node()
            .filter(Node::is_directory)
            .ok_or(crate::errno::ENOTDIR)
    }

    /// The regular file.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn file(&self) -> Result<(&Inode, &File), Errno> {
        match &self.object {
            Object::File(inode) => match &inode.body {
                Body::File(file) => Ok((inode, file)),
                _ => Err(EINVAL),
            },
            _ => Err(EINVAL),
        }
    }

    /// Where it was found.
    pub fn origin(&self) -> Option<&Shared<Origin>> {
        self.origin.as_ref()
    }

    /// The start of a lock's range that counts from `whence`.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn base(&self, whence: u32) -> Result<u64, Errno> {
        match whence {
            linux::SEEK_SET => Ok(0),
            linux::SEEK_CUR => Ok(self.position.load(Ordering::Relaxed)),
            linux::SEEK_END => Ok(self.stat()?.size),
            _ => Err(EINVAL),
        }
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        self.watched.close(self.readiness());
        let address = core::ptr::from_ref(self) as usize;
        lock::release_all(Owner::Description(address), None);
        lock::release_all(Owner::Whole(address), None);
    }
}

/// Checks that all of a range is user memory.
///
/// # Errors
/// `EFAULT`.
pub fn check(address: u64, length: u64) -> Result<(), Errno> {
    if uaccess::range_ok(address, length) {
        Ok(())
    } else {
        Err(crate::errno::EFAULT)
    }
}
