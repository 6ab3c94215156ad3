//! Finds the file of PROGRAM: a path with a slash or an existing file, or else a packaged workload, or else a
//! program in PATH.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::arch::Arch;
use crate::machine::Added;
use crate::tree::{Entry, Tree};
use crate::{dynamic, paths};

/// A program for the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A file of the user's.
    File(PathBuf),
    /// A workload that `./x` builds.
    Packaged(String),
    /// A file of the user's tree, by its path there, without a slash at the beginning.
    InRoot(PathBuf),
}

impl Program {
    /// Finds the program `name`: in the tree at `root`, if one is given; else a file of the host, a packaged
    /// workload, or a program in the host's PATH.
    pub fn find(name: &OsStr, root: Option<&Path>) -> Result<Self> {
        let path = Path::new(name);
        if let Some(inside) = root.and_then(|root| find_in(root, path)) {
            return Ok(Program::InRoot(inside));
        }
        if name.as_encoded_bytes().contains(&b'/') || path.exists() {
            return Ok(Program::File(path.to_path_buf()));
        }
        let packaged = paths::packaged();
        if let Some(name) = name.to_str()
            && packaged.iter().any(|known| known == name)
        {
            return Ok(Program::Packaged(name.to_owned()));
        }
        let folders = env::var_os("PATH").unwrap_or_default();
        if let Some(file) = find_by_path(path, &folders) {
            return Ok(Program::File(file));
        }
        bail!(
            "there is no file {} here, none in PATH, and no packaged workload of that name \
             (there are: {})",
            name.display(),
            packaged.join(", ")
        )
    }

    /// The architecture of the machine that runs it: its own. If it has none, or one for each, that is the chosen
    /// one.
    ///
    /// # Errors
    /// Another one than its own is chosen.
    pub fn arch(&self, chosen: Option<Arch>, root: Option<&Path>) -> Result<Arch> {
        let own = match self {
            Program::Packaged(_) => None,
            Program::InRoot(path) => dynamic::arch(&Tree::new(root, &[]), path),
            Program::File(path) => {
                let path = std::path::absolute(path)?;
                dynamic::arch(&Tree::new(None, &[Added::whole(Path::new("/"))]), &path)
            }
        };
        match (chosen, own) {
            (Some(chosen), Some(own)) if chosen != own => bail!(
                "--arch {}: {} is a program for {}",
                chosen.name(),
                self.name().display(),
                own.title()
            ),
            _ => Ok(chosen.or(own).unwrap_or_default()),
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
    let tree = Tree::new(Some(root), &[]);
    let is_file = |place: &PathBuf| {
        let walked = tree.walk(place).ok();
        let entry = walked.and_then(|walked| walked.entry);
        entry.is_some_and(|entry: Entry| entry.is_file())
    };
    places.into_iter().find(is_file)
}

/// The first executable file of that name in a list of folders. Relative folders are skipped.
fn find_by_path(name: &Path, folders: &OsStr) -> Option<PathBuf> {
    let folders = env::split_paths(folders).filter(|folder| folder.is_absolute());
    let is_program = |file: &PathBuf| {
        let metadata = file.metadata();
        metadata.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    folders.map(|folder| folder.join(name)).find(is_program)
}

#[cfg(test)]
mod tests {
    use super::{OsStr, Path, find_by_path, find_in};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn path_finds_what_may_be_executed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a/p", "b/p", "c/d"] {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        }
        fs::write(at("a/p"), "").unwrap();
        fs::write(at("b/p"), "").unwrap();
        fs::set_permissions(at("a/p"), fs::Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(at("b/p"), fs::Permissions::from_mode(0o755)).unwrap();
        let folders = std::env::join_paths([at("none"), at("a"), at("b")]).unwrap();
        assert_eq!(find_by_path(Path::new("p"), &folders), Some(at("b/p")));
        assert_eq!(find_by_path(Path::new("q"), &folders), None);
        assert_eq!(find_by_path(Path::new(""), &folders), None);
        assert_eq!(
            find_by_path(Path::new("passwd"), OsStr::new("etc::.")),
            None
        );
    }

    #[test]
    fn links_in_a_tree_stay_in_it() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        fs::write(root.path().join("usr/bin/busybox"), "").unwrap();
        symlink("/usr/bin", root.path().join("bin")).unwrap();
        symlink("/bin/busybox", root.path().join("usr/bin/sh")).unwrap();
        symlink("/etc/passwd", root.path().join("usr/bin/out")).unwrap();
        let find = |name: &str| find_in(root.path(), Path::new(name));
        assert_eq!(find("sh").unwrap(), Path::new("bin/sh"));
        assert_eq!(find("/bin/sh").unwrap(), Path::new("bin/sh"));
        assert_eq!(find("out"), None);
    }
}
