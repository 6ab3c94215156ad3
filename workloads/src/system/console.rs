//! The output of the process's threads, forwarded to the caller of the workload.
//!
//! The caller's writers need not be shared between threads, and a slow one slows the process
//! down as a full pipe would.

use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::process::{End, Process};

/// How often `stop` is polled.
const PATIENCE: Duration = Duration::from_millis(10);
/// Messages that are buffered.
const ROOM: usize = 64;

/// A message to the caller.
pub enum Message {
    /// To stdout.
    Out(String),
    /// To stderr.
    Err(String),
    /// The last message.
    Ended,
}

/// The channel from the threads to the caller.
pub fn channel() -> (SyncSender<Message>, Receiver<Message>) {
    sync_channel(ROOM)
}

/// Writes the output until the process has ended; ends the process when `stop` returns true.
pub fn serve(
    messages: &Receiver<Message>,
    process: &Process,
    stop: &dyn Fn() -> bool,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) {
    let mut asked = Instant::now();
    loop {
        match messages.recv_timeout(PATIENCE) {
            Ok(Message::Out(text)) => write_now(stdout, &text),
            Ok(Message::Err(text)) => write_now(stderr, &text),
            Ok(Message::Ended) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if asked.elapsed() >= PATIENCE {
            asked = Instant::now();
            if stop() {
                process.end(End::Stopped);
            }
        }
    }
}

fn write_now(to: &mut dyn Write, text: &str) {
    // A failed write does not stop the process.
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
}
