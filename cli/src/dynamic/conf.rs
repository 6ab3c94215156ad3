//! Reads `/etc/ld.so.conf`, the folders from which glibc's cache is made, and `/etc/ld-musl-ARCH.path`, the
//! folders that musl's loader searches.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::LONGEST_TEXT;
use crate::tree::Tree;

/// Limit of nested inclusion: a file may include itself.
const DEEPEST: u32 = 8;

/// The folders that a configuration names, in order; empty if the file is missing.
pub fn folders(tree: &Tree, file: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    read(tree, file, DEEPEST, &mut folders)?;
    Ok(folders)
}

fn read(tree: &Tree, file: &Path, depth: u32, folders: &mut Vec<PathBuf>) -> Result<()> {
    let Some((text, _)) = tree.read(file, LONGEST_TEXT)? else {
        return Ok(());
    };
    for line in text.split(|&byte| byte == b'\n') {
        let line = line.split(|&byte| byte == b'#').next().unwrap_or(line);
        let mut words = line
            .split(|byte| byte.is_ascii_whitespace() || matches!(byte, b':' | b','))
            .filter(|word| !word.is_empty());
        match words.next() {
            Some(b"include") if depth > 0 => {
                for pattern in words {
                    let pattern = beside(file, Path::new(OsStr::from_bytes(pattern)));
                    for included in matching(tree, &pattern)? {
                        read(tree, &included, depth - 1, folders)?;
                    }
                }
            }
            // `hwcap`, for libraries with capabilities in their paths, is obsolete.
            Some(b"include" | b"hwcap") | None => {}
            Some(first) => {
                for word in [first].into_iter().chain(words) {
                    // `FOLDER=KIND`, an old form.
                    let folder = word.split(|&byte| byte == b'=').next().unwrap_or(word);
                    let folder = PathBuf::from(OsStr::from_bytes(folder));
                    if folder.is_absolute() && !folders.contains(&folder) {
                        folders.push(folder);
                    }
                }
            }
        }
    }
    Ok(())
}

fn beside(file: &Path, path: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("/")).join(path)
}

/// The files that match a pattern, which has wildcards in its last name only.
fn matching(tree: &Tree, pattern: &Path) -> Result<Vec<PathBuf>> {
    let (Some(folder), Some(name)) = (pattern.parent(), pattern.file_name()) else {
        return Ok(Vec::new());
    };
    let real = tree.walk(folder)?.real;
    let mut names = tree.list(&real);
    names.retain(|listed| is_match(name.as_bytes(), listed.as_bytes()));
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// Whether a name matches a pattern with `*` and `?`. A hidden name matches only a pattern that begins with a dot.
fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    fn fits(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => (0..=name.len()).any(|taken| fits(rest, &name[taken..])),
            (Some((b'?', pattern)), Some((_, name))) => fits(pattern, name),
            (Some((one, pattern)), Some((other, name))) => one == other && fits(pattern, name),
            _ => false,
        }
    }
    name.starts_with(b".") == pattern.starts_with(b".") && fits(pattern, name)
}

/// The folders of `/etc/ld-musl-ARCH.path`; `None` if the file is missing.
pub fn musl_folders(tree: &Tree, file: &Path) -> Result<Option<Vec<PathBuf>>> {
    let Some((text, _)) = tree.read(file, LONGEST_TEXT)? else {
        return Ok(None);
    };
    let words = text.split(|byte| matches!(byte, b'\n' | b':'));
    let words = words.filter(|word| !word.is_empty());
    Ok(Some(
        words
            .map(|word| PathBuf::from(OsStr::from_bytes(word)))
            .collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::{Path, PathBuf, Tree, folders, is_match, musl_folders};
    use crate::machine::Added;
    use std::fs;

    #[test]
    fn reads_what_is_included() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("etc/ld.so.conf", "include ld.so.conf.d/*.conf\n/last\n");
        write(
            "etc/ld.so.conf.d/b.conf",
            "# comment\n/b1 /b2 # more\nrelative\n/b3=libc6\n",
        );
        write("etc/ld.so.conf.d/a.conf", "/a\ninclude /etc/ld.so.conf\n");
        write("etc/ld.so.conf.d/c.txt", "/never\n");
        write("etc/ld-musl-x86_64.path", "/m1\n/m2:/m3\n");
        let tree = Tree::new(None, &[Added::whole(root.path())]);
        let found = folders(&tree, Path::new("/etc/ld.so.conf")).unwrap();
        let names = |found: &[PathBuf]| {
            let names = found.iter().map(|path| path.to_str().unwrap().to_owned());
            names.collect::<Vec<_>>().join(" ")
        };
        let mut sorted = found.clone();
        sorted.sort();
        assert_eq!(names(&sorted), "/a /b1 /b2 /b3 /last");
        assert_eq!(found[0], Path::new("/a"));
        assert!(folders(&tree, Path::new("/none")).unwrap().is_empty());
        let musl = musl_folders(&tree, Path::new("/etc/ld-musl-x86_64.path"));
        assert_eq!(names(&musl.unwrap().unwrap()), "/m1 /m2 /m3");
        assert_eq!(musl_folders(&tree, Path::new("/none")).unwrap(), None);
    }

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", ".a.conf", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a", "ab", false),
            ("*a*b", "xaxxb", true),
        ] {
            assert_eq!(
                is_match(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
    }
}
