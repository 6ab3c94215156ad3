//! Scripts: files that name their interpreter, as `#!PATH [ARGUMENT]` in their first line.

use super::strings::Strings;
use super::{Image, string};
use crate::errno::{ELOOP, ENOEXEC, Errno};
use alloc::string::String;

/// The number of bytes that Linux examines at a file's start.
const LINE: usize = 256;
/// The longest chain of interpreters.
const DEEPEST: u32 = 5;

/// An interpreter and its argument.
type Interpreter<'a> = (&'a str, Option<&'a [u8]>);

/// The interpreter and its argument, if the file names one.
fn parse(start: &[u8]) -> Result<Option<Interpreter<'_>>, Errno> {
    let Some(rest) = start.strip_prefix(b"#!") else {
        return Ok(None);
    };
    let window = &rest[..rest.len().min(LINE - 2)];
    let line = match window.iter().position(|&byte| byte == b'\n' || byte == 0) {
        Some(end) => &window[..end],
        None if rest.len() > window.len() => {
            // A truncated path would name another file; a truncated argument is accepted.
            let path = window.trim_ascii_start();
            if !path.iter().any(|byte| matches!(byte, b' ' | b'\t')) {
                return Err(ENOEXEC);
            }
            window
        }
        None => window,
    };
    let line = line.trim_ascii();
    let end = line
        .iter()
        .position(|byte| matches!(byte, b' ' | b'\t'))
        .unwrap_or(line.len());
    let (path, argument) = line.split_at(end);
    let path = core::str::from_utf8(path).map_err(|_| ENOEXEC)?;
    if path.is_empty() {
        return Err(ENOEXEC);
    }
    let argument = argument.trim_ascii();
    Ok(Some((path, (!argument.is_empty()).then_some(argument))))
}

/// Follows the chain of interpreters to a program; path, arguments and image become those of the last one.
///
/// # Errors
/// `ENOEXEC`, `ELOOP`, and those of `find`, which opens an interpreter.
pub fn resolve(
    path: &mut String,
    arguments: &mut Strings,
    image: &mut Image,
    find: impl Fn(&str) -> Result<Image, Errno>,
) -> Result<(), Errno> {
    for _ in 0..DEEPEST {
        let mut start = [0; LINE + 1];
        let length = image.read(0, &mut start);
        let Some((interpreter, argument)) = parse(&start[..length])? else {
            return Ok(());
        };
        let mut new = Strings::new();
        new.push(interpreter.as_bytes())?;
        if let Some(argument) = argument {
            new.push(argument)?;
        }
        new.push(path.as_bytes())?;
        new.extend(arguments, 1)?;
        *arguments = new;
        *path = string(&[interpreter])?;
        *image = find(path)?;
    }
    Err(ELOOP)
}
