//! Debian's kernels, to boot beside ours: fetched as packages and unpacked, never installed.
//!
//! apt-get fetches them with a configuration, lists and a cache of its own in `.faultless/linux/apt`. So
//! the machine's are neither changed nor needed, and root is not either. Debian's signatures
//! are checked as always. Only the mirror is the machine's; Debian's own is the default.
//!
//! An existing kernel is kept. To fetch a newer one, remove its folder. Modules fit one version only: those of an
//! existing kernel are fetched with that version.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{apt, find};
use crate::layout::Layout;
use crate::progress;
use crate::refusal::Refusal;

/// The keys that sign Debian's archives.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The mirror if the machine has none.
const MIRROR: &str = "http://deb.debian.org/debian";

/// The modules to keep: those for swap and for guests. A series that lacks one does not need it.
const MODULES: [&str; 10] = [
    "brd",
    "irqbypass",
    "kvm",
    "kvm-amd",
    "lz4",
    "lz4_compress",
    "lz4hc_compress",
    "virtio_blk",
    "zram",
    "zsmalloc",
];

/// A series of kernels, and the suite of Debian 12 that has it.
struct Series {
    name: &'static str,
    suite: &'static str,
}

const SERIES: [Series; 2] = [
    Series {
        name: "6.1",
        suite: "bookworm",
    },
    Series {
        name: "6.12",
        suite: "bookworm-backports",
    },
];

/// The names of all series.
pub fn all() -> impl Iterator<Item = &'static str> {
    SERIES.iter().map(|series| series.name)
}

/// Fetches the newest kernel of a series, unless there is one already.
pub fn provide(layout: &Layout, name: &str) -> Result<(), Refusal> {
    let series = find_series(name)?;
    if layout.linux().join(name).join("vmlinuz").is_file() {
        return Ok(());
    }
    fetch(layout, series, None)
        .map_err(|why| Refusal::new(format!("linux-{name} cannot be fetched: {why}")))
}

/// Fetches the modules of the kernel that [`provide`] has fetched, unless they are there already.
pub fn provide_modules(layout: &Layout, name: &str) -> Result<(), Refusal> {
    let series = find_series(name)?;
    let folder = layout.linux().join(name);
    // Without a kernel its own refusal has been reported.
    if has_all_modules(&folder.join("modules")) || !folder.join("vmlinuz").is_file() {
        return Ok(());
    }
    let version = fs::read_to_string(folder.join("version")).unwrap_or_default();
    fetch(layout, series, Some(version.trim())).map_err(|why| {
        let folder = folder.display();
        Refusal::new(format!(
            "the modules of linux-{name} cannot be fetched: {why}; remove {folder} to fetch a newer kernel with its \
             modules"
        ))
    })
}

/// Whether a folder has the modules that every series has.
fn has_all_modules(folder: &Path) -> bool {
    let has = |name: &str| {
        let ends = ["ko", "ko.xz"].iter();
        ends.map(|end| folder.join(format!("{name}.{end}")))
            .any(|file| file.is_file())
    };
    ["brd", "virtio_blk", "zram", "kvm"].into_iter().all(has)
}

fn find_series(name: &str) -> Result<&'static Series, Refusal> {
    let series = SERIES.iter().find(|series| series.name == name);
    series.ok_or_else(|| Refusal::new(format!("no kernel of the series {name} is known")))
}

/// Fetches the newest kernel with its modules; with a version, only the modules of that one.
fn fetch(layout: &Layout, series: &Series, version: Option<&str>) -> Result<(), Refusal> {
    for tool in ["apt-get", "apt-cache", "dpkg-deb"] {
        if !find::program(tool) {
            return Err(Refusal::new(format!("there is no {tool} here")));
        }
    }
    let apt = Apt::prepare(layout, series)?;
    apt.get("fetching Debian's list of kernels", &["update"], layout)?;
    let package = apt.package(series.name, version)?;
    let folder = layout.linux().join(series.name);
    let part = layout.linux().join(format!("part-{}", std::process::id()));
    let result = apt
        .download(layout, &package, &part)
        .and_then(|()| match version {
            None => place(&part, &folder, &package),
            Some(_) => place_modules(&part, &folder, &package),
        });
    // Incomplete leftovers are useless.
    let _ = fs::remove_dir_all(&part);
    result
}

/// An apt configuration for one series.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn prepare(layout: &Layout, series: &Series) -> Result<Self, Refusal> {
        let folder = layout.linux().join("apt").join(series.name);
        let mirror = mirror();
        let source = format!("deb [signed-by={KEYRING}] {mirror} {} main\n", series.suite);
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part)).map_err(|error| cannot_write(&folder, &error))?;
        }
        let list = folder.join("sources.list");
        fs::write(&list, source).map_err(|error| cannot_write(&list, &error))?;
        Ok(Apt { folder })
    }

    /// An apt tool that uses this configuration.
    fn tool(&self, name: &str) -> Command {
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
            "APT::Architecture=amd64",
            "APT::Architectures=amd64",
            "APT::Sandbox::User=",
            "Acquire::Languages=none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
            "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false",
            "Acquire::Retries=2",
        ] {
            command.args(["-o", option]);
        }
        command
    }

    fn get(&self, what: &str, arguments: &[&str], layout: &Layout) -> Result<(), Refusal> {
        let mut command = self.tool("apt-get");
        command.arg("--quiet").args(arguments);
        self.run(what, &mut command, layout)
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

    /// The newest kernel of a series for machines without hardware drivers, or that of a version.
    fn package(&self, series: &str, version: Option<&str>) -> Result<Package, Refusal> {
        let output = self.tool("apt-cache").arg("dumpavail").output();
        let output = output.map_err(|error| Refusal::new(format!("apt-cache failed: {error}")))?;
        let list = String::from_utf8_lossy(&output.stdout);
        let found = packages(&list, series)
            .filter(|package| version.is_none_or(|version| package.version == version))
            .max_by_key(|package| numbers(&package.version));
        found.ok_or_else(|| {
            let version = version.map_or_else(String::new, |version| format!(" {version}"));
            Refusal::new(format!(
                "Debian has no linux-image-{series}…-cloud-amd64{version}"
            ))
        })
    }

    /// Fetches a package and unpacks it into `folder`, which is created.
    fn download(&self, layout: &Layout, package: &Package, folder: &Path) -> Result<(), Refusal> {
        fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
        let mut fetch = self.tool("apt-get");
        fetch.current_dir(folder).args(["--quiet", "download"]);
        fetch.arg(format!("{}={}", package.name, package.version));
        self.run(&format!("fetching {}", package.name), &mut fetch, layout)?;
        let mut files = fs::read_dir(folder).map_err(|error| cannot_write(folder, &error))?;
        let file = files.find_map(|entry| Some(entry.ok()?.path()));
        let file = file.ok_or_else(|| Refusal::new("apt-get fetched nothing"))?;
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("--extract").arg(file).arg(folder.join("root"));
        self.run(&format!("unpacking {}", package.name), &mut unpack, layout)
    }
}

/// A package, and its version.
#[derive(Debug, PartialEq, Eq)]
struct Package {
    name: String,
    version: String,
}

/// The packages `linux-image-SERIES…-cloud-amd64` of a list in Debian's format. All versions of a
/// series are numbers with dots and end in the same suffix.
fn packages(list: &str, series: &str) -> impl Iterator<Item = Package> {
    let field = |paragraph: &str, key: &str| {
        let line = paragraph.lines().find_map(|line| line.strip_prefix(key));
        line.map(|value| value.trim().to_owned())
    };
    list.split("\n\n").filter_map(move |paragraph| {
        let package = Package {
            name: field(paragraph, "Package:")?,
            version: field(paragraph, "Version:")?,
        };
        let release = package
            .name
            .strip_prefix("linux-image-")?
            .strip_suffix("-cloud-amd64")?;
        let rest = release.strip_prefix(series)?;
        rest.starts_with('.').then_some(package)
    })
}

/// The numbers in a version, in order: 6.12.95-1~bpo12+1 is 6, 12, 95, 1, 12, 1.
fn numbers(version: &str) -> Vec<u64> {
    let parts = version.split(|letter: char| !letter.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

/// Moves the kernel atomically to where the command expects it, with its version and its modules.
fn place(part: &Path, folder: &Path, package: &Package) -> Result<(), Refusal> {
    let release = package.name.trim_start_matches("linux-image-");
    let kernel = part.join("root/boot").join(format!("vmlinuz-{release}"));
    let made = part.join("made");
    let placed = fs::create_dir_all(&made)
        .and_then(|()| keep_modules(part, release, &made.join("modules")))
        .and_then(|()| fs::rename(&kernel, made.join("vmlinuz")))
        .and_then(|()| fs::write(made.join("version"), format!("{}\n", package.version)))
        .and_then(|()| fs::rename(&made, folder));
    placed.map_err(|error| cannot_write(folder, &error))
}

/// Moves the modules atomically to the kernel that is there already.
fn place_modules(part: &Path, folder: &Path, package: &Package) -> Result<(), Refusal> {
    let release = package.name.trim_start_matches("linux-image-");
    let made = part.join("modules");
    // An earlier version of this command has kept fewer.
    let _ = fs::remove_dir_all(folder.join("modules"));
    keep_modules(part, release, &made)
        .and_then(|()| fs::rename(&made, folder.join("modules")))
        .map_err(|error| cannot_write(folder, &error))
}

/// Moves the modules to keep from an unpacked package to a folder, which is created.
fn keep_modules(part: &Path, release: &str, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut folders = vec![part.join("root/lib/modules").join(release).join("kernel")];
    while let Some(from) = folders.pop() {
        for entry in fs::read_dir(from)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let file = path.file_name().unwrap_or_default();
            let name = file.to_str().and_then(|file| file.split('.').next());
            if name.is_some_and(|name| MODULES.contains(&name)) {
                fs::rename(&path, folder.join(file))?;
            }
        }
    }
    Ok(())
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

fn cannot_write(path: &Path, error: &io::Error) -> Refusal {
    Refusal::new(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{mirror_in, numbers, packages};

    #[test]
    fn the_newest_kernel_of_a_series_is_found() {
        let list = "Package: linux-image-6.1.0-9-cloud-amd64\nVersion: 6.1.27-1\n\n\
                    Package: linux-image-6.1.0-47-cloud-amd64\nArchitecture: amd64\nVersion: 6.1.170-3\n\n\
                    Package: linux-image-6.1.0-47-cloud-amd64-dbg\nVersion: 6.1.999-3\n\n\
                    Package: linux-image-6.1.0-56-amd64\nVersion: 6.1.999-3\n\n\
                    Package: linux-image-6.12.9+bpo-cloud-amd64\nVersion: 6.12.9-1~bpo12+1\n\n\
                    Package: linux-image-6.12.95+deb12-cloud-amd64\nVersion: 6.12.95-1~bpo12+1\n\n\
                    Package: linux-image-cloud-amd64\nVersion: 6.1.999-3\n";
        let name = |series| {
            let newest = packages(list, series).max_by_key(|package| numbers(&package.version));
            newest.map(|package| package.name)
        };
        assert_eq!(
            name("6.1").as_deref(),
            Some("linux-image-6.1.0-47-cloud-amd64")
        );
        assert_eq!(
            name("6.12").as_deref(),
            Some("linux-image-6.12.95+deb12-cloud-amd64")
        );
        assert_eq!(name("6.2"), None);
    }

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
