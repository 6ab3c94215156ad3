//! Output, carried from the process' threads to whoever called.
//!
//! The caller's writers need not be shared between threads, and a slow one slows the process
//! down as a full pipe would.

use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::process::{End, Process};

/// How often the caller is asked whether to stop.
const PATIENCE: Duration = Duration::from_millis(10);
/// Pieces of output on their way.
const ROOM: usize = 64;

/// Something for the caller.
pub enum Message {
    /// To stdout.
    Out(String),
    /// To stderr.
    Err(String),
    /// The last message.
    Ended,
}

/// A way from threads to the caller.
pub fn channel() -> (SyncSender<Message>, Receiver<Message>) {
    sync_channel(ROOM)
}

/// Writes what comes until the process has ended; ends it when `stop` says so.
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
    // Output that nobody takes is no reason to stop.
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
}
