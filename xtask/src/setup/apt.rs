//! Installation of Debian packages with apt-get.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use super::find;
use crate::layout::Layout;
use crate::progress;
use crate::refusal::Refusal;

/// Installs `packages`; does nothing, and needs nothing, if there are none.
pub fn install(layout: &Layout, packages: &[&str]) -> Result<(), Refusal> {
    if packages.is_empty() {
        return Ok(());
    }
    let names = packages.join(" ");
    if !find::program("apt-get") {
        return Err(Refusal::new(format!(
            "missing here, and there is no apt-get to install it: {names} (Debian's package names)"
        )));
    }
    if !is_root() {
        let line = format!("missing: run 'sudo apt-get install {names}', then ./x again");
        return Err(Refusal::new(line));
    }
    // Old lists name files that are gone, or only older versions. If fetching them fails, the existing
    // ones may still do.
    let lists = apt_get(layout, "fetching Debian's package lists", &["update"]);
    install_now(layout, &names, packages).map_err(|why| lists.err().unwrap_or(why))
}

fn install_now(layout: &Layout, names: &str, packages: &[&str]) -> Result<(), Refusal> {
    eprintln!("x: installing {names}");
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    apt_get(layout, &format!("installing {names}"), &arguments).map_err(|why| {
        Refusal::new(format!(
            "{why}; install {names} by hand, then run ./x again"
        ))
    })
}

fn apt_get(layout: &Layout, what: &str, arguments: &[&str]) -> Result<(), Refusal> {
    let log = layout.log("apt-get");
    let mut command = Command::new("apt-get");
    command
        .arg("--quiet")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive");
    match progress::run_logged(what, &mut command, &log) {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Refusal::new(format!(
            "apt-get failed ({})",
            last_error(&log)
        ))),
        Err(error) => Err(Refusal::new(format!("apt-get cannot be run: {error}"))),
    }
}

/// The last line with which apt-get reports an error.
pub fn last_error(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let text = text.unwrap_or_default();
    let error = text.lines().rev().find(|line| line.starts_with("E: "));
    let line = error.or(text.lines().next_back()).unwrap_or("no output");
    line.trim_start_matches("E: ").to_owned()
}

/// Whether a line of the log begins with `what`.
pub fn said(log: &Path, what: &str) -> bool {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    text.is_ok_and(|text| text.lines().any(|line| line.starts_with(what)))
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}
