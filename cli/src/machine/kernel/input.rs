//! The program's standard input: this command's, passed on as the guest asks for it.
//!
//! The guest sends one byte for each piece it wants; the answer is the piece's length in two bytes,
//! the lower one first, and the piece. A length of 0 is the end of input. So a program that does
//! not read its input leaves this command's alone. A regular file is not passed on but given to the
//! guest as a file (`StandardInput::of_this_command`).

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, Result};

/// The longest piece that the guest takes.
const LONGEST: usize = 4096;

/// Where a program's standard input comes from.
pub enum StandardInput {
    /// It is at its end.
    Nothing,
    /// A file's content, from where the file stands.
    Content(Vec<u8>),
    /// It comes piece by piece.
    Pieces,
}

impl StandardInput {
    /// What this command's standard input is, if it is at most as long as `most` as a file.
    pub fn of_this_command(most: u64) -> Self {
        let Ok(own) = io::stdin().as_fd().try_clone_to_owned() else {
            // It is closed.
            return Self::Nothing;
        };
        let mut file = File::from(own);
        let Ok(metadata) = file.metadata() else {
            return Self::Nothing;
        };
        if !metadata.is_file() {
            return Self::Pieces;
        }
        // Read without moving: whoever has the file open with us goes on where it stands.
        let position = io::Seek::stream_position(&mut file).unwrap_or(0);
        let length = metadata.len().saturating_sub(position);
        let Some(length) = usize::try_from(length).ok().filter(|&l| l as u64 <= most) else {
            return Self::Pieces;
        };
        let mut content = vec![0; length];
        match file.read_exact_at(&mut content, position) {
            Ok(()) => Self::Content(content),
            Err(_) => Self::Pieces,
        }
    }
}

/// The channel by which the guest asks.
pub struct Input {
    path: PathBuf,
}

impl Input {
    /// Listens at `path` and answers from `source` until the guest is gone. Nobody waits for the
    /// thread that does: it may be reading from somebody who never writes.
    pub fn open(path: PathBuf, source: impl Read + Send + 'static) -> Result<Self> {
        let listener = UnixListener::bind(&path)
            .with_context(|| format!("cannot listen at {}", path.display()))?;
        thread::spawn(move || serve(&listener, source));
        Ok(Self { path })
    }

    /// Where QEMU has to connect.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A guest that is gone wants nothing more.
fn serve(listener: &UnixListener, mut source: impl Read) -> io::Result<()> {
    let (mut guest, _) = listener.accept()?;
    let mut piece = [0; LONGEST];
    let mut request = [0];
    while guest.read(&mut request)? != 0 {
        // What cannot be read is at its end.
        let length = read_some(&mut source, &mut piece).unwrap_or(0);
        let size = u16::try_from(length).unwrap_or(0).to_le_bytes();
        guest.write_all(&size)?;
        guest.write_all(&piece[..length])?;
    }
    Ok(())
}

fn read_some(source: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Input;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    #[test]
    fn answers_each_request_with_a_piece_and_the_end_with_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let input = Input::open(folder.path().join("i"), &b"abc"[..]).unwrap();
        let mut guest = UnixStream::connect(input.path()).unwrap();
        let mut ask = |answer: &mut [u8]| {
            guest.write_all(b"R").unwrap();
            guest.read_exact(answer).unwrap();
        };
        let mut piece = [0; 5];
        ask(&mut piece);
        assert_eq!(piece, *b"\x03\0abc");
        let mut end = [1; 2];
        ask(&mut end);
        assert_eq!(end, [0, 0]);
    }
}
