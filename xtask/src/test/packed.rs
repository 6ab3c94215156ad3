//! Removes what cargo has unpacked of our own packages.
//!
//! To verify a package, cargo puts the packages that it depends on into a registry in the target folder, unpacks
//! them under `CARGO_HOME`, and builds them. A later run finds the same version unpacked and built, and would build
//! today's crate against the sources of an earlier run.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use crate::refusal::Refusal;

/// What the names of our packages begin with.
const OURS: &str = "faultless-";

/// Removes them, and what was built of them in the folder `target`, which holds nothing else.
///
/// # Errors
/// A folder that cannot be removed.
pub fn forget(target: &Path) -> Result<(), Refusal> {
    if let Err(error) = fs::remove_dir_all(target)
        && error.kind() != io::ErrorKind::NotFound
    {
        let target = target.display();
        return Err(Refusal::new(format!("could not remove {target}: {error}")));
    }
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let Some(home) = home else {
        return Ok(());
    };
    for kind in ["src", "cache"] {
        let registries = home.join("registry").join(kind);
        remove_in(&registries).map_err(|error| {
            Refusal::new(format!(
                "could not remove our own packages below {}: {error}",
                registries.display()
            ))
        })?;
    }
    Ok(())
}

/// Removes our packages from the registries of target folders, whose names begin with a hyphen.
fn remove_in(registries: &Path) -> io::Result<()> {
    for registry in entries(registries)? {
        let name = registry.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with('-') {
            continue;
        }
        for package in entries(&registry)? {
            let name = package.file_name().unwrap_or_default().to_string_lossy();
            if !name.starts_with(OURS) {
                continue;
            }
            match package.is_dir() {
                true => fs::remove_dir_all(&package)?,
                false => fs::remove_file(&package)?,
            }
        }
    }
    Ok(())
}

/// The paths in a folder; none if there is no folder.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
