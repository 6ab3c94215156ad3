//! Resource limits: kept, inherited, and enforced where there is something to limit.
//!
//! Enforced are the limits of CPU time, of open files, of the size of files, and of memory: address space, data,
//! stack, and memory locked by a process without `CAP_IPC_LOCK`. The others can be set and read. Every process
//! is root.

use linux_raw_sys::general as linux;

use crate::errno::{EINVAL, EPERM, Errno};
use crate::exec::STACK_LIMIT;
use crate::files::descriptors::HARD_LIMIT;
use crate::memory::MemoryLimits;

use super::capabilities::Capabilities;

const COUNT: usize = linux::RLIM_NLIMITS as usize;
/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// The most open files that a process may ask for.
const MOST_FILES: u64 = HARD_LIMIT;

/// The limits of each resource: soft and hard.
#[derive(Clone, Copy)]
pub struct Limits {
    resources: [[u64; 2]; COUNT],
    /// The capabilities, which lift limits.
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

    /// Changes the limits of a resource. Every process may raise them.
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

    /// The limits of the process's address space.
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

    /// The most open files that a process may have.
    pub fn files(&self) -> u64 {
        self.resources[linux::RLIMIT_NOFILE as usize][0]
    }

    /// The largest size to which the process may write a file.
    pub fn file_size(&self) -> u64 {
        self.resources[linux::RLIMIT_FSIZE as usize][0]
    }

    /// The CPU time after which the process gets the next SIGXCPU, in nanoseconds; `u64::MAX`: never.
    pub fn cpu_time(&self) -> u64 {
        self.resources[linux::RLIMIT_CPU as usize][0].saturating_mul(SECOND)
    }

    /// The signal for a process that has used so many nanoseconds. As on Linux, SIGXCPU raises the soft limit
    /// by a second, so that the signal comes each second.
    pub fn take_cpu_signal(&mut self, used: u64) -> Option<u32> {
        let [soft, hard] = &mut self.resources[linux::RLIMIT_CPU as usize];
        if used >= hard.saturating_mul(SECOND) {
            return Some(linux::SIGKILL);
        }
        if used < soft.saturating_mul(SECOND) {
            return None;
        }
        *soft += 1;
        Some(linux::SIGXCPU)
    }
}
