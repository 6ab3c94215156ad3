//! Copies between user memory and memory that must be touched without faulting: piece by piece through the
//! kernel stack, with a call of `sched::breathe` now and then.

use crate::arch::uaccess;
use crate::errno::{Answer, Errno};
use crate::sched;

/// Bytes of a piece.
const PIECE: usize = 1024;
/// Bytes between two calls of `sched::breathe`.
const BREATH: u64 = 16 << 10;

/// Fills user memory with what `make` makes; less than all of it if a signal comes.
///
/// # Errors
/// `EFAULT`, if not even the first piece could be written.
pub fn fill(to: u64, length: u64, mut make: impl FnMut(&mut [u8])) -> Answer {
    scatter(to, length, |piece| {
        make(piece);
        piece.len()
    })
}

/// The same for a source that may end: `make` returns how much it made, and less than was asked for is the
/// end.
///
/// # Errors
/// As for [`fill`].
pub fn scatter(to: u64, length: u64, mut make: impl FnMut(&mut [u8]) -> usize) -> Answer {
    let mut buffer = [0; PIECE];
    let mut done = 0;
    while done < length {
        let size = (length - done).min(PIECE as u64) as usize;
        let made = make(&mut buffer[..size]);
        match uaccess::write_bytes(to.wrapping_add(done), &buffer[..made]) {
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
            Ok(()) => done += made as u64,
        }
        if made < size || done % BREATH == 0 && !sched::breathe() {
            break;
        }
    }
    Ok(done)
}

/// Passes bytes of user memory to `take`; less than all of them if a signal comes. `take` returns how many it
/// took; fewer than given end the call.
///
/// # Errors
/// `EFAULT`, or the error of `take`, if it is about the first piece.
pub fn gather(
    from: u64,
    length: u64,
    mut take: impl FnMut(&[u8]) -> Result<usize, Errno>,
) -> Answer {
    let mut buffer = [0; PIECE];
    let mut done = 0;
    while done < length {
        let size = (length - done).min(PIECE as u64) as usize;
        let piece = &mut buffer[..size];
        let taken = uaccess::read_bytes(from.wrapping_add(done), piece).and_then(|()| take(piece));
        let taken = match taken {
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
            Ok(taken) => taken,
        };
        done += taken as u64;
        if taken < size || done % BREATH == 0 && !sched::breathe() {
            break;
        }
    }
    Ok(done)
}

/// Copies immutable memory to user memory.
///
/// # Errors
/// As for [`fill`].
pub fn copy_out(to: u64, from: &[u8]) -> Answer {
    let mut done = 0;
    for piece in from.chunks(BREATH as usize) {
        match uaccess::write_bytes(to.wrapping_add(done), piece) {
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
            Ok(()) => done += piece.len() as u64,
        }
        if piece.len() == BREATH as usize && !sched::breathe() {
            break;
        }
    }
    Ok(done)
}
