//! Resource limits: kept, inherited, and obeyed where there is something to limit.
//!
//! Obeyed: open files, and what is said of memory: address space, data, stack. Everybody is root,
//! so the limit of locked memory is not; nor are the others, which can be set and read.

use linux_raw_sys::general as linux;

use crate::errno::{EINVAL, EPERM, Errno};
use crate::exec::STACK_LIMIT;
use crate::files::descriptors::HARD_LIMIT;
use crate::memory::MemoryLimits;

const COUNT: usize = linux::RLIM_NLIMITS as usize;
/// The most open files that a process may ask for.
const MOST_FILES: u64 = HARD_LIMIT;

/// What a process may use of each resource: now, and at most.
#[derive(Clone, Copy)]
pub struct Limits([[u64; 2]; COUNT]);

impl Limits {
    /// Linux's defaults.
    pub const fn new() -> Self {
        let mut all = [[u64::MAX; 2]; COUNT];
        all[linux::RLIMIT_STACK as usize] = [STACK_LIMIT, u64::MAX];
        all[linux::RLIMIT_CORE as usize] = [0, u64::MAX];
        all[linux::RLIMIT_NOFILE as usize] = [1024, 4096];
        all[linux::RLIMIT_MEMLOCK as usize] = [8 << 20; 2];
        all[linux::RLIMIT_MSGQUEUE as usize] = [819_200; 2];
        all[linux::RLIMIT_NICE as usize] = [0; 2];
        all[linux::RLIMIT_RTPRIO as usize] = [0; 2];
        Self(all)
    }

    /// The limits of a resource.
    ///
    /// # Errors
    /// `EINVAL`: there is no such resource.
    pub fn get(&self, resource: u64) -> Result<[u64; 2], Errno> {
        let resource = usize::try_from(resource as u32).map_err(|_| EINVAL)?;
        self.0.get(resource).copied().ok_or(EINVAL)
    }

    /// Changes the limits of a resource; every process may raise them.
    ///
    /// # Errors
    /// `EINVAL`; `EPERM`: more files than there can be.
    pub fn set(&mut self, resource: u64, new: [u64; 2]) -> Result<(), Errno> {
        self.get(resource)?;
        if new[0] > new[1] {
            return Err(EINVAL);
        }
        if resource as u32 == linux::RLIMIT_NOFILE && new[1] > MOST_FILES {
            return Err(EPERM);
        }
        self.0[resource as u32 as usize] = new;
        Ok(())
    }

    /// What the process's address space may map.
    pub fn memory(&self) -> MemoryLimits {
        let [data, most_data] = self.0[linux::RLIMIT_DATA as usize];
        MemoryLimits {
            address_space: self.0[linux::RLIMIT_AS as usize][0],
            data,
            most_data,
            stack: self.0[linux::RLIMIT_STACK as usize][0],
            locked: self.0[linux::RLIMIT_MEMLOCK as usize][0],
            // Everybody is root.
            locks_freely: true,
            ..MemoryLimits::LINUX
        }
    }

    /// Open files that a process may have.
    pub fn files(&self) -> u64 {
        self.0[linux::RLIMIT_NOFILE as usize][0]
    }
}
