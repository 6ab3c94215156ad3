//! The host's kernel, in child processes of this one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, io, process};

use crate::executor::Mode;
use crate::side::{Side, Stopped, read_digests, read_records};
use crate::{Program, Record, encode_all};

/// The host's kernel.
pub struct HostSide {
    executor: PathBuf,
}

impl HostSide {
    /// Uses this executor.
    pub fn new(executor: &Path) -> Self {
        HostSide {
            executor: executor.to_path_buf(),
        }
    }

    fn run(&self, programs: &[Program], mode: Mode) -> Result<(String, String), Stopped> {
        let stopped = |error: io::Error| Stopped {
            after: 0,
            why: error.to_string(),
        };
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = env::temp_dir().join(format!("faultless-programs-{}-{number}", process::id()));
        fs::write(&file, encode_all(programs)).map_err(stopped)?;
        let output = Command::new(&self.executor)
            .arg(&file)
            .arg(mode.name())
            .env_clear()
            .stdin(Stdio::null())
            .output();
        // Not needed any more; a failure does no harm.
        let _ = fs::remove_file(&file);
        let output = output.map_err(stopped)?;
        let said = String::from_utf8_lossy(&output.stderr);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((text, format!("{} {said}", output.status)))
    }
}

impl Side for HostSide {
    fn name(&self) -> &'static str {
        "host"
    }

    fn digests(&mut self, programs: &[Program]) -> Result<Vec<u64>, Stopped> {
        let (text, why) = self.run(programs, Mode::Digest)?;
        read_digests(&text, programs.len(), &why)
    }

    fn records(&mut self, programs: &[Program]) -> Result<Vec<Record>, Stopped> {
        let (text, why) = self.run(programs, Mode::Detail)?;
        read_records(&text, programs.len(), &why)
    }
}
