//! A one-way channel from the guest: an I/O port in the guest, a socket on the host, and a thread that reads it.
//!
//! QEMU connects to the socket when it starts and writes each byte of the port to it.

use std::io::{self, Read as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, anyhow};

/// A channel that folds its bytes into a `T`.
pub struct Channel<T> {
    path: PathBuf,
    reader: JoinHandle<T>,
}

impl<T: Send + 'static> Channel<T> {
    /// Listens at `path` and gives each piece that arrives to `read`.
    pub fn open(
        path: PathBuf,
        state: T,
        read: impl FnMut(&mut T, &[u8]) + Send + 'static,
    ) -> Result<Self> {
        Self::open_to_end(path, state, read, |_| {})
    }

    /// The same, and calls `end` after the last piece.
    pub fn open_to_end(
        path: PathBuf,
        mut state: T,
        mut read: impl FnMut(&mut T, &[u8]) + Send + 'static,
        end: impl FnOnce(&mut T) + Send + 'static,
    ) -> Result<Self> {
        let listener = UnixListener::bind(&path)
            .with_context(|| format!("cannot listen at {}", path.display()))?;
        let reader = thread::spawn(move || {
            // A guest that never connects has written nothing.
            let _ = receive(&listener, |piece| read(&mut state, piece));
            end(&mut state);
            state
        });
        Ok(Channel { path, reader })
    }

    /// Where QEMU has to connect.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The final state; called when QEMU has ended.
    pub fn close(self) -> Result<T> {
        // If QEMU never connected, the reader still waits in `accept`: this connection ends the wait.
        drop(UnixStream::connect(&self.path));
        self.reader
            .join()
            .map_err(|_| anyhow!("a reader of the machine's output failed"))
    }
}

fn receive(listener: &UnixListener, mut read: impl FnMut(&[u8])) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => read(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Channel;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn gathers_what_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let gather = |all: &mut Vec<u8>, piece: &[u8]| all.extend_from_slice(piece);
        let channel = Channel::open(folder.path().join("c"), Vec::new(), gather).unwrap();
        let mut guest = UnixStream::connect(channel.path()).unwrap();
        guest.write_all(b"one ").unwrap();
        guest.write_all(b"two").unwrap();
        drop(guest);
        assert_eq!(channel.close().unwrap(), b"one two");
    }

    #[test]
    fn ends_without_a_guest() {
        let folder = tempfile::tempdir().unwrap();
        let channel = Channel::open(folder.path().join("c"), 7, |_, _| {}).unwrap();
        assert_eq!(channel.close().unwrap(), 7);
    }
}
