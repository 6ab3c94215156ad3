//! System calls that Linux has on x86-64 alone: those of the architecture, and the old ones that newer
//! architectures leave to the C library.

use linux_raw_sys::general as nr;

use super::context::{self, UserBases};
use super::uaccess;
use crate::errno::{Answer, EINVAL, EPERM};
use crate::memory::USER_END;
use crate::sched;
use crate::syscall::file::{attributes, descriptor, event, listing, names, open, path, stat};
use crate::syscall::{poll, process, signal, time, timer};

const ARCH_SET_GS: u32 = 0x1001;
const ARCH_SET_FS: u32 = 0x1002;
const ARCH_GET_FS: u32 = 0x1003;
const ARCH_GET_GS: u32 = 0x1004;

/// The system calls that make a child, by the numbers of this architecture.
pub const FORK: Option<u32> = Some(nr::__NR_fork);
pub const VFORK: Option<u32> = Some(nr::__NR_vfork);

/// Makes a system call of this architecture; `None`: there is none of this number.
pub fn call(number: u32, [a, b, c, d, e, _]: [u64; 6]) -> Option<Answer> {
    Some(match number {
        nr::__NR_arch_prctl => arch_prctl(a, b),
        nr::__NR_pause => signal::pause(),
        nr::__NR_time => time::time(a),
        nr::__NR_getpgrp => process::getpgid(0),
        nr::__NR_alarm => timer::alarm(a),

        nr::__NR_access => stat::faccessat(path::HERE, a, b, 0),
        nr::__NR_chmod => attributes::fchmodat(path::HERE, a, b, 0),
        nr::__NR_chown => attributes::fchownat(path::HERE, a, b, c, 0),
        nr::__NR_creat => open::creat(a, b),
        nr::__NR_dup2 => descriptor::dup2(a, b),
        nr::__NR_epoll_create => event::epoll_create(a),
        nr::__NR_epoll_wait => event::epoll_wait(a, b, c, d),
        nr::__NR_eventfd => event::eventfd2(a, 0),
        nr::__NR_getdents => listing::getdents(a, b, c),
        nr::__NR_lchown => {
            attributes::fchownat(path::HERE, a, b, c, u64::from(nr::AT_SYMLINK_NOFOLLOW))
        }
        nr::__NR_link => names::linkat(path::HERE, a, path::HERE, b, 0),
        nr::__NR_lstat => stat::lstat(a, b),
        nr::__NR_mkdir => names::mkdirat(path::HERE, a, b),
        nr::__NR_mknod => names::mknodat(path::HERE, a, b),
        nr::__NR_open => open::open(a, b, c),
        nr::__NR_pipe => open::pipe2(a, 0),
        nr::__NR_poll => poll::poll(a, b, c),
        nr::__NR_readlink => stat::readlinkat(path::HERE, a, b, c),
        nr::__NR_rename => names::renameat2(path::HERE, a, path::HERE, b, 0),
        nr::__NR_rmdir => names::unlinkat(path::HERE, a, u64::from(nr::AT_REMOVEDIR)),
        nr::__NR_select => poll::select(a, b, c, d, e),
        nr::__NR_stat => stat::stat(a, b),
        nr::__NR_symlink => names::symlinkat(a, path::HERE, b),
        nr::__NR_unlink => names::unlinkat(path::HERE, a, 0),
        nr::__NR_utime => attributes::utime(a, b),
        nr::__NR_utimes => attributes::utimes(a, b),
        _ => return None,
    })
}

fn arch_prctl(operation: u64, address: u64) -> Answer {
    let thread = sched::current();
    let bases = thread.bases.get();
    let set = |bases: UserBases| {
        thread.bases.set(bases);
        context::set_user_bases(bases);
        Ok(0)
    };
    match operation as u32 {
        ARCH_SET_FS | ARCH_SET_GS if address >= USER_END => Err(EPERM),
        ARCH_SET_FS => set(UserBases {
            fs: address,
            ..bases
        }),
        ARCH_SET_GS => set(UserBases {
            gs: address,
            ..bases
        }),
        ARCH_GET_FS => uaccess::write(address, &bases.fs).map(|()| 0),
        ARCH_GET_GS => uaccess::write(address, &bases.gs).map(|()| 0),
        _ => Err(EINVAL),
    }
}
