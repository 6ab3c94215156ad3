//! Resolves the libraries of one program, breadth first, as loaders load them: all that the program needs,
//! then all that those need. A name that is already loaded is not searched for again.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::cache::Cache;
use super::object::{Object, foreign};
use super::search::{Loaded, Loader, Place, Search};
use super::{Needed, Settings, tokens};
use crate::arch::Arch;
use crate::tree::Tree;

/// The library that glibc itself loads when a thread is cancelled or ends by `pthread_exit`. Without it, the
/// program is aborted then.
const UNWINDER: &str = "libgcc_s.so.1";
const GLIBC: &str = "libc.so.6";

/// More libraries than any program has.
const MOST: usize = 4096;

/// The resolution of one program, in progress.
pub struct Resolution<'t> {
    tree: &'t Tree,
    settings: &'t Settings,
    search: Search,
    loaded: Vec<Loaded>,
    /// Names of the loaded objects.
    names: BTreeSet<OsString>,
    needed: Needed,
}

/// A suitable file.
struct Found {
    path: PathBuf,
    object: Object,
}

/// Where a search found nothing, and the unsuitable files that it found.
#[derive(Default)]
struct Missed {
    looked: Vec<String>,
    foreign: Vec<String>,
}

impl<'t> Resolution<'t> {
    /// Starts with the program, at its real path, and its interpreter.
    pub fn start(
        tree: &'t Tree,
        settings: &'t Settings,
        program: &Path,
        object: Object,
    ) -> Result<Self> {
        let interpreter = object.interpreter.clone().unwrap_or_default();
        let interpreter = Path::new("/").join(interpreter);
        let arch = object.arch;
        let mut resolution = Resolution {
            tree,
            settings,
            search: Search::of(tree, settings, &interpreter, arch)?,
            loaded: vec![Loaded {
                path: program.to_path_buf(),
                object,
                needer: None,
            }],
            names: BTreeSet::new(),
            needed: Needed {
                paths: BTreeSet::new(),
                library_path: settings.library_path.clone(),
            },
        };
        let mut missed = Missed::default();
        let Some(found) = resolution.look_at(&interpreter, &mut missed)? else {
            let why = match missed.foreign.first() {
                Some(_) => format!("not for {}", arch.title()),
                None => "not there".to_owned(),
            };
            let advice = match Arch::of_host() {
                Some(host) if host == arch => String::new(),
                _ => format!(
                    " (install Debian's libc6-{}-cross, or give a tree with --root)",
                    arch.debian()
                ),
            };
            bail!("its interpreter {} is {why}{advice}", interpreter.display());
        };
        let read = std::mem::take(&mut resolution.search.read);
        resolution.needed.paths.extend(read);
        resolution.names.extend(found.object.soname);
        let name = interpreter.file_name().unwrap_or_default();
        resolution.names.insert(name.to_owned());
        Ok(resolution)
    }

    /// Finds all libraries.
    pub fn finish(mut self) -> Result<Needed> {
        self.load_from(0)?;
        if self.search.loader == Loader::Glibc && self.names.contains(OsStr::new(GLIBC)) {
            let behind = self.loaded.len();
            // Optional: it is needed only when a thread ends like that.
            if self.find(0, OsStr::new(UNWINDER))?.is_ok() {
                self.load_from(behind)?;
            }
        }
        Ok(self.needed)
    }

    /// Finds the libraries of all objects from index `first` on, those added meanwhile included.
    fn load_from(&mut self, first: usize) -> Result<()> {
        let mut next = first;
        while next < self.loaded.len() {
            for name in self.loaded[next].object.needed.clone() {
                if let Err(missed) = self.find(next, &name)? {
                    bail!("{}", self.complaint(next, &name, &missed));
                }
            }
            if self.loaded.len() > MOST {
                bail!("more than {MOST} libraries");
            }
            next += 1;
        }
        Ok(())
    }

    fn complaint(&self, needer: usize, name: &OsStr, missed: &Missed) -> String {
        let mut text = format!(
            "{} needs {}, which is not there",
            self.loaded[needer].path.display(),
            name.display()
        );
        if !missed.looked.is_empty() {
            text += &format!(" (looked in {})", missed.looked.join(", "));
        }
        for foreign in &missed.foreign {
            text += &format!("; {foreign}");
        }
        text
    }

    /// Finds one library and adds it. The inner error says that there is none.
    fn find(&mut self, needer: usize, name: &OsStr) -> Result<Result<(), Missed>> {
        if self.names.contains(name) || self.search.is_loader(name) {
            return Ok(Ok(()));
        }
        let mut missed = Missed::default();
        if name.as_bytes().contains(&b'/') {
            let origin = self.loaded[needer].path.parent();
            let origin = origin.unwrap_or(Path::new("/"));
            for path in tokens::paths(name.as_bytes(), origin, self.search.arch) {
                if let Some(found) = self.look_at(&path, &mut missed)? {
                    self.add(found, needer, name);
                    return Ok(Ok(()));
                }
            }
            return Ok(Err(missed));
        }
        for place in self.search.places(&self.loaded, needer) {
            let (paths, others) = self.paths(&place, needer, name, &mut missed);
            let mut paths = paths.into_iter();
            let mut found = None;
            while found.is_none()
                && let Some(path) = paths.next()
            {
                found = self.look_at(&path, &mut missed)?;
            }
            let Some(found) = found else { continue };
            if let Place::Untold(folder) = &place
                && !self.needed.library_path.contains(folder)
            {
                self.needed.library_path.push(folder.clone());
            }
            self.add(found, needer, name);
            // The files that a more capable CPU would load instead.
            for other in others.into_iter().chain(paths) {
                if let Some(found) = self.look_at(&other, &mut Missed::default())? {
                    self.add(found, needer, name);
                }
            }
            return Ok(Ok(()));
        }
        Ok(Err(missed))
    }

    /// The files to try in a place, and the files that may be loaded instead if one of them exists.
    fn paths(
        &self,
        place: &Place,
        needer: usize,
        name: &OsStr,
        missed: &mut Missed,
    ) -> (Vec<PathBuf>, Vec<PathBuf>) {
        match place {
            Place::Folder(folder) | Place::Untold(folder) => {
                missed.looked.push(folder.display().to_string());
                (
                    vec![folder.join(name)],
                    self.search.for_capable(folder, name),
                )
            }
            Place::Cache => {
                missed.looked.push("the loader's cache".to_owned());
                let cache = self.search.cache.as_deref().and_then(Cache::parse);
                let find = |cache: Cache<'_>| {
                    let paths = cache.find(name, self.search.arch).into_iter();
                    paths.map(Path::to_path_buf).collect()
                };
                let mut paths: Vec<PathBuf> = cache.map_or(Vec::new(), find);
                if self.loaded[needer].object.avoids_default {
                    paths.retain(|path| !path.parent().is_some_and(|at| self.search.is_own(at)));
                }
                (paths, Vec::new())
            }
        }
    }

    /// Tries a file. As for a loader, a file that is damaged or not ELF is an error, and a file for another
    /// machine is skipped.
    fn look_at(&mut self, path: &Path, missed: &mut Missed) -> Result<Option<Found>> {
        let read = self.tree.read(path, self.settings.memory)?;
        let Some((file, paths)) = read else {
            return Ok(None);
        };
        if let Some(kind) = foreign(&file, self.search.arch) {
            missed.foreign.push(format!("{} is {kind}", path.display()));
            return Ok(None);
        }
        let object = Object::read(&file, self.settings.memory);
        let object = object.with_context(|| path.display().to_string())?;
        self.needed.paths.extend(paths);
        Ok(Some(Found {
            path: path.to_path_buf(),
            object,
        }))
    }

    fn add(&mut self, found: Found, needer: usize, name: &OsStr) {
        self.names.insert(name.to_owned());
        self.names.extend(found.object.soname.clone());
        self.loaded.push(Loaded {
            path: found.path,
            object: found.object,
            needer: Some(needer),
        });
    }
}
