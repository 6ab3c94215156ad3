//! Reading and writing through an open file description, at its own position or at a given one.
//!
//! The position belongs to the description. A call that uses and moves it holds the description's `turn`.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as linux;

use super::super::content::Content;
use super::super::copy::copy_out;
use super::super::device::Device;
use super::super::limit;
use super::super::node::{Body, Inode};
use super::super::page_idle;
use super::super::proc;
use super::{Description, Object};
use crate::errno::{Answer, EBADF, EINVAL, EISDIR, ENXIO, ESPIPE, Errno};
use crate::shared::Shared;
use crate::sync::SpinLock;

/// A position in a file.
#[derive(Clone, Copy)]
pub enum At {
    /// The description's own, which moves.
    Here,
    There(u64),
}

impl Description {
    /// Runs `f` at a position. The description's own position then advances by what `f` returns.
    fn at(&self, at: At, f: impl FnOnce(u64) -> Answer) -> Answer {
        match at {
            At::There(position) => f(position),
            At::Here => {
                let _turn = self.turn.take()?;
                let position = self.position.load(Ordering::Relaxed);
                let done = f(position)?;
                let there = position.wrapping_add(done);
                self.position.store(there, Ordering::Relaxed);
                Ok(done)
            }
        }
    }

    /// Reads into user memory. The caller has checked the range.
    ///
    /// # Errors
    /// `EBADF`, `EFAULT`, `EISDIR`, `ESPIPE`, `EAGAIN`, or a signal came.
    pub fn read(&self, to: u64, length: u64, at: At) -> Answer {
        self.may_read()?;
        match &self.object {
            Object::File(inode) => {
                let content = content_of(inode)?;
                self.at(at, |position| content.read(position, to, length))
            }
            Object::Text(entry, said) => {
                self.at(at, |position| read_text(*entry, said, position, to, length))
            }
            Object::Listing(_, listing) => {
                self.at(at, |position| listing.read(position, to, length))
            }
            Object::Memory(_, file) => self.at(at, |position| file.read(position, to, length)),
            Object::PageIdle(_) => self.at(at, |position| page_idle::read(position, to, length)),
            Object::Directory(_) => Err(EISDIR),
            Object::Path(_) => Err(EBADF),
            Object::Device(device, _) => device.read(to, length, self.waits()),
            #[cfg(target_arch = "x86_64")]
            Object::Guest(crate::kvm::Handle::Stats(stats)) => {
                self.at(at, |position| stats.read(position, to, length))
            }
            _ if matches!(at, At::There(_)) => Err(ESPIPE),
            Object::Stream(stream) => stream.read(to, length, self.waits()),
            Object::Pipe(end) => end.read(to, length, self.waits()),
            Object::Event(event) => event.read(to, length, self.waits()),
            Object::Faults(faults) => faults.read(to, length, self.waits()),
            Object::Epoll(_) | Object::Guest(_) | Object::Process(_) => Err(EINVAL),
        }
    }

    /// Writes from user memory. The caller has checked the range.
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
                    // An append moves the position behind the new data, wherever it was.
                    self.position.store(begin + done, Ordering::Relaxed);
                    return Ok(done);
                };
                write(position).map(|(_, done)| done)
            }
            Object::Memory(_, file) if !file.has_position() => file.write(0, from, length),
            Object::Memory(_, file) => self.at(at, |position| file.write(position, from, length)),
            Object::PageIdle(_) => self.at(at, |position| page_idle::write(position, from, length)),
            Object::Text(proc::Entry::System(system), _) => system.set(from, length),
            Object::Directory(_) | Object::Path(_) | Object::Text(..) | Object::Listing(..) => {
                Err(EBADF)
            }
            Object::Device(device, _) => device.write(from, length),
            _ if matches!(at, At::There(_)) => Err(ESPIPE),
            Object::Stream(stream) => stream.write(from, length),
            Object::Pipe(end) => end.write(from, length, self.waits()),
            Object::Event(event) => event.write(from, length, self.waits()),
            Object::Epoll(_) | Object::Faults(_) | Object::Guest(_) | Object::Process(_) => {
                Err(EINVAL)
            }
        }
    }

    /// Moves the position. Returns the new one.
    ///
    /// # Errors
    /// `ESPIPE`, `EINVAL`, `ENXIO`, `EBADF`.
    pub fn seek(&self, offset: i64, whence: u32) -> Answer {
        let size = match &self.object {
            Object::File(_) => self.file()?.1.content.size(),
            Object::Memory(_, file) => {
                let _turn = self.turn.take()?;
                let here = self.position.load(Ordering::Relaxed);
                let there = file.seek(here, offset, whence)?;
                self.position.store(there, Ordering::Relaxed);
                return Ok(there);
            }
            Object::Directory(_) | Object::Text(..) | Object::Listing(..) | Object::PageIdle(_) => {
                0
            }
            // As on Linux: a terminal cannot seek, and the other devices stay at 0.
            Object::Device(Device::Terminal(_), _) => return Err(ESPIPE),
            Object::Device(..) | Object::Faults(_) | Object::Guest(_) => return Ok(0),
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
                let found = file.content.seek(begin, data).ok_or(ENXIO)?;
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

    /// Runs `f` with the position of a listing.
    pub fn list(&self, f: impl FnOnce(&mut u64) -> Answer) -> Answer {
        let _turn = self.turn.take()?;
        let mut position = self.position.load(Ordering::Relaxed);
        let done = f(&mut position);
        self.position.store(position, Ordering::Relaxed);
        done
    }
}

fn content_of(inode: &Inode) -> Result<&Content, Errno> {
    match &inode.body {
        Body::File(file) => Ok(&file.content),
        _ => Err(EINVAL),
    }
}

/// Returns where the write began, and how much it wrote.
fn write_file(
    inode: &Inode,
    position: u64,
    appends: bool,
    from: u64,
    length: u64,
) -> Result<(u64, u64), Errno> {
    let content = content_of(inode)?;
    let _turn = content.source.turn.take()?;
    let begin = if appends { content.size() } else { position };
    let length = limit::writable(begin, length)?;
    let done = content.write(begin, from, length);
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
    // The text is kept until the next read from its beginning, so that all reads of one pass fit together.
    // Concurrent reads share it.
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
