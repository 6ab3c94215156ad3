//! The destination of `--json`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

/// A file, or stdout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// `-`
    Stdout,
    /// Everything else.
    File(PathBuf),
}

impl FromStr for Destination {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "" => bail!("the name of the file is empty"),
            "-" => Ok(Destination::Stdout),
            path => Ok(Destination::File(path.into())),
        }
    }
}

impl Destination {
    /// Refuses a file that cannot be written, before a long run is lost to it. Changes nothing.
    pub fn check(&self) -> Result<()> {
        let Destination::File(path) = self else {
            return Ok(());
        };
        let existed = path.exists();
        let open = OpenOptions::new().append(true).create(true).open(path);
        open.with_context(|| format!("cannot write {}", path.display()))?;
        if !existed {
            // A file left behind is empty, and about to be written.
            let _ = fs::remove_file(path);
        }
        Ok(())
    }

    /// Writes `content` as JSON that a person can read, too.
    pub fn write(&self, content: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_string_pretty(content).context("cannot write JSON")?;
        text.push('\n');
        match self {
            Destination::Stdout => io::stdout()
                .lock()
                .write_all(text.as_bytes())
                .context("cannot write to stdout"),
            Destination::File(path) => write_whole(path, text.as_bytes())
                .with_context(|| format!("cannot write {}", path.display())),
        }
    }
}

/// Replaces a regular file as a whole, so that a reader never sees half of it. Other files are written in place.
fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return fs::write(path, content);
    }
    // A link is kept, and its target replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let mut name = target.clone().into_os_string();
    name.push(".tmp");
    let written = fs::write(&name, content).and_then(|()| fs::rename(&name, &target));
    // A folder may refuse new files and still hold a writable one.
    written.or_else(|_| fs::write(&target, content))
}

#[cfg(test)]
mod tests {
    use super::Destination;

    #[test]
    fn a_check_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let new = Destination::File(folder.path().join("new.json"));
        new.check().unwrap();
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        assert!(
            Destination::File(folder.path().join("no/such.json"))
                .check()
                .is_err()
        );
        assert!(
            Destination::File(folder.path().to_path_buf())
                .check()
                .is_err()
        );
    }

    #[test]
    fn writes_over_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        std::fs::write(&path, "x".repeat(1000)).unwrap();
        Destination::File(path.clone()).write(&[1]).unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "[\n  1\n]\n");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn a_dash_is_stdout() {
        assert_eq!("-".parse::<Destination>().unwrap(), Destination::Stdout);
        assert!("".parse::<Destination>().is_err());
    }
}
