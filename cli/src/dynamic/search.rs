//! The places in which a loader searches for a library, in order.
//!
//! glibc's loader:
//!
//! 1. the RPATH of the object that needs the library, and of the objects that need that one, unless the first
//!    has a RUNPATH
//! 2. `LD_LIBRARY_PATH`
//! 3. the RUNPATH of the object that needs the library
//! 4. the cache
//! 5. the loader's own folders
//!
//! In each folder, subfolders for more capable CPUs come first. Without a cache, the folders from which one
//! would be made replace it; the loader then needs them in `LD_LIBRARY_PATH`.
//!
//! musl's loader:
//!
//! 1. `LD_LIBRARY_PATH`
//! 2. the RUNPATH or RPATH of the object that needs the library, and of the objects that need that one
//! 3. the folders of its configuration, or its own

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::object::Object;
use super::{LONGEST_TEXT, Settings, conf, tokens};
use crate::arch::Arch;
use crate::tree::Tree;

/// glibc's own folders: Debian's, and those of other distributions.
const fn glibc(arch: Arch) -> [&'static str; 6] {
    let multiarch = match arch {
        Arch::X86_64 => ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"],
        Arch::AArch64 => ["/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu"],
    };
    let [first, second] = multiarch;
    [first, second, "/lib64", "/usr/lib64", "/lib", "/usr/lib"]
}

/// musl's own folders.
const MUSL: [&str; 3] = ["/lib", "/usr/local/lib", "/usr/lib"];

/// Subfolders for more capable CPUs.
const fn capable(arch: Arch) -> &'static [&'static str] {
    match arch {
        Arch::X86_64 => &[
            "glibc-hwcaps/x86-64-v4",
            "glibc-hwcaps/x86-64-v3",
            "glibc-hwcaps/x86-64-v2",
        ],
        Arch::AArch64 => &[],
    }
}

const CACHE: &str = "/etc/ld.so.cache";
const CONF: &str = "/etc/ld.so.conf";

/// The C library of a loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loader {
    Glibc,
    Musl,
}

/// An object, with its path and the object that needed it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its path, as it was found.
    pub path: PathBuf,
    pub object: Object,
    /// The index of the object that first needed it.
    pub needer: Option<usize>,
}

impl Loaded {
    fn folders(&self, list: Option<&OsStr>) -> Vec<PathBuf> {
        let origin = self.path.parent().unwrap_or(Path::new("/"));
        let arch = self.object.arch;
        list.map_or(Vec::new(), |list| tokens::folders(list, origin, arch))
    }

    /// The folders of its `DT_RPATH`, if that counts.
    fn rpath(&self) -> Vec<PathBuf> {
        let list = match self.object.runpath {
            Some(_) => None,
            None => self.object.rpath.as_deref(),
        };
        self.folders(list)
    }

    fn runpath(&self) -> Vec<PathBuf> {
        self.folders(self.object.runpath.as_deref())
    }
}

/// A place to search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A folder.
    Folder(PathBuf),
    /// A folder that the loader needs in `LD_LIBRARY_PATH`.
    Untold(PathBuf),
    /// The paths in the cache.
    Cache,
}

/// The common part of all searches.
pub struct Search {
    pub loader: Loader,
    /// What it loads libraries for.
    pub arch: Arch,
    /// The cache's content.
    pub cache: Option<Vec<u8>>,
    /// The real paths of the files that the loader reads besides libraries.
    pub read: Vec<PathBuf>,
    library_path: Vec<PathBuf>,
    /// The folders from which a cache would be made.
    unmade: Vec<PathBuf>,
    own: Vec<PathBuf>,
}

impl Search {
    /// For the loader at `interpreter`.
    pub fn of(tree: &Tree, settings: &Settings, interpreter: &Path, arch: Arch) -> Result<Self> {
        let name = interpreter.file_name().unwrap_or_default();
        let mut search = Search {
            loader: Loader::Glibc,
            arch,
            cache: None,
            read: Vec::new(),
            library_path: settings.library_path.clone(),
            unmade: Vec::new(),
            own: glibc(arch).map(PathBuf::from).into(),
        };
        let musl = name.to_str().and_then(|name| name.strip_prefix("ld-musl-"));
        if let Some(architecture) = musl {
            search.loader = Loader::Musl;
            let architecture = architecture.split('.').next().unwrap_or_default();
            // Relative to the parent of the loader's folder.
            let beside = interpreter.parent().and_then(Path::parent);
            let conf = format!("etc/ld-musl-{architecture}.path");
            search.read_musl(tree, &beside.unwrap_or(Path::new("/")).join(conf))?;
        } else {
            search.read_glibc(tree)?;
        }
        Ok(search)
    }

    fn read_musl(&mut self, tree: &Tree, conf: &Path) -> Result<()> {
        self.own = MUSL.map(PathBuf::from).into();
        if let Some(folders) = conf::musl_folders(tree, conf)? {
            self.own = folders;
            let walked = tree.walk(conf)?;
            self.read.extend(walked.links);
            self.read.push(walked.real);
        }
        Ok(())
    }

    fn read_glibc(&mut self, tree: &Tree) -> Result<()> {
        if let Some((content, paths)) = tree.read(Path::new(CACHE), LONGEST_TEXT)?
            && super::cache::Cache::parse(&content).is_some()
        {
            self.cache = Some(content);
            self.read.extend(paths);
            return Ok(());
        }
        self.unmade = conf::folders(tree, Path::new(CONF))?;
        let own = &self.own;
        self.unmade.retain(|folder| !own.contains(folder));
        Ok(())
    }

    /// The places to search for a library that `loaded[needer]` needs.
    pub fn places(&self, loaded: &[Loaded], needer: usize) -> Vec<Place> {
        let object = &loaded[needer].object;
        let mut folders = Vec::new();
        let chain = || {
            std::iter::successors(Some(needer), |&index| loaded[index].needer)
                .map(|index| &loaded[index])
        };
        match self.loader {
            Loader::Glibc => {
                if object.runpath.is_none() {
                    folders.extend(chain().flat_map(Loaded::rpath));
                    folders.extend(loaded[0].rpath());
                }
                folders.extend(self.library_path.iter().cloned());
                folders.extend(loaded[needer].runpath());
            }
            Loader::Musl => {
                folders.extend(self.library_path.iter().cloned());
                folders
                    .extend(chain().flat_map(|object| [object.runpath(), object.rpath()].concat()));
            }
        }
        let mut places: Vec<_> = folders.into_iter().map(Place::Folder).collect();
        if self.cache.is_some() {
            places.push(Place::Cache);
        }
        places.extend(self.unmade.iter().cloned().map(Place::Untold));
        if !object.avoids_default || self.loader == Loader::Musl {
            places.extend(self.own.iter().cloned().map(Place::Folder));
        }
        let mut once = Vec::new();
        for place in places {
            if !once.contains(&place) {
                once.push(place);
            }
        }
        once
    }

    /// Whether the loader itself provides the library of this name.
    pub fn is_loader(&self, name: &OsStr) -> bool {
        const PARTS: [&str; 7] = ["c.", "pthread.", "rt.", "m.", "dl.", "util.", "xnet."];
        let name = name.to_str().and_then(|name| name.strip_prefix("lib"));
        self.loader == Loader::Musl
            && name.is_some_and(|name| PARTS.iter().any(|part| name.starts_with(part)))
    }

    /// Whether a folder is one of the loader's own.
    pub fn is_own(&self, folder: &Path) -> bool {
        self.own.iter().any(|own| own == folder)
    }

    /// The files that more capable CPUs may load instead of `name` in a folder.
    pub fn for_capable(&self, folder: &Path, name: &OsStr) -> Vec<PathBuf> {
        match self.loader {
            Loader::Glibc => capable(self.arch)
                .iter()
                .map(|part| folder.join(part).join(name))
                .collect(),
            Loader::Musl => Vec::new(),
        }
    }
}
