//! A kernel in QEMU that runs programs: ours, or Debian's. Each batch is one boot.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use faultless_fuzz::executor::Mode;
use faultless_fuzz::side::{Side, Stopped, read_digests, read_records};
use faultless_fuzz::{Program, Record, encode_all};

use crate::compare::Peer;
use crate::machine::kernel::System;
use crate::machine::{Accel, Added, End, Files, Policy, Request};
use crate::paths;
use crate::show::{Kept, Sink};
use crate::size::Size;

/// Memory of the machine.
const MEMORY: Size = Size::mebi(1024);
/// How long one boot may take. A host that is busy with other things can be very slow.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Where programs are in there.
const FILE: &str = "/programs";

/// A kernel.
pub struct GuestSide {
    /// Debian's, or else ours.
    peer: Option<Peer>,
    cpus: u32,
    policy: usize,
    output: &'static Kept,
    folder: tempfile::TempDir,
}

impl GuestSide {
    /// Our kernel, or that of `peer`. Boots nothing yet.
    pub fn new(peer: Option<Peer>, cpus: u32) -> Result<Self> {
        let executor = paths::executor();
        fs::metadata(&executor).with_context(|| {
            let executor = executor.display();
            format!("the executor is not built ({executor}): ./x fuzz builds it")
        })?;
        let folder = tempfile::Builder::new().prefix("faultless-fuzz-").tempdir();
        Ok(GuestSide {
            peer,
            cpus,
            policy: 0,
            // There is one for each kernel, as long as this command runs.
            output: Box::leak(Box::default()),
            folder: folder.context("cannot make a folder for temporary files")?,
        })
    }

    /// Our kernel takes the next policy.
    fn next_policy(&mut self) -> Policy {
        self.policy += 1;
        // The default one more often than the others.
        [
            Policy::Speculative,
            Policy::Speculative,
            Policy::Classic,
            Policy::Speculative,
            Policy::VmaLock,
        ][self.policy % 5]
    }

    fn request(&mut self, programs: PathBuf, mode: Mode) -> Request {
        Request {
            program: vec![paths::executor().into(), FILE.into(), mode.name().into()],
            policy: self.next_policy(),
            cpus: self.cpus,
            memory: MEMORY,
            accel: Accel::Tcg,
            timeout: Some(PATIENCE),
            list_unknown: false,
            verify: false,
            count_instructions: false,
            stdout: Sink::Kept(self.output),
            files: Files {
                root: None,
                added: vec![Added {
                    host: programs,
                    guest: FILE.trim_start_matches('/').into(),
                }],
                variables: Vec::new(),
                input: false,
            },
        }
    }

    /// What it printed, and how it ended.
    fn boot(&mut self, programs: &[Program], mode: Mode) -> Result<(String, String)> {
        let file = self.folder.path().join("programs");
        let write = || format!("cannot write {}", file.display());
        fs::write(&file, encode_all(programs)).with_context(write)?;
        let request = self.request(file.clone(), mode);
        let system = match &self.peer {
            Some(peer) => peer.system(false),
            None => System {
                stderr: Sink::Nowhere,
                ..System::ours()?
            },
        };
        let booted = system.boot(&request)?;
        let text = String::from_utf8_lossy(&self.output.take()).into_owned();
        let said = booted.stderr.last_line().unwrap_or_default();
        let why = match booted.outcome.end {
            End::Exited(status) => format!("the executor ended with {status}; {said}"),
            End::Signalled(signal) => format!("signal {signal} killed the executor; {said}"),
            other => format!("{other:?}; {said}"),
        };
        let policy = request.policy.name();
        Ok((
            text,
            if self.peer.is_some() {
                why
            } else {
                format!("{why} (policy {policy})")
            },
        ))
    }

    fn run<T>(
        &mut self,
        programs: &[Program],
        mode: Mode,
        read: fn(&str, usize, &str) -> Result<Vec<T>, Stopped>,
    ) -> Result<Vec<T>, Stopped> {
        let (text, why) = self.boot(programs, mode).map_err(|error| Stopped {
            after: 0,
            why: format!("{error:#}"),
        })?;
        read(&text, programs.len(), &why)
    }
}

impl Side for GuestSide {
    fn name(&self) -> &'static str {
        self.peer
            .as_ref()
            .map_or("faultless", |peer| peer.series.peer())
    }

    fn digests(&mut self, programs: &[Program]) -> Result<Vec<u64>, Stopped> {
        self.run(programs, Mode::Digest, read_digests)
    }

    fn records(&mut self, programs: &[Program]) -> Result<Vec<Record>, Stopped> {
        self.run(programs, Mode::Detail, read_records)
    }
}
