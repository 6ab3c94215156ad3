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
}

impl Program {
    /// Finds what the user means by `name`.
    pub fn find(name: &OsStr) -> Result<Self> {
        let path = Path::new(name);
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
            Program::File(path) => path.file_name().unwrap_or(path.as_os_str()).to_owned(),
            Program::Packaged(name) => name.into(),
        }
    }

    /// Its content, checked to be a program that fits a machine with `memory`.
    pub fn read(&self, memory: Size) -> Result<Vec<u8>> {
        let (path, advice) = match self {
            Program::File(path) => (path.clone(), ""),
            Program::Packaged(name) => (paths::programs().join(name), " (./x setup builds it)"),
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
        elf_check::check(&content, memory).with_context(|| path.display().to_string())?;
        Ok(content)
    }
}
