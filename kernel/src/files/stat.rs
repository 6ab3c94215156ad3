//! The attributes of a file, and their layouts for `stat` and `statx`.

use crate::arch::{self, uaccess};
use crate::errno::Errno;

/// The attributes of a file.
#[derive(Clone, Copy, Default)]
pub struct Stat {
    pub filesystem: u32,
    pub number: u64,
    pub mode: u32,
    pub links: u32,
    pub user: u32,
    pub group: u32,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    pub size: u64,
    pub block_size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Nanoseconds since 1970.
    pub accessed: u64,
    pub modified: u64,
    pub changed: u64,
    pub born: u64,
}

const SECOND: u64 = 1_000_000_000;

/// Fields that `statx` always returns: the basic ones and the birth time.
const KNOWN: u32 = 0x7ff | 0x800;

impl Stat {
    /// Writes a `struct stat`.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn write(&self, to: u64) -> Result<(), Errno> {
        let [accessed, modified, changed] =
            [self.accessed, self.modified, self.changed].map(|time| [time / SECOND, time % SECOND]);
        let words = arch::stat::words(
            self,
            u64::from(self.device.0) << 8 | u64::from(self.device.1),
            [accessed, modified, changed].as_flattened(),
        );
        uaccess::write(to, &words)
    }

    /// Writes a `struct statx`.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn write_extended(&self, to: u64) -> Result<(), Errno> {
        let mut words = [0u64; 32];
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        words[0] = pair(KNOWN, self.block_size as u32);
        words[2] = pair(self.links, self.user);
        words[3] = pair(self.group, self.mode & 0xffff);
        words[4] = self.number;
        words[5] = self.size;
        words[6] = self.blocks;
        let times = [self.accessed, self.born, self.changed, self.modified];
        for (place, time) in words[8..16].chunks_mut(2).zip(times) {
            place[0] = time / SECOND;
            place[1] = time % SECOND;
        }
        words[16] = pair(self.device.0, self.device.1);
        words[17] = pair(0, self.filesystem);
        uaccess::write(to, &words)
    }
}
