//! The host on which a figure was taken.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;

use serde::Serialize;

/// The properties of a host on which its figures depend.
#[derive(Debug, Serialize)]
pub struct Host {
    cpu: String,
    /// CPUs that this process may use.
    pub cores: usize,
    memory: u64,
    kernel: String,
    rustc: String,
}

impl Host {
    /// This host; a property that cannot be read is "unknown" or 0.
    pub fn this() -> Self {
        Host {
            cpu: entry("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            cores: thread::available_parallelism().map_or(0, Into::into),
            memory: memory().unwrap_or(0),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| unknown(), |release| release.trim().to_owned()),
            rustc: rustc().unwrap_or_else(unknown),
        }
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn memory() -> Option<u64> {
    let kib: u64 = entry("/proc/meminfo", "MemTotal")?
        .strip_suffix(" kB")?
        .parse()
        .ok()?;
    Some(kib << 10)
}

/// The value of the first line `NAME: VALUE` of a file.
fn entry(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let mut entries = text.lines().filter_map(|line| line.split_once(':'));
    entries
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

fn rustc() -> Option<String> {
    let output = Command::new("rustc")
        .arg("--version")
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn knows_this_host() {
        let host = super::Host::this();
        assert!(host.cores > 0 && host.memory > 0 && !host.kernel.is_empty());
    }
}
