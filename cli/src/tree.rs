//! The tree that a program will find at `/`, searched before it is packed.
//!
//! * It has layers: the files of `--file`, the folder of `--root`, and, for programs with dependencies, the
//!   host's own files; before these its libraries for another architecture.
//! * At each path the first layer with an entry there counts. A folder has the entries of all layers.
//! * Links are followed in the whole tree, not in their layer, as they will be for the program.
//! * Paths are relative to `/` and have no slash at the beginning.
//! * A *real* path has no link above its last name. A file that is packed under its real path is found by
//!   every path that leads to it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::machine::Added;
use crate::size::Size;

/// The most links that Linux follows for one path.
const MOST_LINKS: u32 = 40;

/// Folders that are the kernel's own, whatever the host has there.
const KERNELS: [&str; 3] = ["dev", "proc", "sys"];

/// The layers.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// At their real paths.
    added: Vec<Added>,
    root: Option<PathBuf>,
    host: Vec<Added>,
}

/// Something in the tree.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The file, folder or link of the host; `None` for a folder that exists only because a file is added
    /// below it.
    pub host: Option<PathBuf>,
    /// Kind and permissions, as `stat(2)` has them.
    pub mode: u32,
    /// Its length, if it is a file.
    pub length: u64,
}

/// Where a path leads.
#[derive(Clone, Debug)]
pub struct Walked {
    /// The real paths of the links that were followed.
    pub links: Vec<PathBuf>,
    /// The real path that it leads to, even if nothing is there.
    pub real: PathBuf,
    /// The entry at that path.
    pub entry: Option<Entry>,
}

/// What to do with a link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Follow,
    Keep,
}

impl Tree {
    /// A tree of these layers: the folder `root`, then the files below each of `host`. Nothing is added yet.
    pub fn new(root: Option<&Path>, host: &[Added]) -> Self {
        Tree {
            added: Vec::new(),
            root: root.map(Path::to_path_buf),
            host: host.to_vec(),
        }
    }

    /// Adds a file or folder of the host. It hides the layers of `root` and `host`, but not what was added
    /// earlier. Returns its real path, and the real paths of the links that lead to it.
    pub fn add(&mut self, added: &Added) -> Result<(PathBuf, Vec<PathBuf>)> {
        let place = self.go(&added.guest, Last::Keep)?;
        self.added.push(Added {
            host: added.host.clone(),
            guest: place.real.clone(),
        });
        Ok((place.real, place.links))
    }

    /// Follows a path to its end.
    pub fn walk(&self, path: &Path) -> Result<Walked> {
        self.go(path, Last::Follow)
    }

    /// The same, but does not follow a link at its end.
    pub fn place(&self, path: &Path) -> Result<Walked> {
        self.go(path, Last::Keep)
    }

    fn go(&self, path: &Path, last: Last) -> Result<Walked> {
        let mut left = names(path);
        let mut walked = Walked {
            links: Vec::new(),
            real: PathBuf::new(),
            entry: self.look(Path::new("")),
        };
        let mut links = 0;
        while let Some(name) = left.pop() {
            if name == ".." {
                walked.real.pop();
                walked.entry = self.look(&walked.real);
                continue;
            }
            let place = walked.real.join(name);
            let entry = self.look(&place);
            if let Some(link) = entry.as_ref().filter(|entry| entry.is_link())
                && (last == Last::Follow || !left.is_empty())
            {
                links += 1;
                if links > MOST_LINKS {
                    bail!("/{}: too many links", path.display());
                }
                let target = link.target()?;
                if target.is_absolute() {
                    walked.real = PathBuf::new();
                }
                left.extend(names(&target));
                walked.links.push(place);
                continue;
            }
            walked.real = place;
            let leads_on = entry.as_ref().is_some_and(Entry::is_folder);
            walked.entry = entry;
            if !leads_on && !left.is_empty() {
                // There is nothing below.
                walked.real.extend(left.iter().rev());
                walked.entry = None;
                break;
            }
        }
        Ok(walked)
    }

    /// What is at a real path.
    pub fn look(&self, real: &Path) -> Option<Entry> {
        let added = self.added.iter().find_map(|added| {
            let rest = real.strip_prefix(&added.guest).ok()?;
            if rest == Path::new("") {
                // A link that the user names is followed.
                return Entry::of(added.host.clone(), &fs::metadata(&added.host).ok()?);
            }
            beneath(&added.host, rest)
        });
        let host = || {
            if KERNELS.iter().any(|name| real.starts_with(name)) {
                return None;
            }
            self.host.iter().find_map(|layer| {
                let rest = real.strip_prefix(&layer.guest).ok()?;
                beneath(&layer.host, rest)
            })
        };
        added
            .or_else(|| beneath(self.root.as_ref()?, real))
            .or_else(host)
            .or_else(|| self.is_above_added(real).then(Entry::folder))
    }

    fn is_above_added(&self, real: &Path) -> bool {
        real == Path::new("") || self.added.iter().any(|added| added.guest.starts_with(real))
    }

    /// The content of a file, and the real paths of the links that lead to it, with its own at the end.
    /// `None` if no file is there.
    pub fn read(&self, path: &Path, longest: Size) -> Result<Option<(Vec<u8>, Vec<PathBuf>)>> {
        let walked = self.walk(path)?;
        let Some(entry) = walked.entry.filter(Entry::is_file) else {
            return Ok(None);
        };
        let content = entry.read(longest)?;
        let mut paths = walked.links;
        paths.push(walked.real);
        Ok(Some((content, paths)))
    }

    /// The names in a folder, in order.
    pub fn list(&self, real: &Path) -> Vec<OsString> {
        let mut names = BTreeSet::new();
        let mut take = |folder: &Path| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            names.extend(entries.map(|entry| entry.file_name()));
        };
        let below = |layer: &Added| {
            let rest = real.strip_prefix(&layer.guest).ok()?;
            Some(layer.host.join(rest))
        };
        let root = self.root.iter().map(|root| root.join(real));
        let added = self.added.iter().filter_map(below);
        for folder in added.chain(root).chain(self.host.iter().filter_map(below)) {
            take(&folder);
        }
        for added in &self.added {
            let below = added.guest.strip_prefix(real).ok();
            if let Some(Component::Normal(name)) = below.and_then(|rest| rest.components().next()) {
                names.insert(name.to_owned());
            }
        }
        names.into_iter().collect()
    }
}

impl Entry {
    fn of(host: PathBuf, metadata: &Metadata) -> Option<Self> {
        Some(Entry {
            host: Some(host),
            mode: metadata.mode(),
            length: metadata.len(),
        })
    }

    fn folder() -> Self {
        Entry {
            host: None,
            mode: 0o040_755,
            length: 0,
        }
    }

    const fn is(&self, kind: u32) -> bool {
        self.mode & 0o170_000 == kind
    }

    /// Whether it is a regular file.
    pub const fn is_file(&self) -> bool {
        self.is(0o100_000)
    }

    /// Whether it is a regular file that may be executed.
    pub const fn is_executable(&self) -> bool {
        self.is_file() && self.mode & 0o111 != 0
    }

    /// Whether it is a folder.
    pub const fn is_folder(&self) -> bool {
        self.is(0o040_000)
    }

    /// Whether it is a symbolic link.
    pub const fn is_link(&self) -> bool {
        self.is(0o120_000)
    }

    fn path(&self) -> &Path {
        self.host.as_deref().unwrap_or(Path::new(""))
    }

    /// The target of a link.
    pub fn target(&self) -> Result<PathBuf> {
        fs::read_link(self.path()).with_context(|| reading(self.path()))
    }

    /// The first bytes of a file, up to `most` of them.
    pub fn read_first(&self, most: u64) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        let file = File::open(self.path());
        file.and_then(|file| file.take(most).read_to_end(&mut content))
            .with_context(|| reading(self.path()))?;
        Ok(content)
    }

    /// The content of a file of at most `longest` bytes.
    pub fn read(&self, longest: Size) -> Result<Vec<u8>> {
        if self.length > longest.0 {
            bail!("{} has more than {longest}", self.path().display());
        }
        fs::read(self.path()).with_context(|| reading(self.path()))
    }
}

fn reading(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

/// The names of a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    let mut names: Vec<_> = path.components().filter_map(name).collect();
    names.reverse();
    names
}

/// The entry at a real path below a folder of the host. `None` if a link is above its last name: in the whole
/// tree, a folder of another layer is there instead.
fn beneath(folder: &Path, real: &Path) -> Option<Entry> {
    let mut file = folder.to_path_buf();
    let mut names: Vec<&OsStr> = real.iter().collect();
    let last = names.pop();
    for name in names {
        file.push(name);
        if !fs::symlink_metadata(&file).ok()?.is_dir() {
            return None;
        }
    }
    let metadata = match last {
        Some(name) => {
            file.push(name);
            fs::symlink_metadata(&file)
        }
        None => fs::metadata(&file),
    };
    Entry::of(file, &metadata.ok()?)
}

#[cfg(test)]
mod tests {
    use super::{Added, Path, Size, Tree};
    use std::fs;
    use std::os::unix::fs::symlink;

    fn folder(files: &[&str], links: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        for (link, target) in links {
            let path = folder.path().join(link);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
        }
        folder
    }

    fn read(tree: &Tree, path: &str) -> Option<(String, Vec<String>)> {
        let (content, paths) = tree.read(Path::new(path), Size::mebi(1)).unwrap()?;
        let paths = paths.iter().map(|path| path.to_str().unwrap().to_owned());
        Some((String::from_utf8(content).unwrap(), paths.collect()))
    }

    fn paths(tree: &Tree, path: &str) -> Vec<String> {
        read(tree, path).unwrap().1
    }

    #[test]
    fn links_lead_on_within_the_tree() {
        let host = folder(
            &["usr/lib/deep/x.1"],
            &[
                ("lib", "usr/lib"),
                ("lib64", "/lib/deep"),
                ("usr/lib/x", "../../lib64/x.1"),
                ("usr/lib/out", "/../../../etc/passwd"),
                ("round", "round"),
            ],
        );
        let tree = Tree::new(None, &[Added::whole(host.path())]);
        assert_eq!(
            paths(&tree, "/lib/x"),
            ["lib", "usr/lib/x", "lib64", "lib", "usr/lib/deep/x.1"]
        );
        assert_eq!(
            paths(&tree, "lib/../lib/deep/./x.1").last().unwrap(),
            "usr/lib/deep/x.1"
        );
        assert!(read(&tree, "lib/out").is_none());
        assert!(read(&tree, "lib/x/below").is_none());
        assert!(read(&tree, "lib").is_none());
        assert!(tree.walk(Path::new("round")).is_err());
    }

    #[test]
    fn the_first_layer_counts() {
        let host = folder(&["usr/bin/a", "usr/bin/b", "dev/x"], &[("bin", "usr/bin")]);
        let root = folder(&["bin/a", "etc/c"], &[]);
        let tree = Tree::new(Some(root.path()), &[Added::whole(host.path())]);
        // The root has a folder where the host has a link.
        assert_eq!(paths(&tree, "bin/a"), ["bin/a"]);
        assert!(read(&tree, "bin/b").is_none());
        assert_eq!(paths(&tree, "usr/bin/b"), ["usr/bin/b"]);
        assert!(read(&tree, "dev/x").is_none());
    }

    #[test]
    fn what_is_added_goes_where_links_lead() {
        let host = folder(&["usr/bin/a"], &[("bin", "usr/bin"), ("usr/bin/l", "a")]);
        let other = folder(&["f", "d/g"], &[]);
        let mut tree = Tree::new(None, &[Added::whole(host.path())]);
        let mut add = |from: &str, to: &str| {
            let added = Added {
                host: other.path().join(from),
                guest: to.into(),
            };
            let (real, links) = tree.add(&added).unwrap();
            (real.to_str().unwrap().to_owned(), links.len())
        };
        assert_eq!(add("f", "bin/new"), ("usr/bin/new".to_owned(), 1));
        assert_eq!(add("f", "bin/l"), ("usr/bin/l".to_owned(), 1));
        assert_eq!(add("d", "opt/d"), ("opt/d".to_owned(), 0));
        assert_eq!(read(&tree, "usr/bin/new").unwrap().0, "f");
        assert_eq!(read(&tree, "bin/l").unwrap().0, "f");
        assert_eq!(read(&tree, "opt/d/g").unwrap().0, "d/g");
        let listed = tree.list(Path::new("usr/bin"));
        assert_eq!(listed, ["a", "l", "new"]);
        assert_eq!(tree.list(Path::new("opt")), ["d"]);
    }
}
