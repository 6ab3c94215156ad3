//! Open file descriptions: what `open` makes and `dup` and `fork` share, with its position and its
//! status flags.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::general as linux;

use super::copy::{copy_out, gather, scatter};
use super::device::Device;
use super::directory::Name;
use super::epoll;
use super::event::Event;
use super::lock::{self, FileId, Owner};
use super::node::{Body, File, Inode, NO_PATH, Node};
use super::pipe;
use super::proc;
use super::readiness::{Events, Readiness};
use super::stat::Stat;
use super::stream::Stream;
use super::turn::Turn;
use super::usage::Writing;
use crate::arch::uaccess;
use crate::errno::{Answer, EBADF, EFBIG, EINVAL, EISDIR, ENXIO, ESPIPE, Errno};
use crate::shared::Shared;
use crate::sync::SpinLock;

/// Flags that `F_SETFL` can change.
pub const CHANGEABLE: u32 =
    linux::O_APPEND | linux::O_NONBLOCK | linux::O_DIRECT | linux::O_NOATIME;

/// What is open.
pub enum Object {
    /// A regular file.
    File(Shared<Inode>),
    Directory(Node),
    /// A file of `/proc`, and what it said when it was last read from its beginning.
    Text(proc::Entry, SpinLock<Option<Shared<Vec<u8>>>>),
    Device(Device, Node),
    Stream(Stream),
    Pipe(pipe::End),
    Event(Event),
    Epoll(epoll::Control),
    /// Opened with `O_PATH`: only its name counts.
    Path(Node),
}

/// An open file description.
pub struct Description {
    pub object: Object,
    /// Of a regular file open for writing.
    _writing: Option<Writing>,
    /// The access mode, and flags of `open` that `F_GETFL` shows.
    flags: AtomicU32,
    position: AtomicU64,
    /// Held by a call that uses and moves the position.
    turn: Turn,
    /// The directory and the name by which it was opened.
    origin: Option<(Node, Name)>,
    /// Epoll instances that watch it.
    pub watched: epoll::Watched,
}

/// A position in a file.
#[derive(Clone, Copy)]
pub enum At {
    /// The description's own, which moves.
    Here,
    There(u64),
}

impl Description {
    /// Something opened with these flags.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(
        object: Object,
        flags: u32,
        origin: Option<(Node, Name)>,
    ) -> Result<Shared<Self>, Errno> {
        Self::of_file(object, flags, origin, None)
    }

    /// The same, of a file that it may write.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn of_file(
        object: Object,
        flags: u32,
        origin: Option<(Node, Name)>,
        writing: Option<Writing>,
    ) -> Result<Shared<Self>, Errno> {
        Shared::new(Self {
            object,
            _writing: writing,
            flags: AtomicU32::new(flags),
            position: AtomicU64::new(0),
            turn: Turn::new(),
            origin,
            watched: epoll::Watched::new(),
        })
    }

    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Changes some flags to what `to` says.
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

    /// Does something at a position, which moves by what it returns if it is the description's own.
    fn at(&self, at: At, f: impl FnOnce(u64) -> Answer) -> Answer {
        match at {
            At::There(position) => f(position),
            At::Here => {
                let _turn = self.turn.take()?;
                let position = self.position.load(Ordering::Relaxed);
                let done = f(position)?;
                self.position.store(position + done, Ordering::Relaxed);
                Ok(done)
            }
        }
    }

    /// Reads into user memory, which the caller has checked to be some.
    ///
    /// # Errors
    /// `EBADF`, `EFAULT`, `EISDIR`, `ESPIPE`, `EAGAIN`, or a signal came.
    pub fn read(&self, to: u64, length: u64, at: At) -> Answer {
        self.may_read()?;
        match &self.object {
            Object::File(inode) => self.at(at, |position| read_file(inode, position, to, length)),
            Object::Text(entry, said) => {
                self.at(at, |position| read_text(*entry, said, position, to, length))
            }
            Object::Directory(_) => Err(EISDIR),
            Object::Path(_) => Err(EBADF),
            Object::Device(device, _) => device.read(to, length, self.waits()),
            _ if matches!(at, At::There(_)) => Err(ESPIPE),
            Object::Stream(stream) => stream.read(to, length, self.waits()),
            Object::Pipe(end) => end.read(to, length, self.waits()),
            Object::Event(event) => event.read(to, length, self.waits()),
            Object::Epoll(_) => Err(EINVAL),
        }
    }

    /// Writes from user memory, which the caller has checked to be some.
    ///
    /// # Errors
    /// `EBADF`, `EFAULT`, `ENOSPC`, `EFBIG`, `ESPIPE`, `EPIPE`, `EAGAIN`, or a signal came.
    pub fn write(&self, from: u64, length: u64, at: At) -> Answer {
        self.may_write()?;
        match &self.object {
            Object::File(inode) => {
                let appends = self.flags() & linux::O_APPEND != 0;
                let write = |position| write_file(inode, position, appends, from, length);
                let At::There(position) = at else {
                    let _turn = self.turn.take()?;
                    let (begin, done) = write(self.position.load(Ordering::Relaxed))?;
                    // What is appended moves the position behind it, wherever that was.
                    self.position.store(begin + done, Ordering::Relaxed);
                    return Ok(done);
                };
                write(position).map(|(_, done)| done)
            }
            Object::Directory(_) | Object::Path(_) | Object::Text(..) => Err(EBADF),
            Object::Device(device, _) => device.write(from, length),
            _ if matches!(at, At::There(_)) => Err(ESPIPE),
            Object::Stream(stream) => stream.write(from, length),
            Object::Pipe(end) => end.write(from, length, self.waits()),
            Object::Event(event) => event.write(from, length, self.waits()),
            Object::Epoll(_) => Err(EINVAL),
        }
    }

    /// What can be done without waiting.
    pub fn events(&self) -> Events {
        match &self.object {
            Object::Stream(stream) => stream.events(),
            Object::Device(Device::Terminal(_), _) => Events::WRITABLE | Stream::Input.events(),
            Object::Pipe(end) => end.events(),
            Object::Event(event) => event.events(),
            Object::Epoll(control) => control.events(),
            _ => Events::READABLE | Events::WRITABLE,
        }
    }

    /// Who is told when that changes; nobody if it never does.
    pub fn readiness(&self) -> Option<&Readiness> {
        match &self.object {
            Object::Stream(stream) => stream.readiness(),
            Object::Device(Device::Terminal(_), _) => Stream::Input.readiness(),
            Object::Pipe(end) => Some(end.readiness()),
            Object::Event(event) => Some(event.readiness()),
            Object::Epoll(control) => Some(control.readiness()),
            _ => None,
        }
    }

    /// What `stat` says of it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn stat(&self) -> Result<Stat, Errno> {
        match &self.object {
            Object::File(inode) => Node::Memory(inode.clone()).stat(),
            Object::Directory(node) | Object::Device(_, node) | Object::Path(node) => node.stat(),
            Object::Text(entry, _) => entry.stat(),
            Object::Stream(stream) => Ok(stream.stat()),
            Object::Pipe(end) => Ok(end.stat()),
            Object::Event(_) | Object::Epoll(_) => Ok(Stat {
                filesystem: NO_PATH,
                number: 4,
                mode: 0o600,
                links: 1,
                block_size: 4096,
                ..Stat::default()
            }),
        }
    }

    /// What locks of its file are kept by.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn file_id(&self) -> Result<FileId, Errno> {
        let stat = self.stat()?;
        Ok((stat.filesystem, stat.number))
    }

    /// What it has open, if that is in the tree.
    pub fn node(&self) -> Option<Node> {
        match &self.object {
            Object::File(inode) => Some(Node::Memory(inode.clone())),
            Object::Directory(node) | Object::Device(_, node) | Object::Path(node) => {
                Some(node.clone())
            }
            Object::Text(entry, _) => Some(Node::Proc(*entry)),
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

    /// The directory and the name by which it was opened.
    pub fn origin(&self) -> Option<&(Node, Name)> {
        self.origin.as_ref()
    }

    /// Where a lock's range begins, if it counts from `whence`.
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

    /// Moves the position; where it is then.
    ///
    /// # Errors
    /// `ESPIPE`, `EINVAL`, `ENXIO`, `EBADF`.
    pub fn seek(&self, offset: i64, whence: u32) -> Answer {
        let size = match &self.object {
            Object::File(_) => self.file()?.1.content.lock().size(),
            Object::Directory(_) | Object::Text(..) => 0,
            // As on Linux: these say where one is told to be, which is nowhere.
            Object::Device(Device::Terminal(_), _) => return Err(ESPIPE),
            Object::Device(..) => return Ok(0),
            Object::Path(_) => return Err(EBADF),
            _ => return Err(ESPIPE),
        };
        let _turn = self.turn.take()?;
        let from = match whence {
            linux::SEEK_SET => 0,
            linux::SEEK_CUR => self.position.load(Ordering::Relaxed),
            linux::SEEK_END => size,
            linux::SEEK_DATA | linux::SEEK_HOLE => {
                let file = self.file()?.1;
                let begin = u64::try_from(offset).map_err(|_| ENXIO)?;
                if begin >= size {
                    return Err(ENXIO);
                }
                let data = whence == linux::SEEK_DATA;
                let found = file.content.lock().seek(begin, data).ok_or(ENXIO)?;
                self.position.store(found, Ordering::Relaxed);
                return Ok(found);
            }
            _ => return Err(EINVAL),
        };
        let position = i64::try_from(from)
            .ok()
            .and_then(|from| from.checked_add(offset))
            .and_then(|at| u64::try_from(at).ok())
            .ok_or(EINVAL)?;
        self.position.store(position, Ordering::Relaxed);
        Ok(position)
    }

    /// Does something with the position of a listing.
    pub fn list(&self, f: impl FnOnce(&mut u64) -> Answer) -> Answer {
        let _turn = self.turn.take()?;
        let mut position = self.position.load(Ordering::Relaxed);
        let done = f(&mut position);
        self.position.store(position, Ordering::Relaxed);
        done
    }
}

fn file_of(inode: &Inode) -> Result<&File, Errno> {
    match &inode.body {
        Body::File(file) => Ok(file),
        _ => Err(EINVAL),
    }
}

fn read_file(inode: &Inode, position: u64, to: u64, length: u64) -> Answer {
    let file = file_of(inode)?;
    let unwritten = file.content.lock().unwritten();
    if let Some(content) = unwritten {
        let rest = usize::try_from(position)
            .ok()
            .and_then(|position| content.get(position..))
            .unwrap_or_default();
        let length = rest.len().min(length as usize);
        return copy_out(to, &rest[..length]);
    }
    let mut position = position;
    scatter(to, length, |piece| {
        let done = file.content.lock().read(position, piece);
        position += done as u64;
        done
    })
}

/// Where it began to write, and how much it wrote.
fn write_file(
    inode: &Inode,
    position: u64,
    appends: bool,
    from: u64,
    length: u64,
) -> Result<(u64, u64), Errno> {
    let file = file_of(inode)?;
    let _turn = file.turn.take()?;
    let begin = if appends {
        file.content.lock().size()
    } else {
        position
    };
    let room = super::content::LARGEST.saturating_sub(begin);
    if length != 0 && room == 0 {
        return Err(EFBIG);
    }
    let mut at = begin;
    let wanted = length.min(room);
    let done = gather(from, wanted, |piece| {
        let done = file.content.lock().write(at, piece)?;
        at += done as u64;
        Ok(done)
    });
    inode.touch();
    done.map(|done| (begin, done))
}

fn read_text(
    entry: proc::Entry,
    said: &SpinLock<Option<Shared<Vec<u8>>>>,
    position: u64,
    to: u64,
    length: u64,
) -> Answer {
    // What it says is kept until it is read from its beginning again, so that all reads of one
    // pass fit together; several at once look at the same.
    let kept = match position {
        0 => None,
        _ => said.lock().clone(),
    };
    let text = match kept {
        Some(text) => text,
        None => {
            let text = Shared::new(entry.text()?)?;
            let old = said.lock().replace(text.clone());
            drop(old);
            text
        }
    };
    let rest = usize::try_from(position)
        .ok()
        .and_then(|position| text.get(position..))
        .unwrap_or_default();
    let length = rest.len().min(length as usize);
    copy_out(to, &rest[..length])
}

impl Drop for Description {
    fn drop(&mut self) {
        self.watched.close(self.readiness());
        let address = core::ptr::from_ref(self) as usize;
        lock::release_all(Owner::Description(address), None);
        lock::release_all(Owner::Whole(address), None);
    }
}

/// Whether all of a range is user memory.
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
