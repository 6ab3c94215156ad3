//! Resource limits: kept, inherited, and obeyed where there is something to limit.
//!
//! Obeyed: open files, and what is said of memory: address space, data, stack, and what is locked
//! by who has given up `CAP_IPC_LOCK`. Everybody is root: the others can be set and read.

use linux_raw_sys::general as linux;

use crate::errno::{EINVAL, EPERM, Errno};
use crate::exec::STACK_LIMIT;
use crate::files::descriptors::HARD_LIMIT;
use crate::memory::MemoryLimits;

use super::capabilities::Capabilities;

const COUNT: usize = linux::RLIM_NLIMITS as usize;
/// The most open files that a process may ask for.
const MOST_FILES: u64 = HARD_LIMIT;

/// What a process may use of each resource: now, and at most.
#[derive(Clone, Copy)]
pub struct Limits {
    resources: [[u64; 2]; COUNT],
    /// What lifts limits.
    pub capabilities: Capabilities,
}

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
        Self {
            resources: all,
            capabilities: Capabilities::ROOT,
        }
    }

    /// The limits of a resource.
    ///
    /// # Errors
    /// `EINVAL`: there is no such resource.
    pub fn get(&self, resource: u64) -> Result<[u64; 2], Errno> {
        let resource = usize::try_from(resource as u32).map_err(|_| EINVAL)?;
        self.resources.get(resource).copied().ok_or(EINVAL)
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
        self.resources[resource as u32 as usize] = new;
        Ok(())
    }

    /// What the process's address space may map.
    pub fn memory(&self) -> MemoryLimits {
        let [data, most_data] = self.resources[linux::RLIMIT_DATA as usize];
        MemoryLimits {
            address_space: self.resources[linux::RLIMIT_AS as usize][0],
            data,
            most_data,
            stack: self.resources[linux::RLIMIT_STACK as usize][0],
            locked: self.resources[linux::RLIMIT_MEMLOCK as usize][0],
            locks_freely: self.capabilities.has(linux::CAP_IPC_LOCK),
            ..MemoryLimits::LINUX
        }
    }

    /// Open files that a process may have.
    pub fn files(&self) -> u64 {
        self.resources[linux::RLIMIT_NOFILE as usize][0]
    }
}
