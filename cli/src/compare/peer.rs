//! What our kernel is compared with: a Linux that was fetched, or itself under another policy.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::{Series, modules};
use crate::arch::Arch;
use crate::machine::Policy;
use crate::machine::kernel::{Module, System};
use crate::paths;
use crate::show::Sink;
use crate::swap::Swap;

/// The other side of a comparison.
#[derive(Clone, Debug)]
pub enum Peer {
    /// A kernel of Debian's.
    Linux {
        /// Its series.
        series: Series,
        /// The architecture that it is for.
        arch: Arch,
        /// The version of Debian's package.
        version: String,
        /// Its first program.
        init: Vec<u8>,
    },
    /// Our kernel under this policy.
    Policy(Policy),
}

/// The folder of a kernel.
fn folder(series: Series, arch: Arch) -> PathBuf {
    paths::linux().join(format!("{}{}", series.folder(), arch.suffix()))
}

impl Peer {
    /// Finds the kernel of this series, if it is installed.
    pub fn find(series: Series, arch: Arch) -> Result<Self> {
        let folder = folder(series, arch);
        let peer = series.peer();
        fs::metadata(folder.join("vmlinuz")).with_context(|| {
            let folder = folder.display();
            format!("{peer} is left out: its kernel is not in {folder}")
        })?;
        let version = fs::read_to_string(folder.join("version"));
        let init = paths::linux().join(format!("init{}", arch.suffix()));
        Ok(Peer::Linux {
            series,
            arch,
            version: version.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned()),
            init: fs::read(&init).with_context(|| {
                format!("cannot read {}: ./x compare builds it", init.display())
            })?,
        })
    }

    /// Its name in tables and files.
    pub fn name(&self) -> &'static str {
        match self {
            Peer::Linux { series, .. } => series.peer(),
            Peer::Policy(policy) => policy.name(),
        }
    }

    /// The version of its package.
    pub fn version(&self) -> &str {
        match self {
            Peer::Linux { version, .. } => version,
            Peer::Policy(_) => "this commit",
        }
    }

    /// Its settings, for tables and files.
    pub fn settings(&self) -> Vec<&'static str> {
        match self {
            Peer::Linux { series, arch, .. } => series.settings(*arch),
            Peer::Policy(_) => Vec::new(),
        }
    }

    /// The policy of a program's faults, if that is ours to say.
    pub fn policy(&self) -> Policy {
        match self {
            Peer::Linux { .. } => Policy::Speculative,
            Peer::Policy(policy) => *policy,
        }
    }

    /// The modules that it needs for this swap, and for guests.
    pub fn modules(&self, swap: Option<Swap>, kvm: bool) -> Result<Vec<Module>> {
        let Peer::Linux { series, arch, .. } = self else {
            return Ok(Vec::new());
        };
        let names = swap
            .map(|swap| modules::of(swap.device))
            .unwrap_or_default();
        let of_kvm = if kvm { modules::KVM } else { &[] };
        modules::read(&folder(*series, *arch), &[names, of_kvm])
    }

    /// The system that boots it.
    ///
    /// # Errors
    /// Our kernel is not built.
    pub fn system(&self, arch: Arch, warm: bool) -> Result<System> {
        match self {
            Peer::Linux {
                series, arch, init, ..
            } => Ok(System {
                kernel: folder(*series, *arch).join("vmlinuz"),
                append: Some(series.command_line(*arch)),
                init: Some(init.clone()),
                modules: Vec::new(),
                warm,
                seed: None,
                stderr: Sink::Nowhere,
            }),
            Peer::Policy(_) => Ok(System {
                warm,
                ..System::ours(arch)?
            }),
        }
    }
}
