//! A Linux kernel that was fetched.

use std::fs;

use anyhow::{Context as _, Result};

use super::Series;
use crate::machine::kernel::System;
use crate::paths;
use crate::show::Sink;

/// A Linux to compare with.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its series.
    pub series: Series,
    /// The version of Debian's package.
    pub version: String,
    /// Its first program.
    pub(super) init: Vec<u8>,
}

impl Peer {
    /// Finds the kernel of this series, if it is installed.
    pub fn find(series: Series) -> Result<Self> {
        let folder = paths::linux().join(series.folder());
        let peer = series.peer();
        fs::metadata(folder.join("vmlinuz")).with_context(|| {
            let folder = folder.display();
            format!("{peer} is left out: its kernel is not in {folder}")
        })?;
        let version = fs::read_to_string(folder.join("version"));
        let init = paths::linux().join("init");
        Ok(Peer {
            series,
            version: version.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned()),
            init: fs::read(&init).with_context(|| {
                format!("cannot read {}: ./x compare builds it", init.display())
            })?,
        })
    }

    /// The system that boots it.
    pub fn system(&self, warm: bool) -> System {
        System {
            kernel: paths::linux().join(self.series.folder()).join("vmlinuz"),
            append: Some(self.series.command_line()),
            init: Some(self.init.clone()),
            warm,
            seed: None,
            stderr: Sink::Nowhere,
        }
    }
}
