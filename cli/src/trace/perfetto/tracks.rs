//! Tracks and their names.

use std::collections::HashMap;

use faultless_trace::Switch;
use serde_json::{Value as Json, json};

use crate::trace::seen::name_of;

/// The process of the CPUs' tracks; the machines' own have higher numbers.
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
    /// What names a track, where it has no name yet or another one; a process by the thread seen
    /// first and by its main thread, whose name changes when it executes another program.
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

/// A thread's name, or its number: it has no name before its first program is there, and Perfetto
/// takes no empty ones.
pub fn shown_name(thread: &Switch, number: u32) -> String {
    match name_of(thread) {
        "" => format!("thread {number}"),
        name => name.to_owned(),
    }
}
