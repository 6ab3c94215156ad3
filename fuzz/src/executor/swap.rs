//! The system's swap device, which programs may end the use of if the executor is told so. On a host it is not: the
//! device there is used by others.

use std::ffi::CStr;
use std::io;
use std::sync::OnceLock;

/// Bytes of the longest path, with its end.
const PATH: usize = 64;

/// The device's path.
static DEVICE: OnceLock<[u8; PATH]> = OnceLock::new();

/// Finds the device: the first one that is in use.
///
/// # Errors
/// When there is none.
pub fn find() -> io::Result<()> {
    let mut buffer = [0u8; 1024];
    // SAFETY: a path that ends in 0, and a buffer of ours.
    let got = unsafe {
        let file = libc::open(c"/proc/swaps".as_ptr(), libc::O_RDONLY);
        let got = libc::read(file, buffer.as_mut_ptr().cast(), buffer.len());
        libc::close(file);
        got
    };
    let read = usize::try_from(got).ok().and_then(|got| buffer.get(..got));
    let text = read.and_then(|bytes| std::str::from_utf8(bytes).ok());
    // Below a heading.
    let line = text.and_then(|text| text.lines().nth(1));
    let device = line.and_then(|line| line.split_whitespace().next());
    let device = device.filter(|device| device.len() < PATH);
    let device = device.ok_or_else(|| io::Error::other("no swap device is in use"))?;
    let mut path = [0; PATH];
    path[..device.len()].copy_from_slice(device.as_bytes());
    let _ = DEVICE.set(path);
    Ok(())
}

/// Ends or begins the use of the device, if programs may do that.
pub fn set(on: bool) -> Result<(), i32> {
    let Some(path) = DEVICE
        .get()
        .and_then(|path| CStr::from_bytes_until_nul(path).ok())
    else {
        return Ok(());
    };
    // SAFETY: a path that ends in 0.
    let result = unsafe {
        match on {
            true => libc::swapon(path.as_ptr(), 0),
            false => libc::swapoff(path.as_ptr()),
        }
    };
    match result {
        0 => Ok(()),
        // SAFETY: the calling thread's own.
        _ => Err(unsafe { *libc::__errno_location() }),
    }
}

/// Begins the use of the device for the next program, if one has ended it.
pub fn begin_again() -> io::Result<()> {
    match set(true) {
        Ok(()) | Err(libc::EBUSY) => Ok(()),
        Err(errno) => Err(io::Error::from_raw_os_error(errno)),
    }
}
