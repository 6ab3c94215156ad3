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
    let mut buffer = [0; 4096];
    let text = read(c"/proc/swaps", &mut buffer);
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

/// Returns how many pages have come back from any device, on a system that says so.
pub fn swapped_in() -> Option<u64> {
    let mut buffer = [0; 16 << 10];
    let text = read(c"/proc/vmstat", &mut buffer)?;
    let line = text.lines().find_map(|line| line.strip_prefix("pswpin "))?;
    line.parse().ok()
}

/// Reads the beginning of a file of text.
fn read<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a str> {
    let mut length = 0;
    // SAFETY: a path that ends in 0, and a buffer of the caller.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDONLY);
        while length < buffer.len() {
            let rest = &mut buffer[length..];
            match libc::read(file, rest.as_mut_ptr().cast(), rest.len()) {
                got @ 1.. => length += got as usize,
                _ => break,
            }
        }
        libc::close(file);
    }
    std::str::from_utf8(&buffer[..length]).ok()
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
