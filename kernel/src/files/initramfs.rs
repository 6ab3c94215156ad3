//! The initramfs: a cpio archive that the loader put into memory. The tree is filled from it once. File
//! contents stay in the archive until they are written.

use crate::errno::{EEXIST, ENOENT, ENOMEM, ENOTDIR, Errno};
use crate::sync::Once;

use super::node::Node;
use super::tree;
use super::walk::{self, End, Last};

static ARCHIVE: Once<&'static [u8]> = Once::new();

const KIND: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// Sets the archive.
pub fn set(archive: &'static [u8]) {
    ARCHIVE.set(archive);
}

fn plain(name: &str) -> &str {
    name.trim_end_matches('\0')
        .trim_start_matches("./")
        .trim_start_matches('/')
}

/// The content of the regular file at this path, which has no leading slash.
pub fn find(path: &str) -> Option<&'static [u8]> {
    let archive = ARCHIVE.try_get()?;
    cpio_reader::iter_files(archive)
        .find(|entry| plain(entry.name()) == path && entry.mode().bits() & KIND == FILE)
        .map(|entry| entry.file())
}

/// Adds all files, directories and symbolic links of the archive to the tree. Missing directories are made.
/// Of two entries with one name the first counts. Other kinds are skipped.
///
/// # Errors
/// `ENOMEM`.
pub fn unpack() -> Result<(), Errno> {
    let Some(archive) = ARCHIVE.try_get() else {
        return Ok(());
    };
    for entry in cpio_reader::iter_files(archive) {
        let path = plain(entry.name());
        if path.is_empty() || path == "." {
            continue;
        }
        // Other errors: an impossible path, through a file or longer than Linux allows.
        if add(path, entry.mode().bits(), entry.file()) == Err(ENOMEM) {
            return Err(ENOMEM);
        }
    }
    Ok(())
}

fn add(path: &str, mode: u32, content: &'static [u8]) -> Result<(), Errno> {
    let permissions = mode & 0o7777;
    let root = tree::root();
    let place = loop {
        match walk::walk(&root, path.as_bytes(), Last::Keep) {
            Err(ENOENT) => make_parents(&root, path)?,
            place => break place?,
        }
    };
    let End::Name(name) = &place.end else {
        return Ok(());
    };
    match (mode & KIND, &place.node) {
        // A directory that exists already, such as `/tmp`, gets the archive's mode.
        (DIRECTORY, Some(node)) if node.is_directory() => {
            if let Ok(inode) = node.inode() {
                inode.change(|meta| meta.permissions = permissions);
            }
            Ok(())
        }
        (_, Some(_)) => Err(EEXIST),
        (DIRECTORY, None) => tree::mkdir(&place.directory, name, permissions),
        (FILE, None) => tree::create(&place.directory, name, permissions, content).map(drop),
        (LINK, None) => tree::symlink(&place.directory, name, content),
        _ => Ok(()),
    }
}

/// Makes the directories above a path.
fn make_parents(root: &Node, path: &str) -> Result<(), Errno> {
    let ends = path.match_indices('/').map(|(at, _)| at);
    for end in ends {
        let place = walk::walk(root, &path.as_bytes()[..end], Last::Follow)?;
        match (&place.end, &place.node) {
            (End::Name(name), None) => tree::mkdir(&place.directory, name, 0o755)?,
            (_, Some(node)) if node.is_directory() => {}
            _ => return Err(ENOTDIR),
        }
    }
    Ok(())
}
