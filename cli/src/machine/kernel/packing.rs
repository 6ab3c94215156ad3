//! Folders and files of the host, packed into an archive.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::cpio::{Archive, FOLDER};
use crate::size::Size;
use crate::tree::{Entry, Tree};

const LINK: u32 = 0o120_000;

/// An archive that is filled from the host, each path at most once.
pub struct Packing {
    archive: Archive,
    taken: BTreeSet<PathBuf>,
    /// Bytes of content that still fit.
    left: u64,
    limit: Size,
}

impl Packing {
    /// An empty archive; contents may have `limit` bytes in all.
    pub fn new(limit: Size) -> Self {
        Self {
            archive: Archive::default(),
            taken: BTreeSet::new(),
            left: limit.0,
            limit,
        }
    }

    /// Adds one member, unless its path is already taken.
    pub fn add(&mut self, path: &Path, mode: u32, content: &[u8]) -> Result<()> {
        if path.to_str().is_none() {
            bail!("{}: the name is not UTF-8", path.display());
        }
        if !self.taken.insert(path.to_path_buf()) {
            return Ok(());
        }
        let Some(left) = self.left.checked_sub(content.len() as u64) else {
            bail!(
                "the program and its files are larger than the machine's memory ({})",
                self.limit
            );
        };
        self.left = left;
        self.archive.add(path.as_os_str().as_bytes(), mode, content);
        Ok(())
    }

    /// Adds a file, or a folder with its content. Links in the folder are kept; if `host` itself is a link, it is
    /// followed. The folders above `guest` are already in the archive.
    pub fn add_from_host(&mut self, host: &Path, guest: &Path) -> Result<()> {
        let metadata = fs::metadata(host).with_context(|| reading(host))?;
        self.add_one(host, guest, &metadata)
    }

    /// Adds the folders above a real path of a tree, with the modes that they have there.
    pub fn add_parents(&mut self, tree: &Tree, path: &Path) -> Result<()> {
        let parents: Vec<_> = path.ancestors().skip(1).collect();
        for parent in parents.into_iter().rev() {
            if parent != Path::new("") && !self.taken.contains(parent) {
                let entry = tree.look(parent).filter(Entry::is_folder);
                self.add(parent, entry.map_or(FOLDER, |entry| entry.mode), b"")?;
            }
        }
        Ok(())
    }

    /// Adds a file or a link at a real path of a tree, and the folders above it.
    pub fn add_from_tree(&mut self, tree: &Tree, path: &Path) -> Result<()> {
        if self.taken.contains(path) {
            return Ok(());
        }
        let Some(entry) = tree.look(path) else {
            bail!("/{} is gone", path.display());
        };
        self.add_parents(tree, path)?;
        if entry.is_link() {
            return self.add(path, entry.mode, entry.target()?.as_os_str().as_bytes());
        }
        self.add(path, entry.mode, &entry.read(self.limit)?)
    }

    fn add_one(&mut self, host: &Path, guest: &Path, metadata: &fs::Metadata) -> Result<()> {
        if metadata.is_dir() {
            return self.add_folder(host, guest, metadata.mode());
        }
        if metadata.is_symlink() {
            let target = fs::read_link(host).with_context(|| reading(host))?;
            return self.add(guest, LINK | 0o777, target.as_os_str().as_bytes());
        }
        if !metadata.is_file() {
            // The kernel cannot use the host's sockets and devices.
            eprintln!("faultless: left out: {} is no file", host.display());
            return Ok(());
        }
        if metadata.len() > self.left {
            bail!(
                "{} does not fit the machine's memory ({})",
                host.display(),
                self.limit
            );
        }
        let content = fs::read(host).with_context(|| reading(host))?;
        self.add(guest, metadata.mode(), &content)
    }

    fn add_folder(&mut self, host: &Path, guest: &Path, mode: u32) -> Result<()> {
        if guest != Path::new("") {
            self.add(guest, mode, b"")?;
        }
        let entries: Result<Vec<_>, _> =
            fs::read_dir(host).with_context(|| reading(host))?.collect();
        let mut entries = entries.with_context(|| reading(host))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let metadata = entry.metadata().with_context(|| reading(&path))?;
            self.add_one(&path, &guest.join(entry.file_name()), &metadata)?;
        }
        Ok(())
    }

    /// The whole archive.
    pub fn finish(self) -> Vec<u8> {
        self.archive.finish()
    }
}

fn reading(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::{Packing, Path, Size};
    use std::fs;

    #[test]
    fn packs_a_folder_and_keeps_links() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("d")).unwrap();
        fs::write(folder.path().join("d/f"), "content").unwrap();
        std::os::unix::fs::symlink("d/f", folder.path().join("l")).unwrap();
        let mut packing = Packing::new(Size::mebi(1));
        packing.add_from_host(folder.path(), Path::new("")).unwrap();
        let text = String::from_utf8(packing.finish()).unwrap();
        for part in ["d/f\0\0\0content", "l\0d/f"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("f"), vec![0; 2 << 20]).unwrap();
        let mut packing = Packing::new(Size::mebi(1));
        let error = packing.add_from_host(folder.path(), Path::new(""));
        assert!(error.unwrap_err().to_string().contains("does not fit"));
    }
}
