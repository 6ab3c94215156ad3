//! Files that name their interpreter in their first line: `#!PATH [ARGUMENT]`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Bytes of a file that Linux reads for this.
pub const LINE: usize = 256;

/// Whether a file is a script.
pub fn is_script(file: &[u8]) -> bool {
    file.starts_with(b"#!")
}

/// The interpreter of a script, and its one argument.
pub fn interpreter(file: &[u8]) -> Option<(PathBuf, Option<Vec<u8>>)> {
    let rest = file.strip_prefix(b"#!")?;
    let window = &rest[..rest.len().min(LINE - 2)];
    let end = window.iter().position(|&byte| matches!(byte, b'\n' | 0));
    let line = window[..end.unwrap_or(window.len())].trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    let (path, argument) = line.split_at(end.unwrap_or(line.len()));
    let argument = argument.trim_ascii();
    let argument = (!argument.is_empty()).then(|| argument.to_vec());
    Some((PathBuf::from(OsStr::from_bytes(path)), argument))
}

/// The program that `env` has to find, if `env` is the interpreter.
pub fn behind_env(interpreter: &Path, argument: Option<&[u8]>) -> Option<PathBuf> {
    if interpreter.file_name() != Some(OsStr::new("env")) {
        return None;
    }
    let mut words = argument?.split(|byte| matches!(byte, b' ' | b'\t'));
    let name = words.find(|word| !word.is_empty() && word[0] != b'-' && !word.contains(&b'='))?;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

#[cfg(test)]
mod tests {
    use super::{Path, behind_env, interpreter};

    #[test]
    fn reads_the_first_line() {
        let read = |text: &str| {
            let (path, argument) = interpreter(text.as_bytes())?;
            let argument = argument.map(|argument| String::from_utf8(argument).unwrap());
            Some((path.to_str().unwrap().to_owned(), argument))
        };
        let expected = |path: &str, argument: Option<&str>| {
            Some((path.to_owned(), argument.map(str::to_owned)))
        };
        assert_eq!(read("#!/bin/sh\necho"), expected("/bin/sh", None));
        assert_eq!(
            read("#! /bin/sh  -e x \n"),
            expected("/bin/sh", Some("-e x"))
        );
        assert_eq!(read("#!/bin/sh"), expected("/bin/sh", None));
        assert_eq!(read("#!"), expected("", None));
        assert_eq!(read("# /bin/sh"), None);
    }

    #[test]
    fn looks_behind_env() {
        let name = |interpreter: &str, argument: &str| {
            let name = behind_env(Path::new(interpreter), Some(argument.as_bytes()))?;
            Some(name.to_str().unwrap().to_owned())
        };
        assert_eq!(name("/usr/bin/env", "bash"), Some("bash".to_owned()));
        assert_eq!(
            name("/usr/bin/env", "-S A=1 awk -f"),
            Some("awk".to_owned())
        );
        assert_eq!(name("/usr/bin/env", "-i"), None);
        assert_eq!(name("/bin/sh", "bash"), None);
    }
}
