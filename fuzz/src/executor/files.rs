//! The files of a program: in memory, made before its first process.

use std::io;

use crate::program::FILES;

/// The files, which are open in every process of the program.
#[derive(Clone, Copy, Debug)]
pub struct Files {
    descriptors: [i32; FILES],
    /// The inodes that `/proc/self/maps` shows for them; 0 for none.
    pub inodes: [u64; FILES],
}

impl Files {
    /// No files.
    pub const NONE: Files = Files {
        descriptors: [-1; FILES],
        inodes: [0; FILES],
    };

    /// Makes empty files.
    pub fn make() -> io::Result<Self> {
        let mut files = Files::NONE;
        for (descriptor, inode) in files.descriptors.iter_mut().zip(&mut files.inodes) {
            // SAFETY: a name that ends in 0, and room for what is asked.
            unsafe {
                *descriptor = libc::memfd_create(c"file".as_ptr(), 0);
                let mut about: libc::stat = std::mem::zeroed();
                if *descriptor < 0 || libc::fstat(*descriptor, &raw mut about) != 0 {
                    return Err(io::Error::last_os_error());
                }
                *inode = about.st_ino;
            }
        }
        Ok(files)
    }

    /// The descriptor of a file.
    pub fn descriptor(&self, number: u64) -> u64 {
        let found = usize::try_from(number)
            .ok()
            .and_then(|n| self.descriptors.get(n));
        found.map_or(u64::MAX, |&descriptor| descriptor as u64)
    }

    /// Closes them in the process that made them, which does not use them.
    pub fn close(self) {
        for descriptor in self.descriptors.into_iter().filter(|&number| number > 2) {
            // SAFETY: descriptors of ours.
            unsafe { libc::close(descriptor) };
        }
    }
}
