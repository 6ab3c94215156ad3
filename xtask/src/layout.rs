//! The paths of a checkout. All build output is in `target/`, `kernel/target/` and
//! `.faultless/`, which git ignores.

use std::path::{Path, PathBuf};

use crate::arch::Arch;

/// The folders of one checkout.
pub struct Layout {
    /// The root of the checkout.
    pub root: PathBuf,
}

impl Layout {
    /// The checkout that this tool was built from.
    pub fn find() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("xtask/ lies in the root");
        Layout {
            root: root.to_path_buf(),
        }
    }

    /// A path below the root.
    pub fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The folder of files that are neither cargo's nor the user's: kernel image, C programs, logs.
    pub fn state(&self) -> PathBuf {
        self.at(".faultless")
    }

    /// The log of a long-running task; creates its folder.
    pub fn log(&self, name: &str) -> PathBuf {
        let folder = self.state().join("log");
        // If the folder is not writable, opening the log fails.
        let _ = std::fs::create_dir_all(&folder);
        folder.join(format!("{name}.log"))
    }

    /// The folder of the packaged workloads, built for the kernel.
    pub fn programs(&self, arch: Arch) -> PathBuf {
        self.state().join(format!("bin{}", arch.suffix()))
    }

    /// The folder of musl for AArch64, and of its compiler.
    pub fn musl(&self) -> PathBuf {
        self.state().join("musl-aarch64")
    }

    /// The folder of the fetched kernels, and of the program that they start first.
    pub fn linux(&self) -> PathBuf {
        self.state().join("linux")
    }

    /// The folder of Linux's own tests, and of their source.
    pub fn linux_tests(&self) -> PathBuf {
        self.state().join("linux-tests")
    }

    /// The source of the program that fetched kernels start first.
    pub fn linux_init_source(&self) -> PathBuf {
        self.at("workloads/linux/init.c")
    }

    /// The program that runs the programs of `./x fuzz` on a kernel.
    pub fn executor(&self, arch: Arch) -> PathBuf {
        self.state().join(format!("executor{}", arch.suffix()))
    }

    /// The sources of the packaged workloads.
    pub fn program_sources(&self) -> PathBuf {
        self.at("workloads/c")
    }

    /// The command `faultless`.
    pub fn command(&self) -> PathBuf {
        self.at("target/release/faultless")
    }
}
