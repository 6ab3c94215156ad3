//! Tracks and their names.

use std::collections::HashMap;

use faultless_trace::Switch;
use serde_json::{Value as Json, json};

use crate::trace::seen::name_of;

/// The process of the CPUs' tracks; the machine's processes have higher numbers.
const CPUS: u32 = 1;

/// A track: a process and a thread of it.
pub type Track = (u32, u32);

/// The track of a CPU, with its name.
pub fn of_cpu(cpu: u32) -> (Track, [u8; 16]) {
    let mut name = [0; 16];
    let text = format!("CPU {cpu}");
    let length = text.len().min(16);
    name[..length].copy_from_slice(&text.as_bytes()[..length]);
    ((CPUS, cpu + 1), name)
}

/// The names that tracks have.
#[derive(Default)]
pub struct Tracks {
    names: HashMap<Track, [u8; 16]>,
}

impl Tracks {
    /// Returns the lines that name a track, if its name is new or has changed. A process is named after the
    /// thread seen first, then after its main thread, which an `execve` renames.
    pub fn name(&mut self, track: Track, name: [u8; 16]) -> Vec<Json> {
        if self.names.get(&track) == Some(&name) {
            return Vec::new();
        }
        let (pid, tid) = track;
        let is_new = !self.names.keys().any(|&(known, _)| known == pid);
        self.names.insert(track, name);
        let named = Switch {
            name,
            ..Switch::idle()
        };
        let name = &shown_name(&named, tid);
        let mut lines = Vec::new();
        if is_new || pid == tid {
            let process = if pid == CPUS { "CPUs" } else { name };
            lines.push(
                json!({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": process}}),
            );
        }
        lines.push(json!({"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}));
        lines
    }
}

/// A thread's name, or its number. A thread has no name before its first program is loaded, and Perfetto rejects
/// empty names.
pub fn shown_name(thread: &Switch, number: u32) -> String {
    match name_of(thread) {
        "" => format!("thread {number}"),
        name => name.to_owned(),
    }
}
