//! What one run puts into the machine: the program, its dependencies, and the user's files. All of it is found and
//! checked before anything is built.
//!
//! A static program is at `/bin`. Any other program keeps its path on the host; so do its interpreter, its
//! libraries and the links to them. Lookups relative to any of these paths thus find the same files as on the
//! host.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::arch::Arch;
use crate::dynamic::{self, Needed, Object, Settings};
use crate::machine::{Added, Request, Variable};
use crate::paths;
use crate::program::Program;
use crate::size::Size;
use crate::tree::Tree;

/// The folders in which programs look for other programs.
pub const PATH: [&str; 2] = ["/bin", "/usr/bin"];

/// The variable that names folders for libraries.
pub const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// The largest program that fits the image that carries it to the kernel.
const LARGEST: u64 = 2 << 30;

/// Everything that one run needs.
pub struct Load {
    /// The program's path, without a slash at the beginning.
    pub program: PathBuf,
    /// Its content, if it does not come from the tree.
    pub content: Option<Vec<u8>>,
    /// What the program will find at `/`.
    pub tree: Tree,
    /// What the user adds, at real paths.
    pub added: Vec<Added>,
    /// Real paths of the files that have to be there, too.
    pub needed: BTreeSet<PathBuf>,
    /// The value of `LD_LIBRARY_PATH`, if there has to be one.
    pub library_path: Option<OsString>,
    /// Warnings for the user, one line each.
    pub warnings: Vec<String>,
}

/// A program's file.
struct File {
    content: Vec<u8>,
    /// Whether it needs nothing beside itself.
    is_static: bool,
}

impl Load {
    /// Finds everything for a request.
    ///
    /// # Errors
    /// One line: what is missing, damaged, or too large.
    pub fn find(request: &Request, program: &Program) -> Result<Self> {
        let files = &request.files;
        let root = files.root.as_deref();
        let file = match program {
            Program::File(path) => Some(File::read(path, "", request.memory)?),
            Program::Packaged(name) => {
                let advice = " (./x setup builds it)";
                Some(File::read(
                    &paths::programs(request.arch).join(name),
                    advice,
                    request.memory,
                )?)
            }
            Program::InRoot(_) => None,
        };
        let added_programs: Vec<_> = files
            .added
            .iter()
            .filter(|added| is_dynamic(added, request.arch))
            .collect();
        let needs_host = match &file {
            Some(file) => !file.is_static || !added_programs.is_empty(),
            // The user's tree has to be complete.
            None => false,
        };
        let host = if needs_host {
            paths::libraries(request.arch)
        } else {
            Vec::new()
        };
        let mut load = Load {
            program: PathBuf::new(),
            content: None,
            tree: Tree::new(root, &host),
            added: Vec::new(),
            needed: BTreeSet::new(),
            library_path: None,
            warnings: Vec::new(),
        };
        load.place(program, file)?;
        let mut programs = Vec::new();
        for added in &files.added {
            let is_program = added_programs.contains(&added);
            let guest = load.add(added.clone())?;
            programs.extend(is_program.then_some(guest));
        }

        let settings = Settings {
            library_path: match given(&files.variables, LIBRARY_PATH) {
                Some(list) => absolute(list)?,
                // This command's variable does not apply to the user's tree.
                None if matches!(program, Program::InRoot(_)) => Vec::new(),
                None => absolute(&env::var_os(LIBRARY_PATH).unwrap_or_default())?,
            },
            path: match given(&files.variables, "PATH") {
                Some(list) => env::split_paths(list).collect(),
                None => PATH.map(PathBuf::from).into(),
            },
            arch: request.arch,
            memory: request.memory,
        };
        let mut needed = Needed::default();
        if load.content.is_none() {
            let path = Path::new("/").join(&load.program);
            needed.add(&load.tree, &path, &settings)?;
        }
        for program in programs {
            let path = Path::new("/").join(program);
            if let Err(error) = needed.add(&load.tree, &path, &settings) {
                load.warnings.push(format!("{error:#}"));
            }
        }
        load.needed.extend(needed.paths);
        load.library_path = join(&needed.library_path);
        Ok(load)
    }

    /// Decides where the program is in the machine.
    fn place(&mut self, program: &Program, file: Option<File>) -> Result<()> {
        let in_bin = Path::new("bin").join(program.name());
        match (program, file) {
            (Program::InRoot(path), _) => self.program.clone_from(path),
            (Program::File(path), Some(file)) if !file.is_static => {
                let absolute = std::path::absolute(path);
                let absolute = absolute.with_context(|| path.display().to_string())?;
                let walked = self.tree.walk(&absolute)?;
                if walked.entry.is_some_and(|entry| entry.is_file()) {
                    // A path with `..` would need all folders on its way.
                    let is_plain = !absolute.components().any(|part| part.as_os_str() == "..");
                    let plain = absolute.strip_prefix("/").unwrap_or(&absolute);
                    self.program = if is_plain {
                        plain.to_path_buf()
                    } else {
                        walked.real
                    };
                } else {
                    // The kernel has its own files at this path, or the user's tree has something else.
                    self.program = self.add(Added {
                        host: path.clone(),
                        guest: in_bin,
                    })?;
                }
            }
            (_, Some(file)) => {
                let walked = self.tree.place(&in_bin)?;
                self.needed.extend(walked.links);
                self.program = walked.real;
                self.content = Some(file.content);
            }
            (_, None) => bail!("{} has no content", program.name().display()),
        }
        Ok(())
    }

    /// Adds a file or folder to the tree. Returns its real path there.
    fn add(&mut self, added: Added) -> Result<PathBuf> {
        let (guest, links) = self.tree.add(&added)?;
        self.needed.extend(links);
        self.added.push(Added {
            host: added.host,
            guest: guest.clone(),
        });
        Ok(guest)
    }
}

impl File {
    fn read(path: &Path, advice: &str, memory: Size) -> Result<Self> {
        let read = || format!("cannot read the program {}{advice}", path.display());
        let file = fs::metadata(path).with_context(read)?;
        if !file.is_file() {
            bail!("{} is not a file", path.display());
        }
        if file.len() > memory.0.min(LARGEST) {
            bail!(
                "{} is larger than the machine's memory ({memory})",
                path.display()
            );
        }
        let content = fs::read(path).with_context(read)?;
        let is_static = !dynamic::is_script(&content) && {
            let object = Object::read(&content, memory);
            let object = object.with_context(|| path.display().to_string())?;
            object.interpreter.is_none()
        };
        Ok(File { content, is_static })
    }
}

/// Whether an added file is a program with dependencies. `false` for a file that cannot be read, is damaged, or for
/// another architecture: the error shows when the file is packed or used.
fn is_dynamic(added: &Added, arch: Arch) -> bool {
    use std::os::unix::fs::PermissionsExt as _;

    let metadata = fs::metadata(&added.host);
    let is_executable =
        metadata.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    if !is_executable {
        return false;
    }
    let content = fs::read(&added.host).unwrap_or_default();
    let object = Object::read(&content, Size(u64::MAX));
    dynamic::is_script(&content)
        || object.is_ok_and(|object| object.arch == arch && object.interpreter.is_some())
}

/// The folders of a list, made absolute, because the program starts in another folder.
fn absolute(list: &OsStr) -> Result<Vec<PathBuf>> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let here = env::current_dir().context("cannot tell the current folder")?;
    let folders = list.as_bytes().split(|byte| matches!(byte, b':' | b';'));
    Ok(folders
        .map(|folder| here.join(OsStr::from_bytes(folder)))
        .collect())
}

/// The value of a variable, if the user gives it.
fn given<'v>(variables: &'v [Variable], name: &str) -> Option<&'v OsStr> {
    let mut given = variables.iter().rev();
    let given = given.find(|variable| variable.name == name);
    given.map(|variable| &*variable.value)
}

fn join(folders: &[PathBuf]) -> Option<OsString> {
    let texts: Vec<_> = folders.iter().map(|folder| folder.as_os_str()).collect();
    (!texts.is_empty()).then(|| texts.join(OsStr::new(":")))
}
