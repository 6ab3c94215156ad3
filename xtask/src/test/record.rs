//! Which long steps have passed, and on which sources: `./x test --full` leaves those out, and says so.
//!
//! A record holds a hash over all that a step is built from: the files of its folders, the compiler's version, and the
//! step's own command. It lies in `.faultless/passed/`, so that a clean clone has none. What else a result depends on
//! (QEMU, Debian's kernels, the machine) is not in it: `--again` runs everything.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::count::Count;
use super::steps::Step;
use crate::layout::Layout;

/// Folders and files in which no source lies.
const NO_SOURCES: &[&str] = &["target", ".git", ".faultless"];

/// The hash of what a step tests, with `--full` or without, and for how many seconds.
pub fn hash(layout: &Layout, step: &Step, full: bool, seconds: Option<u32>) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    (step.name, full, seconds, compiler()).hash(&mut hasher);
    format!("{:?}", step.run).hash(&mut hasher);
    for source in step.sources {
        add(&layout.at(source), &mut hasher)?;
    }
    Ok(hasher.finish())
}

fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

/// Adds a file, or the files of a folder in the order of their names.
fn add(path: &Path, hasher: &mut DefaultHasher) -> io::Result<()> {
    if !path.is_dir() {
        path.file_name().hash(hasher);
        fs::read(path)?.hash(hasher);
        return Ok(());
    }
    let entries = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| {
        let name = path.file_name().unwrap_or_default();
        !NO_SOURCES.iter().any(|no| name == *no)
    });
    paths.sort();
    path.file_name().hash(hasher);
    paths.len().hash(hasher);
    paths.iter().try_for_each(|path| add(path, hasher))
}

fn file(layout: &Layout, step: &Step) -> PathBuf {
    layout.state().join("passed").join(step.name)
}

/// How many tests passed on sources with this hash; `None` if that is not recorded.
pub fn passed(layout: &Layout, step: &Step, hash: u64) -> Option<u32> {
    let text = fs::read_to_string(file(layout, step)).ok()?;
    let (recorded, passed) = text.trim().split_once(' ')?;
    let is_same = u64::from_str_radix(recorded, 16).ok()? == hash;
    passed.parse().ok().filter(|_| is_same)
}

/// Records the result of a step. A record that cannot be written costs a run.
pub fn write(layout: &Layout, step: &Step, hash: u64, count: Count) {
    let file = file(layout, step);
    if count.failed != 0 {
        let _ = fs::remove_file(file);
        return;
    }
    let _ = file.parent().map(fs::create_dir_all);
    let _ = fs::write(file, format!("{hash:016x} {}\n", count.passed));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::steps::STEPS;

    fn scratch(name: &str) -> Layout {
        let root =
            std::env::temp_dir().join(format!("faultless-record-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("crates/target")).unwrap();
        for source in STEPS.iter().flat_map(|step| step.sources) {
            let path = root.join(source);
            match Path::new(source).extension() {
                Some(_) => fs::write(path, "").unwrap(),
                None => fs::create_dir_all(path).unwrap(),
            }
        }
        Layout { root }
    }

    fn loom() -> &'static Step {
        STEPS.iter().find(|step| step.name == "loom").unwrap()
    }

    #[test]
    fn a_change_of_a_source_changes_the_hash() {
        let layout = scratch("change");
        let (source, built) = (layout.at("crates/mm/a.rs"), layout.at("crates/target/b"));
        fs::write(&source, "one").unwrap();
        let first = hash(&layout, loom(), true, None).unwrap();
        assert_eq!(hash(&layout, loom(), true, None).unwrap(), first);
        fs::write(built, "output").unwrap();
        assert_eq!(hash(&layout, loom(), true, None).unwrap(), first);
        assert_ne!(hash(&layout, loom(), false, None).unwrap(), first);
        assert_ne!(hash(&layout, loom(), true, Some(1)).unwrap(), first);
        fs::write(&source, "two").unwrap();
        let second = hash(&layout, loom(), true, None).unwrap();
        assert_ne!(second, first);
        fs::rename(&source, layout.at("crates/mm/c.rs")).unwrap();
        assert_ne!(hash(&layout, loom(), true, None).unwrap(), second);
        fs::remove_dir_all(layout.root).unwrap();
    }

    #[test]
    fn only_what_passed_on_the_same_sources_is_recorded() {
        let layout = scratch("passed");
        let count = |failed| Count { passed: 7, failed };
        assert_eq!(passed(&layout, loom(), 1), None);
        write(&layout, loom(), 1, count(0));
        assert_eq!(passed(&layout, loom(), 1), Some(7));
        assert_eq!(passed(&layout, loom(), 2), None);
        write(&layout, loom(), 2, count(1));
        assert_eq!(passed(&layout, loom(), 1), None);
        fs::remove_dir_all(layout.root).unwrap();
    }

    #[test]
    fn every_source_is_there() {
        let layout = Layout::find();
        for source in STEPS.iter().flat_map(|step| step.sources) {
            assert!(layout.at(source).exists(), "{source}");
        }
    }
}
