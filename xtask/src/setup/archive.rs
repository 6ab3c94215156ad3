//! Debian's archive: packages are fetched and unpacked, never installed.
//!
//! apt-get fetches them with a configuration, lists and a cache of its own in `.faultless/linux/apt`. So
//! the machine's are neither changed nor needed, and root is not either. Debian's signatures
//! are checked as always. Only the mirror is the machine's; Debian's own is the default.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{apt, find};
use crate::arch::Arch;
use crate::layout::Layout;
use crate::progress;
use crate::refusal::Refusal;

/// The keys that sign Debian's archives.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The mirror if the machine has none.
const MIRROR: &str = "http://deb.debian.org/debian";

/// An apt configuration for one suite of Debian, and one architecture.
pub struct Archive {
    folder: PathBuf,
    arch: Arch,
}

impl Archive {
    /// Fetches the list of a suite's packages; `name` is that of its folder.
    pub fn open(layout: &Layout, name: &str, suite: &str, arch: Arch) -> Result<Self, Refusal> {
        for tool in ["apt-get", "apt-cache", "dpkg-deb"] {
            if !find::program(tool) {
                return Err(Refusal::new(format!("there is no {tool} here")));
            }
        }
        let folder = layout.linux().join("apt");
        let folder = folder.join(format!("{name}{}", arch.suffix()));
        let mirror = mirror();
        let source = format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n");
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part)).map_err(|error| cannot_write(&folder, &error))?;
        }
        let list = folder.join("sources.list");
        fs::write(&list, source).map_err(|error| cannot_write(&list, &error))?;
        let archive = Archive { folder, arch };
        let mut update = archive.tool("apt-get");
        update.args(["--quiet", "update"]);
        archive.run("fetching Debian's list of packages", &mut update, layout)?;
        Ok(archive)
    }

    /// An apt tool that uses this configuration.
    pub fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        for (option, part) in [
            ("Dir::Etc::SourceList", "sources.list"),
            ("Dir::State::Lists", "lists"),
            ("Dir::Cache", "cache"),
        ] {
            command
                .arg("-o")
                .arg(format!("{option}={}", self.folder.join(part).display()));
        }
        for option in [
            "Dir::Etc::SourceParts=-",
            "APT::Sandbox::User=",
            "Acquire::Languages=none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
            "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false",
            "Acquire::Retries=2",
        ] {
            command.args(["-o", option]);
        }
        for option in ["APT::Architecture", "APT::Architectures"] {
            command
                .arg("-o")
                .arg(format!("{option}={}", self.arch.debian()));
        }
        command
    }

    fn run(&self, what: &str, command: &mut Command, layout: &Layout) -> Result<(), Refusal> {
        let log = layout.log("linux");
        match progress::run_logged(what, command, &log) {
            // apt-get update succeeds even if it fetched nothing; this message is the only sign.
            Ok(status) if status.success() && !apt::said(&log, "W: Failed to fetch") => Ok(()),
            Ok(_) => Err(Refusal::new(format!(
                "{what} failed ({})",
                apt::last_error(&log)
            ))),
            Err(error) => Err(Refusal::new(format!("{what} failed: {error}"))),
        }
    }

    /// Fetches a package and what it depends on, as if nothing was installed, and unpacks all of them into `root`, which
    /// is created.
    pub fn unpack_with_dependencies(
        &self,
        layout: &Layout,
        package: &str,
        root: &Path,
    ) -> Result<(), Refusal> {
        let nothing = self.folder.join("status");
        fs::write(&nothing, "").map_err(|error| cannot_write(&nothing, &error))?;
        fs::create_dir_all(root).map_err(|error| cannot_write(root, &error))?;
        // What was fetched for another one is none of this one's.
        let mut clean = self.tool("apt-get");
        clean.args(["--quiet", "clean"]);
        self.run("cleaning", &mut clean, layout)?;
        let mut fetch = self.tool("apt-get");
        fetch
            .arg("-o")
            .arg(format!("Dir::State::Status={}", nothing.display()))
            .args(["--quiet", "--yes", "--download-only"])
            .args(["--no-install-recommends", "install"])
            .arg(package);
        let what = format!("fetching {package} and its libraries");
        self.run(&what, &mut fetch, layout)?;
        let cache = self.folder.join("cache/archives");
        let files = fs::read_dir(&cache).map_err(|error| cannot_write(&cache, &error))?;
        for file in files.filter_map(|entry| Some(entry.ok()?.path())) {
            if file.extension().is_some_and(|end| end == "deb") {
                let mut unpack = Command::new("dpkg-deb");
                unpack.arg("--extract").arg(&file).arg(root);
                self.run("unpacking", &mut unpack, layout)?;
            }
        }
        Ok(())
    }

    /// Fetches a package, the newest or a version of it, and unpacks it into `root` in `folder`, which is created.
    pub fn download(
        &self,
        layout: &Layout,
        package: &str,
        version: Option<&str>,
        folder: &Path,
    ) -> Result<(), Refusal> {
        fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
        let mut fetch = self.tool("apt-get");
        fetch.current_dir(folder).args(["--quiet", "download"]);
        fetch.arg(match version {
            Some(version) => format!("{package}={version}"),
            None => package.to_owned(),
        });
        self.run(&format!("fetching {package}"), &mut fetch, layout)?;
        let mut files = fs::read_dir(folder).map_err(|error| cannot_write(folder, &error))?;
        let file = files.find_map(|entry| Some(entry.ok()?.path()));
        let file = file.ok_or_else(|| Refusal::new("apt-get fetched nothing"))?;
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("--extract").arg(file).arg(folder.join("root"));
        self.run(&format!("unpacking {package}"), &mut unpack, layout)
    }
}

/// The mirror from which the machine fetches Debian.
fn mirror() -> String {
    let uris = Command::new("apt-get")
        .args(["--print-uris", "update"])
        .output();
    let text = uris.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    mirror_in(&text.unwrap_or_default()).unwrap_or_else(|| MIRROR.to_owned())
}

/// The first archive that belongs to Debian's own suite, in a list of what apt would fetch.
fn mirror_in(uris: &str) -> Option<String> {
    uris.lines().find_map(|line| {
        let uri = line.strip_prefix('\'')?.split('\'').next()?;
        ["bookworm", "stable"].iter().find_map(|suite| {
            let archive = uri.strip_suffix(&format!("/dists/{suite}/InRelease"))?;
            archive
                .trim_end_matches('/')
                .ends_with("/debian")
                .then(|| archive.to_owned())
        })
    })
}

/// The refusal for a file or folder that cannot be written.
pub fn cannot_write(path: &Path, error: &io::Error) -> Refusal {
    Refusal::new(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::mirror_in;

    #[test]
    fn the_mirror_is_that_of_the_machine() {
        let uris = "'http://x.org/deb/dists/bookworm/InRelease' x 0\n\
                    'http://m.org/debian-security/dists/bookworm-security/InRelease' x 0\n\
                    'http://m.org/debian/dists/bookworm-updates/InRelease' x 0\n\
                    'http://m.org/debian/dists/bookworm/InRelease' x 0\n\
                    'http://n.org/debian/dists/bookworm/InRelease' x 0\n";
        assert_eq!(mirror_in(uris).as_deref(), Some("http://m.org/debian"));
        assert_eq!(mirror_in("W: nothing"), None);
    }
}
