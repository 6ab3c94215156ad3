//! Reads lists of folders in ELF files and variables: separated by colons, with the tokens `$ORIGIN`, `$LIB` and
//! `$PLATFORM`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::arch::Arch;

/// Values of `$LIB`: Debian's multiarch folder, and those of other distributions.
const fn lib(arch: Arch) -> [&'static [u8]; 3] {
    let multiarch: &[u8] = match arch {
        Arch::X86_64 => b"lib/x86_64-linux-gnu",
        Arch::AArch64 => b"lib/aarch64-linux-gnu",
    };
    [multiarch, b"lib64", b"lib"]
}

/// Values of `$PLATFORM`.
const fn platform(arch: Arch) -> &'static [&'static [u8]] {
    match arch {
        Arch::X86_64 => &[b"haswell", b"x86_64"],
        Arch::AArch64 => &[b"aarch64"],
    }
}

/// The folders of a list in an object in the folder `origin`. A relative folder begins at `/`, where the
/// program starts.
pub fn folders(list: &OsStr, origin: &Path, arch: Arch) -> Vec<PathBuf> {
    let elements = list.as_bytes().split(|&byte| byte == b':');
    elements
        .flat_map(|element| paths(element, origin, arch))
        .collect()
}

/// The paths that a text with tokens may mean.
pub fn paths(text: &[u8], origin: &Path, arch: Arch) -> Vec<PathBuf> {
    let mut texts = vec![text.to_vec()];
    for (name, values) in [
        (&b"ORIGIN"[..], &[origin.as_os_str().as_bytes()][..]),
        (b"LIB", &lib(arch)),
        (b"PLATFORM", platform(arch)),
    ] {
        texts = texts
            .into_iter()
            .flat_map(|text| {
                if replace(&text, name, b"") == text {
                    return vec![text];
                }
                let replaced = values.iter().map(|value| replace(&text, name, value));
                replaced.collect()
            })
            .collect();
    }
    let absolute = |text: &Vec<u8>| Path::new("/").join(OsStr::from_bytes(text));
    texts.iter().map(absolute).collect()
}

/// The text with `$NAME` and `${NAME}` replaced.
fn replace(text: &[u8], name: &[u8], value: &[u8]) -> Vec<u8> {
    let braced = [b"{", name, b"}"].concat();
    let mut replaced = Vec::new();
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let token = [&braced[..], name].into_iter().find(|token| {
            let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            let ends = token.ends_with(b"}") || !behind.get(token.len()).is_some_and(is_word);
            first == b'$' && behind.starts_with(token) && ends
        });
        match token {
            Some(token) => {
                replaced.extend_from_slice(value);
                rest = &behind[token.len()..];
            }
            None => {
                replaced.push(first);
                rest = behind;
            }
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::{Arch, Path, folders};
    use std::ffi::OsStr;

    #[test]
    fn replaces_tokens() {
        let folders_for = |arch: Arch, list: &str| {
            let found = folders(OsStr::new(list), Path::new("/opt/app/bin"), arch);
            let names = found.iter().map(|path| path.to_str().unwrap().to_owned());
            names.collect::<Vec<_>>().join(" ")
        };
        let folders = |list: &str| folders_for(Arch::X86_64, list);
        assert_eq!(folders("/a:/b"), "/a /b");
        assert_eq!(folders("$ORIGIN/../lib"), "/opt/app/bin/../lib");
        assert_eq!(folders("${ORIGIN}:x"), "/opt/app/bin /x");
        assert_eq!(folders("$ORIGINAL/$x"), "/$ORIGINAL/$x");
        assert_eq!(
            folders("/u/$LIB"),
            "/u/lib/x86_64-linux-gnu /u/lib64 /u/lib"
        );
        assert_eq!(folders("/$PLATFORM"), "/haswell /x86_64");
        assert_eq!(folders(""), "/");
        assert_eq!(
            folders_for(Arch::AArch64, "/$LIB/$PLATFORM"),
            "/lib/aarch64-linux-gnu/aarch64 /lib64/aarch64 /lib/aarch64"
        );
    }
}
