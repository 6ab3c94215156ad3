//! Which file PROGRAM means: a path with a slash or an existing file, or else a packaged workload.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::elf_check;
use crate::paths;
use crate::size::Size;

/// No program is larger than its place in the image that carries it to the kernel.
const LARGEST: u64 = 2 << 30;

/// A program for the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A file of the user's.
    File(PathBuf),
    /// A workload that `./x` builds.
    Packaged(String),
    /// A file of the tree that the user gives, by its path there, without a slash at the beginning.
    InRoot(PathBuf),
}

impl Program {
    /// Finds what the user means by `name`: what the tree at `root` has there, if one is given, and
    /// else a file here or a packaged workload.
    pub fn find(name: &OsStr, root: Option<&Path>) -> Result<Self> {
        let path = Path::new(name);
        if let Some(inside) = root.and_then(|root| find_in(root, path)) {
            return Ok(Program::InRoot(inside));
        }
        if name.as_encoded_bytes().contains(&b'/') || path.exists() {
            return Ok(Program::File(path.to_path_buf()));
        }
        let packaged = paths::packaged();
        match name.to_str() {
            Some(name) if packaged.iter().any(|known| known == name) => {
                Ok(Program::Packaged(name.to_owned()))
            }
            _ => bail!(
                "there is no file {} here and no packaged workload of that name (there are: {})",
                name.display(),
                packaged.join(", ")
            ),
        }
    }

    /// Its name without folders.
    pub fn name(&self) -> OsString {
        match self {
            Program::File(path) | Program::InRoot(path) => {
                path.file_name().unwrap_or(path.as_os_str()).to_owned()
            }
            Program::Packaged(name) => name.into(),
        }
    }

    /// Its content, checked to be a program that fits a machine with `memory`.
    pub fn read(&self, root: Option<&Path>, memory: Size) -> Result<Vec<u8>> {
        let (path, advice) = match self {
            Program::File(path) => (path.clone(), ""),
            Program::Packaged(name) => (paths::programs().join(name), " (./x setup builds it)"),
            Program::InRoot(path) => (resolve(root.context("no tree")?, path)?, ""),
        };
        let read = || format!("cannot read the program {}{advice}", path.display());
        let file = fs::metadata(&path).with_context(read)?;
        if !file.is_file() {
            bail!("{} is not a file", path.display());
        }
        if file.len() > memory.0.min(LARGEST) {
            bail!(
                "{} is larger than the machine's memory ({memory})",
                path.display()
            );
        }
        let content = fs::read(&path).with_context(read)?;
        if content.starts_with(b"#!") && matches!(self, Program::InRoot(_)) {
            // The kernel finds its interpreter, in the same tree.
            return Ok(content);
        }
        elf_check::check(&content, memory).with_context(|| path.display().to_string())?;
        Ok(content)
    }
}

/// The path of a program in a tree: a path as the program would see it, or a name in the folders
/// of PATH there.
fn find_in(root: &Path, path: &Path) -> Option<PathBuf> {
    let plain = path.strip_prefix("/").unwrap_or(path);
    let places = if path.as_os_str().as_encoded_bytes().contains(&b'/') {
        vec![plain.to_path_buf()]
    } else {
        ["bin", "usr/bin"]
            .map(|folder| Path::new(folder).join(plain))
            .into()
    };
    let there = |place: &PathBuf| resolve(root, place).is_ok_and(|file| file.is_file());
    places.into_iter().find(there)
}

/// The file of the host that a path in a tree leads to. Links in the tree begin at its root.
fn resolve(root: &Path, path: &Path) -> Result<PathBuf> {
    const MOST_LINKS: u32 = 40;
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        let file = root.join(&path);
        let Ok(target) = fs::read_link(&file) else {
            return Ok(file);
        };
        path = match target.strip_prefix("/") {
            Ok(target) => target.to_path_buf(),
            Err(_) => path.parent().unwrap_or(Path::new("")).join(target),
        };
    }
    bail!("{}: too many links", path.display())
}
