//! Listing directories.

use linux_raw_sys::general as linux;

use crate::arch::uaccess;
use crate::errno::{Answer, EINVAL, ENOTDIR, Errno};
use crate::files::description::{Object, check};
use crate::files::descriptors;
use crate::files::directory::{Name, copy_name};
use crate::files::node::Node;
use crate::sched;

/// The layout of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The kind is the last byte.
    Old,
    /// The kind is before the name.
    New,
}

/// The longest entry, padding included.
const LONGEST: usize = 280;

struct Entry {
    /// The position after this entry.
    position: u64,
    name: Name,
    node: Node,
}

/// The entry after a position: 0 is before `.`, 1 before `..`, 2 before all others.
fn next(directory: &Node, position: u64) -> Result<Option<Entry>, Errno> {
    if position == 0 {
        // A removed directory lists nothing, not even itself.
        directory.parent()?;
        let node = directory.clone();
        let name = copy_name(b".")?;
        return Ok(Some(Entry {
            position: 1,
            name,
            node,
        }));
    }
    if position == 1 {
        let node = directory.parent()?;
        let name = copy_name(b"..")?;
        return Ok(Some(Entry {
            position: 2,
            name,
            node,
        }));
    }
    Ok(match directory {
        Node::Memory(inode) => inode
            .directory()?
            .next(position)?
            .map(|(position, name, node)| Entry {
                position,
                name,
                node,
            }),
        Node::Proc(entry) => entry.next(position)?.map(|(position, listed)| Entry {
            position,
            name: listed.name,
            node: Node::Proc(listed.entry),
        }),
        Node::Open(_) => return Err(ENOTDIR),
    })
}

/// Encodes an entry; returns its length.
fn encode(entry: &Entry, form: Form, to: &mut [u8; LONGEST]) -> Result<usize, Errno> {
    let stat = entry.node.stat()?;
    let kind = (stat.mode >> 12) as u8;
    let header = if form == Form::New { 19 } else { 18 };
    let tail = if form == Form::New { 1 } else { 2 };
    let length = (header + entry.name.len() + tail).next_multiple_of(8);
    to.fill(0);
    to[..8].copy_from_slice(&stat.number.to_le_bytes());
    to[8..16].copy_from_slice(&entry.position.to_le_bytes());
    to[16..18].copy_from_slice(&(length as u16).to_le_bytes());
    to[header..header + entry.name.len()].copy_from_slice(&entry.name);
    match form {
        Form::New => to[18] = kind,
        Form::Old => to[length - 1] = kind,
    }
    Ok(length)
}

fn list(fd: u64, to: u64, room: u64, form: Form) -> Answer {
    let description = descriptors::current().get(fd)?;
    let directory = match &description.object {
        Object::Directory(node) => node,
        _ => {
            return Err(if description.flags() & linux::O_PATH != 0 {
                crate::errno::EBADF
            } else {
                ENOTDIR
            });
        }
    };
    let room = u64::from(room as u32);
    check(to, room)?;
    description.list(|position| {
        let mut buffer = [0; LONGEST];
        let mut done = 0;
        while let Some(entry) = next(directory, *position)? {
            let length = match encode(&entry, form, &mut buffer) {
                // The entry was removed meanwhile.
                Err(crate::errno::ENOENT) => {
                    *position = entry.position;
                    continue;
                }
                length => length?,
            };
            if done + length as u64 > room {
                return if done == 0 { Err(EINVAL) } else { Ok(done) };
            }
            if let Err(error) = uaccess::write_bytes(to.wrapping_add(done), &buffer[..length]) {
                return if done == 0 { Err(error) } else { Ok(done) };
            }
            done += length as u64;
            *position = entry.position;
            if !sched::breathe() {
                break;
            }
        }
        Ok(done)
    })
}

pub fn getdents64(fd: u64, to: u64, room: u64) -> Answer {
    list(fd, to, room, Form::New)
}

pub fn getdents(fd: u64, to: u64, room: u64) -> Answer {
    list(fd, to, room, Form::Old)
}
