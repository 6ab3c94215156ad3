//! The toolchain that builds the kernel: rustup's, if it has the bare-metal target, or Debian's,
//! which builds `core` and `alloc` from the packaged source.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{find, rustup};
use crate::arch::Arch;
use crate::layout::Layout;
use crate::refusal::Refusal;

/// The minor version of the compiler that the kernel needs (1.`MINOR`).
const MINOR: u32 = 95;

/// Debian's cargo; by its path, because rustup's is first in PATH.
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

/// A toolchain for the kernel of an architecture.
#[derive(Clone, Copy, Debug)]
pub struct BareMetal {
    toolchain: Toolchain,
    arch: Arch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Toolchain {
    /// The toolchain in use, with a ready-made `core` for the target.
    Rustup,
    /// Debian's compiler, which builds `core` itself.
    Debian,
}

impl BareMetal {
    /// Chooses the toolchain that the environment names, or the one that needs the least set-up.
    pub fn choose(arch: Arch) -> Result<Self, Refusal> {
        let target = arch.bare_metal();
        let toolchain = match std::env::var("FAULTLESS_TOOLCHAIN").as_deref() {
            Ok("rustup") if !rustup::has(target) => {
                return Err(Refusal::new(format!(
                    "FAULTLESS_TOOLCHAIN=rustup, but the target is missing: run 'rustup target add {target}'"
                )));
            }
            Ok("rustup") => Toolchain::Rustup,
            Ok("debian") => Toolchain::Debian,
            Ok(other) if !other.is_empty() => {
                return Err(Refusal::new(format!(
                    "FAULTLESS_TOOLCHAIN is '{other}': it has to be 'rustup' or 'debian'"
                )));
            }
            _ if rustup::has(target) => Toolchain::Rustup,
            _ => Toolchain::Debian,
        };
        Ok(BareMetal { toolchain, arch })
    }

    /// Whether it is the toolchain in use, which has clippy.
    pub fn is_in_use(self) -> bool {
        self.toolchain == Toolchain::Rustup
    }

    /// The Debian packages that are missing.
    pub fn missing(self) -> Vec<&'static str> {
        if self.toolchain == Toolchain::Rustup {
            return Vec::new();
        }
        let mut packages = Vec::new();
        // The three have the same version only if they are installed together.
        if !Path::new(DEBIAN_CARGO).exists() || !is_new_enough(DEBIAN_RUSTC) || !has_source() {
            packages.extend(["rustc-web", "cargo-web", "rust-web-src"]);
        }
        if !find::program("ld.lld") {
            packages.push("lld");
        }
        packages
    }

    /// Checks that it is installed and new enough, after its packages were installed. A machine without Debian's
    /// security archive in its package sources gets an older one.
    pub fn check(self) -> Result<(), Refusal> {
        if self.toolchain == Toolchain::Rustup || is_new_enough(DEBIAN_RUSTC) {
            return Ok(());
        }
        Err(Refusal::new(format!(
            "Debian's rustc-web here is older than 1.{MINOR}: add bookworm-security to apt's sources, \
             or run 'rustup target add {}', then ./x again",
            self.arch.bare_metal()
        )))
    }

    /// A cargo that runs `subcommand` in the kernel's folder, and the folder that it builds in:
    /// `part` of the usual one, or all of it if that is empty.
    pub fn cargo(self, layout: &Layout, subcommand: &str, part: &str) -> (Command, PathBuf) {
        let folder = layout.at("kernel");
        let (program, target) = match self.toolchain {
            Toolchain::Rustup => ("cargo", folder.join("target")),
            Toolchain::Debian => (DEBIAN_CARGO, folder.join("target/debian")),
        };
        let target = target.join(part);
        let mut cargo = Command::new(program);
        cargo.arg(subcommand).current_dir(&folder);
        cargo
            .args(["--target", self.arch.bare_metal(), "--target-dir"])
            .arg(&target);
        // These would replace the flags of the kernel's own configuration.
        cargo
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS");
        if self.toolchain == Toolchain::Debian {
            // This compiler does not know rustup's toolchain names.
            cargo
                .env_remove("RUSTUP_TOOLCHAIN")
                .env("RUSTC", DEBIAN_RUSTC);
            cargo
                .env("RUSTC_BOOTSTRAP", "1")
                .arg("-Zbuild-std=core,alloc");
            let target = self.arch.bare_metal();
            let linker = format!("target.{target}.linker='ld.lld'");
            // Added to the flags of the kernel's own configuration.
            let flags = format!("target.{target}.rustflags={DEBIAN_FLAGS}");
            cargo.args(["--config", &linker, "--config", &flags]);
        }
        (cargo, target)
    }
}

const DEBIAN_FLAGS: &str = "['-Clinker-flavor=ld.lld', '-Crelocation-model=static']";

/// Whether a compiler is new enough. Debian 12 also has a package `rustc`, version 1.63, with the same path.
fn is_new_enough(rustc: &str) -> bool {
    let Ok(output) = Command::new(rustc).arg("--version").output() else {
        return false;
    };
    minor_version(&String::from_utf8_lossy(&output.stdout)).is_some_and(|minor| minor >= MINOR)
}

/// The 95 of `rustc 1.95.0 (…)`.
fn minor_version(line: &str) -> Option<u32> {
    line.strip_prefix("rustc 1.")?
        .split('.')
        .next()?
        .parse()
        .ok()
}

fn has_source() -> bool {
    Path::new("/usr/lib/rustlib/src/rust/library/core/Cargo.toml").exists()
}

#[cfg(test)]
mod tests {
    use super::minor_version;

    #[test]
    fn reads_the_version_of_a_compiler() {
        assert_eq!(
            minor_version("rustc 1.95.0 (59807616e 2026-04-14)"),
            Some(95)
        );
        assert_eq!(minor_version("rustc 1.63.0"), Some(63));
        assert_eq!(minor_version("something else"), None);
    }
}
