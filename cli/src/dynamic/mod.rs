//! Finds the dependencies of a program: the interpreter that it names, all libraries, and the files that
//! loaders read. The search is that of glibc's and musl's loaders, without running anything.
//!
//! A loader searches for libraries again when the program runs. So this search uses the tree that the program
//! will have, and returns real paths of that tree. Files that are packed there are found there, by the same
//! links.

mod cache;
mod conf;
#[cfg(test)]
mod made;
mod object;
mod resolution;
mod script;
mod search;
#[cfg(test)]
mod tests;
mod tokens;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

pub use object::Object;
pub use script::is_script;

use crate::arch::Arch;
use crate::elf_check;
use crate::size::Size;
use crate::tree::{Entry, Tree};
use resolution::Resolution;

/// The most interpreters of interpreters that Linux follows.
const DEEPEST: u32 = 5;

/// The longest configuration that is read.
const LONGEST_TEXT: Size = Size::mebi(16);

/// The folders to search, and the limit of a file's size.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folders of `LD_LIBRARY_PATH`.
    pub library_path: Vec<PathBuf>,
    /// The folders of the program's `PATH`.
    pub path: Vec<PathBuf>,
    /// The architecture of the machine.
    pub arch: Arch,
    /// The memory of the machine.
    pub memory: Size,
}

/// What the file at a path is for; a script is for what its interpreter is for. `None` if it is missing or damaged.
pub fn arch(tree: &Tree, path: &Path) -> Option<Arch> {
    let mut path = path.to_path_buf();
    for _ in 0..DEEPEST {
        let entry = tree.walk(&path).ok()?.entry.filter(Entry::is_file)?;
        let first = entry.read_first(script::LINE as u64).ok()?;
        match script::interpreter(&first) {
            Some((interpreter, _)) => path = interpreter,
            None => return elf_check::arch(&first).ok(),
        }
    }
    None
}

/// The files that programs need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needed {
    /// Real paths of files and links in the tree.
    pub paths: BTreeSet<PathBuf>,
    /// The folders that `LD_LIBRARY_PATH` has to name, in order.
    pub library_path: Vec<PathBuf>,
}

impl Needed {
    /// Adds the files that the program at `path` needs, itself included.
    ///
    /// # Errors
    /// One line: the missing file, the object that needs it and the searched places; or the damaged file.
    pub fn add(&mut self, tree: &Tree, path: &Path, settings: &Settings) -> Result<()> {
        let mut path = path.to_path_buf();
        for _ in 0..DEEPEST {
            let Some((file, paths)) = tree.read(&path, settings.memory)? else {
                bail!("{} is not there", path.display());
            };
            if let Some((interpreter, argument)) = script::interpreter(&file) {
                self.paths.extend(paths);
                if let Some(other) = script::behind_env(&interpreter, argument.as_deref()) {
                    self.add_by_name(tree, &other, settings);
                }
                let script = path.display().to_string();
                if tree.walk(&interpreter)?.entry.is_none() {
                    bail!(
                        "{script}: its interpreter {} is not there",
                        interpreter.display()
                    );
                }
                path = interpreter;
                continue;
            }
            let object = Object::read(&file, settings.memory);
            let object = object.with_context(|| path.display().to_string())?;
            if object.arch != settings.arch {
                let (own, other) = (object.arch.title(), settings.arch.title());
                bail!("{} is for {own}, not for {other}", path.display());
            }
            let real = Path::new("/").join(paths.last().map_or(path.as_path(), PathBuf::as_path));
            self.paths.extend(paths);
            if object.interpreter.is_none() {
                return Ok(());
            }
            let resolution = Resolution::start(tree, settings, &real, object);
            let found = resolution.and_then(Resolution::finish);
            let found = found.with_context(|| path.display().to_string())?;
            self.merge(found);
            return Ok(());
        }
        bail!(
            "{}: too many scripts that interpret each other",
            path.display()
        )
    }

    /// Adds a program that `env` starts by name, if it exists. It is no error if it does not: the name may be
    /// a wrong guess.
    fn add_by_name(&mut self, tree: &Tree, name: &Path, settings: &Settings) {
        let place = settings.path.iter().map(|folder| folder.join(name));
        let is_there = |path: &PathBuf| {
            let walked = tree.walk(path).ok();
            let entry = walked.and_then(|walked| walked.entry);
            entry.is_some_and(|entry| entry.is_executable())
        };
        let mut others = Needed::default();
        if let Some(path) = place.into_iter().find(is_there)
            && others.add(tree, &path, settings).is_ok()
        {
            self.merge(others);
        }
    }

    fn merge(&mut self, other: Needed) {
        self.paths.extend(other.paths);
        for folder in other.library_path {
            if !self.library_path.contains(&folder) {
                self.library_path.push(folder);
            }
        }
    }
}
