//! Files, as far as programs that exercise memory need them: the consoles, three devices, texts of
//! `/proc`, and the initramfs.

pub mod descriptors;
pub mod initramfs;
pub mod pipe;
pub mod proc;

use crate::arch::{random, uaccess};
use crate::errno::{EACCES, EBADF, ENOENT, Errno};
use crate::{console, process, sched};

/// Bytes made between two breaths.
const PAGE: u64 = 4096;

/// What a descriptor leads to.
#[derive(Clone)]
pub enum Kind {
    /// Standard input: always at its end.
    Input,
    /// One of the consoles.
    Console(u16),
    Null,
    Zero,
    Random,
    /// A file of the initramfs.
    File(&'static [u8]),
    PipeRead(pipe::End),
    PipeWrite(pipe::End),
    /// A text of `/proc`, made anew at every read, as on Linux.
    Text(proc::Text),
}

/// The content of a program's file.
///
/// # Errors
/// `ENOENT`.
pub fn find_program(path: &str) -> Result<&'static [u8], Errno> {
    if path == "/proc/self/exe" {
        return Ok(process::current().program().image);
    }
    initramfs::find(path.trim_start_matches('/')).ok_or(ENOENT)
}

/// Opens a path.
///
/// # Errors
/// `ENOENT`; `EACCES` for writing what cannot be written.
pub fn open(path: &str, write: bool) -> Result<Kind, Errno> {
    let kind = match path {
        "/dev/null" => Kind::Null,
        "/dev/zero" => Kind::Zero,
        "/dev/urandom" | "/dev/random" => Kind::Random,
        "/dev/stdout" | "/dev/tty" | "/dev/console" => Kind::Console(console::OUTPUT),
        "/dev/stderr" => Kind::Console(console::ERROR),
        "/dev/stdin" => Kind::Input,
        "/proc/self/exe" => Kind::File(process::current().program().image),
        path => match proc::find(path) {
            Some(text) => Kind::Text(text),
            None => Kind::File(initramfs::find(path.trim_start_matches('/')).ok_or(ENOENT)?),
        },
    };
    if write && matches!(kind, Kind::File(_) | Kind::Text(_) | Kind::Input) {
        return Err(EACCES);
    }
    Ok(kind)
}

impl Kind {
    /// How long its content is, if positions in it mean anything.
    pub fn length(&self) -> Option<usize> {
        match self {
            Self::File(content) => Some(content.len()),
            Self::Text(_) => Some(0),
            _ => None,
        }
    }

    /// Reads into user memory from a position; how much.
    ///
    /// # Errors
    /// `EFAULT`, `EBADF`.
    pub fn read(&self, position: u64, to: u64, length: u64) -> Result<u64, Errno> {
        match self {
            Self::Input | Self::Null => Ok(0),
            Self::Console(_) | Self::PipeWrite(_) => Err(EBADF),
            Self::PipeRead(end) => end.read(to, length),
            Self::Zero => fill(to, length, |chunk| chunk.fill(0)),
            Self::Random => fill(to, length, |chunk| {
                for bytes in chunk.chunks_mut(8) {
                    bytes.copy_from_slice(&random::next().to_le_bytes()[..bytes.len()]);
                }
            }),
            Self::File(content) => copy_from(content, position, to, length),
            Self::Text(text) => copy_from(&text.make()?, position, to, length),
        }
    }

    /// Writes from user memory; how much.
    ///
    /// # Errors
    /// `EFAULT`, `EBADF`.
    pub fn write(&self, from: u64, length: u64) -> Result<u64, Errno> {
        match self {
            Self::Null | Self::Zero => Ok(length),
            Self::PipeWrite(end) => end.write(from, length),
            Self::Console(port) => {
                let mut done = 0;
                let mut buffer = [0; 1024];
                while done < length {
                    let size = (length - done).min(buffer.len() as u64) as usize;
                    let chunk = &mut buffer[..size];
                    if let Err(error) = uaccess::read_bytes(from.wrapping_add(done), chunk) {
                        return if done == 0 { Err(error) } else { Ok(done) };
                    }
                    console::write(*port, chunk);
                    done += size as u64;
                    if !sched::breathe() {
                        break;
                    }
                }
                Ok(done)
            }
            _ => Err(EBADF),
        }
    }
}

/// Copies what lies behind a position to user memory; how much.
fn copy_from(content: &[u8], position: u64, to: u64, length: u64) -> Result<u64, Errno> {
    let rest = content.get(position as usize..).unwrap_or_default();
    let length = rest.len().min(length as usize);
    uaccess::write_bytes(to, &rest[..length])?;
    Ok(length as u64)
}

/// Fills user memory piece by piece, less than all of it if a signal comes.
///
/// # Errors
/// `EFAULT`, if not even the first piece could be written.
pub fn fill(to: u64, length: u64, mut make: impl FnMut(&mut [u8])) -> Result<u64, Errno> {
    let mut buffer = [0; 256];
    let mut done = 0;
    while done < length {
        let size = (length - done).min(buffer.len() as u64) as usize;
        make(&mut buffer[..size]);
        match uaccess::write_bytes(to.wrapping_add(done), &buffer[..size]) {
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
            Ok(()) => done += size as u64,
        }
        if done % PAGE == 0 && !sched::breathe() {
            break;
        }
    }
    Ok(done)
}
