//! Passes this command's standard input to the program, as the guest asks for it.
//!
//! * The guest sends one byte for each piece that it wants.
//! * The answer is the piece's length in four bytes, the lowest first; 0 is the end of input.
//! * If the byte is `W`, the piece is in the window before the answer is sent. The window is a file that is also
//!   memory of the machine.
//! * Otherwise the piece follows on the wire.
//!
//! So if a program does not read its input, this command's input stays unread. A regular file is not passed
//! on, but given to the guest as a file (`StandardInput::of_this_command`).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, Result};

/// The longest piece, and the window's size.
const LONGEST: usize = 64 << 10;
/// The longest piece on the wire.
const LONGEST_ON_THE_WIRE: usize = 4096;
/// Asks for a piece in the window.
const INTO_THE_WINDOW: u8 = b'W';

/// Where a program's standard input comes from.
pub enum StandardInput {
    /// Nowhere: it is empty.
    Nothing,
    /// A file's content, from the file's offset on.
    Content(Vec<u8>),
    /// This command's input, piece by piece.
    Pieces,
}

impl StandardInput {
    /// This command's standard input; a regular file of more than `most` bytes is passed on in pieces.
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
        // Read at a position: other processes may share the file's offset.
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

/// The channel by which the guest asks, and the window.
pub struct Input {
    socket: PathBuf,
    window: PathBuf,
}

impl Input {
    /// Listens in `folder` and answers from `source` until the guest is gone. The thread that answers is never
    /// joined: its read of `source` may never return.
    pub fn open(folder: &Path, source: impl Read + Send + 'static) -> Result<Self> {
        let (socket, window) = (folder.join("in"), folder.join("window"));
        let listener = UnixListener::bind(&socket)
            .with_context(|| format!("cannot listen at {}", socket.display()))?;
        let file = File::create(&window)
            .and_then(|file| file.set_len(LONGEST as u64).map(|()| file))
            .with_context(|| format!("cannot write {}", window.display()))?;
        thread::spawn(move || serve(&listener, &file, source));
        Ok(Self { socket, window })
    }

    /// Where QEMU has to connect.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The file that is the window, as QEMU's option for memory.
    pub fn window(&self) -> OsString {
        let path = self.window.to_string_lossy().replace(',', ",,");
        format!("memory-backend-file,id=window,share=on,size={LONGEST},mem-path={path}").into()
    }
}

/// Answers until the guest closes the connection.
fn serve(listener: &UnixListener, window: &File, mut source: impl Read) -> io::Result<()> {
    let (mut guest, _) = listener.accept()?;
    let mut piece = vec![0; LONGEST];
    let mut request = [0];
    while guest.read(&mut request)? != 0 {
        let on_the_wire = request[0] != INTO_THE_WINDOW;
        let most = if on_the_wire {
            LONGEST_ON_THE_WIRE
        } else {
            LONGEST
        };
        // An error counts as the end of input.
        let length = read_some(&mut source, &mut piece[..most]).unwrap_or(0);
        let piece = &piece[..length];
        if !on_the_wire {
            window.write_all_at(piece, 0)?;
        }
        let size = u32::try_from(length).unwrap_or(0).to_le_bytes();
        guest.write_all(&size)?;
        if on_the_wire {
            guest.write_all(piece)?;
        }
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

    fn ask(guest: &mut UnixStream, how: &[u8], answer: &mut [u8]) {
        guest.write_all(how).unwrap();
        guest.read_exact(answer).unwrap();
    }

    #[test]
    fn answers_each_request_with_a_piece_and_the_end_with_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let input = Input::open(folder.path(), &b"abc"[..]).unwrap();
        let mut guest = UnixStream::connect(input.socket()).unwrap();
        let mut piece = [0; 7];
        ask(&mut guest, b"R", &mut piece);
        assert_eq!(piece, *b"\x03\0\0\0abc");
        let mut end = [1; 4];
        ask(&mut guest, b"R", &mut end);
        assert_eq!(end, [0; 4]);
    }

    #[test]
    fn puts_pieces_into_the_window() {
        let folder = tempfile::tempdir().unwrap();
        let input = Input::open(folder.path(), &[7; 100_000][..]).unwrap();
        let mut guest = UnixStream::connect(input.socket()).unwrap();
        for expected in [65_536_u32, 34_464, 0] {
            let mut length = [0; 4];
            ask(&mut guest, b"W", &mut length);
            assert_eq!(u32::from_le_bytes(length), expected);
        }
        let window = std::fs::read(folder.path().join("window")).unwrap();
        assert!(window.len() == 65_536 && window.iter().all(|&byte| byte == 7));
    }
}
