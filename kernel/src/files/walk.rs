//! Following a path, component by component.

use alloc::vec::Vec;

use super::directory::{Name, copy_name};
use super::node::{Node, Target};
use super::tree;
use crate::errno::{ELOOP, ENAMETOOLONG, ENOENT, ENOMEM, ENOTDIR, Errno};

/// The most links that are followed, as on Linux.
const MOST_LINKS: u32 = 40;
/// Linux's `PATH_MAX`, with the final NUL.
pub const LONGEST_PATH: usize = 4096;
const LONGEST_NAME: usize = 255;

/// Whether a symbolic link at the end is followed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Last {
    Follow,
    Keep,
}

/// How a path ends.
pub enum End {
    /// A name in the directory.
    Name(Name),
    /// `.`, or the root.
    Dot,
    DotDot,
}

/// Where a path leads.
pub struct Place {
    /// The directory of the last component.
    pub directory: Node,
    pub end: End,
    /// The node there, if any.
    pub node: Option<Node>,
    /// Whether the path ends in a slash.
    pub slash: bool,
}

/// The rest of the path.
struct Rest {
    bytes: Vec<u8>,
    at: usize,
}

impl Rest {
    fn skip_slashes(&mut self) {
        while self.bytes.get(self.at) == Some(&b'/') {
            self.at += 1;
        }
    }

    fn is_over(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Returns the range of the next component, and moves behind it.
    fn component(&mut self) -> core::ops::Range<usize> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(|&byte| byte != b'/') {
            self.at += 1;
        }
        start..self.at
    }

    /// Puts a link's target before the rest.
    fn prepend(&mut self, mut target: Vec<u8>) -> Result<(), Errno> {
        let rest = &self.bytes[self.at..];
        if target.len() + rest.len() >= LONGEST_PATH {
            return Err(ENAMETOOLONG);
        }
        target.try_reserve(rest.len()).map_err(|_| ENOMEM)?;
        target.extend_from_slice(rest);
        (self.bytes, self.at) = (target, 0);
        Ok(())
    }
}

/// Follows a path from a directory, or from the root if it begins with a slash.
///
/// # Errors
/// `ENOENT`: a component other than the last is missing; `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`, `ENOMEM`.
pub fn walk(start: &Node, path: &[u8], last: Last) -> Result<Place, Errno> {
    if path.is_empty() {
        return Err(ENOENT);
    }
    let mut rest = Rest {
        bytes: copy_name(path)?,
        at: 0,
    };
    let mut at = start.clone();
    let mut links = 0;
    if rest.bytes[0] == b'/' {
        at = tree::root();
    }
    loop {
        rest.skip_slashes();
        if rest.is_over() {
            // The root itself, or a link that ends in a slash.
            return found(at.clone(), End::Dot, Some(at), true);
        }
        if !at.is_directory() {
            return Err(ENOTDIR);
        }
        let range = rest.component();
        let behind = rest.at;
        let slash = !rest.is_over();
        rest.skip_slashes();
        let is_last = rest.is_over();
        let name = &rest.bytes[range];
        if name.len() > LONGEST_NAME {
            return Err(ENAMETOOLONG);
        }
        if name == b"." || name == b".." {
            let end = if name == b"." { End::Dot } else { End::DotDot };
            let next = match end {
                End::Dot => at.clone(),
                _ => at.parent()?,
            };
            if is_last {
                return found(at, end, Some(next), slash);
            }
            at = next;
            continue;
        }
        let child = at.lookup(name)?;
        let follows = !is_last || slash || last == Last::Follow;
        let target = match &child {
            Some(child) if follows => child.target()?,
            _ => None,
        };
        match target {
            Some(Target::Path(target)) => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(ELOOP);
                }
                if target.is_empty() {
                    return Err(ENOENT);
                }
                if target[0] == b'/' {
                    at = tree::root();
                }
                // The slash behind the link belongs to the rest.
                rest.at = behind;
                rest.prepend(target)?;
            }
            Some(Target::Node(node)) if is_last => {
                let name = copy_name(name)?;
                return found(at, End::Name(name), Some(node), slash);
            }
            Some(Target::Node(node)) => at = node,
            None if is_last => {
                let name = copy_name(name)?;
                return found(at, End::Name(name), child, slash);
            }
            None => at = child.ok_or(ENOENT)?,
        }
    }
}

fn found(directory: Node, end: End, node: Option<Node>, slash: bool) -> Result<Place, Errno> {
    if slash && node.as_ref().is_some_and(|node| !node.is_directory()) {
        return Err(ENOTDIR);
    }
    Ok(Place {
        directory,
        end,
        node,
        slash,
    })
}

/// Returns the node that a path leads to.
///
/// # Errors
/// As for [`walk`]; `ENOENT` if nothing is there.
pub fn find(start: &Node, path: &[u8], last: Last) -> Result<Node, Errno> {
    walk(start, path, last)?.node.ok_or(ENOENT)
}
