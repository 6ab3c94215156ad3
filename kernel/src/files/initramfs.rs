//! The files: a cpio archive that the loader put into memory. Read-only, found by path.

use crate::sync::Once;

static ARCHIVE: Once<&'static [u8]> = Once::new();

/// Sets the archive.
pub fn set(archive: &'static [u8]) {
    ARCHIVE.set(archive);
}

/// The content of the regular file at this path, which has no leading slash.
pub fn find(path: &str) -> Option<&'static [u8]> {
    let archive = ARCHIVE.try_get()?;
    cpio_reader::iter_files(archive)
        .find(|entry| {
            let name = entry.name().trim_end_matches('\0');
            name.trim_start_matches("./").trim_start_matches('/') == path
                && entry.mode().bits() & 0o170_000 == 0o100_000
        })
        .map(|entry| entry.file())
}
