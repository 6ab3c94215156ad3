//! Debian's kernels, to boot beside ours: fetched as packages and unpacked, never installed.
//!
//! An existing kernel is kept. To fetch a newer one, remove its folder. Modules fit one version only: those of an
//! existing kernel are fetched with that version.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::archive::{Archive, cannot_write};
use crate::arch::Arch;
use crate::layout::Layout;
use crate::refusal::Refusal;

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
pub fn provide(layout: &Layout, name: &str, arch: Arch) -> Result<(), Refusal> {
    let series = find_series(name)?;
    if folder(layout, series, arch).join("vmlinuz").is_file() {
        return Ok(());
    }
    fetch(layout, series, arch, None).map_err(|why| {
        let suffix = arch.suffix();
        Refusal::new(format!("linux-{name}{suffix} cannot be fetched: {why}"))
    })
}

/// Fetches the modules of the kernel that [`provide`] has fetched, unless they are there already.
pub fn provide_modules(layout: &Layout, name: &str, arch: Arch) -> Result<(), Refusal> {
    let series = find_series(name)?;
    let folder = folder(layout, series, arch);
    // Without a kernel its own refusal has been reported.
    if has_all_modules(&folder.join("modules"), arch) || !folder.join("vmlinuz").is_file() {
        return Ok(());
    }
    let version = fs::read_to_string(folder.join("version")).unwrap_or_default();
    fetch(layout, series, arch, Some(version.trim())).map_err(|why| {
        let (suffix, folder) = (arch.suffix(), folder.display());
        Refusal::new(format!(
            "the modules of linux-{name}{suffix} cannot be fetched: {why}; remove {folder} to fetch a newer kernel with its \
             modules"
        ))
    })
}

/// The folder of a kernel.
fn folder(layout: &Layout, series: &Series, arch: Arch) -> PathBuf {
    layout
        .linux()
        .join(format!("{}{}", series.name, arch.suffix()))
}

/// Whether a folder has the modules that every series has.
fn has_all_modules(folder: &Path, arch: Arch) -> bool {
    let has = |name: &str| {
        let ends = ["ko", "ko.xz"].iter();
        ends.map(|end| folder.join(format!("{name}.{end}")))
            .any(|file| file.is_file())
    };
    // KVM is no module on AArch64.
    ["brd", "virtio_blk", "zram"].into_iter().all(has) && (arch == Arch::AArch64 || has("kvm"))
}

fn find_series(name: &str) -> Result<&'static Series, Refusal> {
    let series = SERIES.iter().find(|series| series.name == name);
    series.ok_or_else(|| Refusal::new(format!("no kernel of the series {name} is known")))
}

/// The archive of the suite that has a series, with a fresh list of its packages.
fn archive(layout: &Layout, series: &Series, arch: Arch) -> Result<Archive, Refusal> {
    Archive::open(layout, series.name, series.suite, arch)
}

/// Unpacks the source of a series into `folder`, which is created. It is that of the newest kernel.
pub fn unpack_source(layout: &Layout, name: &str, folder: &Path) -> Result<(), Refusal> {
    let archive = archive(layout, find_series(name)?, Arch::X86_64)?;
    archive.download(layout, &format!("linux-source-{name}"), None, folder)
}

/// Fetches the newest kernel with its modules; with a version, only the modules of that one.
fn fetch(
    layout: &Layout,
    series: &Series,
    arch: Arch,
    version: Option<&str>,
) -> Result<(), Refusal> {
    let archive = archive(layout, series, arch)?;
    let package = newest(&archive, series.name, arch, version)?;
    let folder = folder(layout, series, arch);
    let part = layout.linux().join(format!("part-{}", std::process::id()));
    let result = archive
        .download(layout, &package.name, Some(&package.version), &part)
        .and_then(|()| match version {
            None => place(&part, &folder, &package),
            Some(_) => place_modules(&part, &folder, &package),
        });
    // Incomplete leftovers are useless.
    let _ = fs::remove_dir_all(&part);
    result
}

/// The newest kernel of a series for machines without hardware drivers, or that of a version.
fn newest(
    archive: &Archive,
    series: &str,
    arch: Arch,
    version: Option<&str>,
) -> Result<Package, Refusal> {
    let output = archive.tool("apt-cache").arg("dumpavail").output();
    let output = output.map_err(|error| Refusal::new(format!("apt-cache failed: {error}")))?;
    let list = String::from_utf8_lossy(&output.stdout);
    let found = packages(&list, series, arch)
        .filter(|package| version.is_none_or(|version| package.version == version))
        .max_by_key(|package| numbers(&package.version));
    found.ok_or_else(|| {
        let version = version.map_or_else(String::new, |version| format!(" {version}"));
        Refusal::new(format!(
            "Debian has no linux-image-{series}…-cloud-{}{version}",
            arch.debian()
        ))
    })
}

/// A package, and its version.
#[derive(Debug, PartialEq, Eq)]
struct Package {
    name: String,
    version: String,
}

/// The packages `linux-image-SERIES…-cloud-ARCH` of a list in Debian's format. All versions of a
/// series are numbers with dots and end in the same suffix.
fn packages(list: &str, series: &str, arch: Arch) -> impl Iterator<Item = Package> {
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
            .strip_suffix(arch.debian())?
            .strip_suffix("-cloud-")?;
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

#[cfg(test)]
mod tests {
    use super::{Arch, numbers, packages};

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
            let newest = packages(list, series, Arch::X86_64)
                .max_by_key(|package| numbers(&package.version));
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
        assert_eq!(packages(list, "6.12", Arch::AArch64).count(), 0);
        let list = list.replace("amd64", "arm64");
        assert_eq!(packages(&list, "6.12", Arch::AArch64).count(), 2);
    }
}
