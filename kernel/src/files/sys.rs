//! Files of `/sys`: made at boot, in the tree of files. Nothing that they show changes later, but for `page_idle`.

use alloc::vec::Vec;

use super::node::Node;
use super::proc::Text;
use super::{cpus, huge_pages, ksm, page_idle, tree};
use crate::errno::{ENOENT, ENOMEM, Errno};

/// Makes all files.
///
/// # Errors
/// `ENOMEM`.
pub fn build() -> Result<(), Errno> {
    cpus::build()?;
    ksm::build()?;
    huge_pages::build()?;
    page_idle::build()?;
    #[cfg(target_arch = "x86_64")]
    super::kvm_parameters::build()?;
    Ok(())
}

/// Makes a directory, if it is missing, and returns it.
pub fn folder(parent: &Node, name: &[u8]) -> Result<Node, Errno> {
    if let Some(folder) = parent.lookup(name)? {
        return Ok(folder);
    }
    tree::mkdir(parent, name, 0o755)?;
    parent.lookup(name)?.ok_or(ENOENT)
}

/// Makes a file with a text.
pub fn file(parent: &Node, name: &[u8], permissions: u32, text: Text) -> Result<(), Errno> {
    let mut bytes: Vec<u8> = text.into_bytes();
    // Leak the exact length only.
    let mut exact = Vec::new();
    exact.try_reserve_exact(bytes.len()).map_err(|_| ENOMEM)?;
    exact.append(&mut bytes);
    tree::create(parent, name, permissions, exact.leak()).map(drop)
}

/// A number as a file's text.
pub fn number(number: u32) -> Result<Text, Errno> {
    let mut text = Text::new();
    text.line(format_args!("{number}"))?;
    Ok(text)
}
