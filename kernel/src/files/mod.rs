//! Files: descriptors, paths, and the objects that they lead to.
//!
//! ```text
//! descriptors  a process's numbers ──▶ description  what `open` made: position, flags
//!                                          │
//!   node  the target of a path ◀───────────┤ Object: file, directory, device, pipe, …
//!     ├── tree, directory, content, source: files in memory, at first those of the initramfs
//!     └── proc: texts generated when they are read
//! walk  follows a path · place  a process's working directory · readiness  notifies watchers (poll, epoll)
//! ```
//!
//! User memory is never touched under a spin lock. Bytes are copied through the kernel stack in pieces
//! (`copy`), or directly from and to a file's pages (`content`). A pipe copies them under a sleeping lock
//! (`turn`).

pub mod content;
pub mod copy;
mod cpus;
pub mod description;
pub mod descriptors;
pub mod device;
pub mod directory;
pub mod epoll;
pub mod event;
pub mod hpet;
pub mod huge_pages;
pub mod image;
pub mod initramfs;
pub mod input;
mod ksm;
#[cfg(target_arch = "x86_64")]
mod kvm_parameters;
pub mod limit;
pub mod lock;
pub mod mapped;
pub mod memfd;
pub mod node;
pub mod open;
pub mod origin;
mod page_idle;
pub mod pipe;
pub mod place;
pub mod proc;
pub mod readiness;
pub mod source;
pub mod stat;
pub mod stream;
mod sys;
pub mod tree;
pub mod turn;
pub mod usage;
pub mod userfault;
pub mod walk;

use linux_raw_sys::general as linux;

use crate::errno::Errno;
use description::{Description, Object};
use stream::Stream;

/// The file used as standard input, if the command's own is a file.
const STANDARD_INPUT: &[u8] = b"/.faultless/stdin";

/// Builds the tree, with the files of the initramfs; at boot.
///
/// # Errors
/// `ENOMEM`.
pub fn begin() -> Result<(), Errno> {
    tree::build()?;
    sys::build()?;
    initramfs::unpack()
}

/// Makes the three descriptors of the first process.
///
/// # Errors
/// `ENOMEM`.
pub fn standard() -> Result<descriptors::Table, Errno> {
    let table = descriptors::Table::new();
    let input = match open::path(&tree::root(), STANDARD_INPUT, linux::O_RDONLY, 0) {
        Ok(file) => file,
        Err(_) => Description::new(Object::Stream(Stream::Input), linux::O_RDONLY, None)?,
    };
    table.add(input, 0, false)?;
    for stream in [Stream::Output, Stream::Error] {
        let description = Description::new(Object::Stream(stream), linux::O_WRONLY, None)?;
        table.add(description, 0, false)?;
    }
    Ok(table)
}
