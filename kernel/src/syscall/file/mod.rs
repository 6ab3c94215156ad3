//! System calls on files: one module per family of calls.

pub mod attributes;
mod control;
pub mod descriptor;
pub mod event;
pub mod listing;
mod lock;
mod memory;
pub mod names;
pub mod open;
pub mod path;
mod socket;
mod splice;
pub mod stat;
mod system;
pub mod transfer;
mod userfault;

use linux_raw_sys::general as nr;

use super::{poll, unknown};
use crate::arch::legacy;
use crate::errno::Answer;

/// Dispatches the calls on files, and those that are not implemented.
#[allow(clippy::too_many_lines, reason = "a table")]
pub fn call(number: u32, [a, b, c, d, e, f]: [u64; 6]) -> Answer {
    match number {
        nr::__NR_read => transfer::read(a, b, c),
        nr::__NR_write => transfer::write(a, b, c),
        nr::__NR_pread64 => transfer::pread(a, b, c, d),
        nr::__NR_pwrite64 => transfer::pwrite(a, b, c, d),
        nr::__NR_readv => transfer::readv(a, b, c),
        nr::__NR_writev => transfer::writev(a, b, c),
        nr::__NR_preadv => transfer::preadv(a, b, c, d),
        nr::__NR_pwritev => transfer::pwritev(a, b, c, d),
        nr::__NR_preadv2 => transfer::preadv2(a, b, c, d, f),
        nr::__NR_pwritev2 => transfer::pwritev2(a, b, c, d, f),
        nr::__NR_lseek => transfer::lseek(a, b, c),
        nr::__NR_sendfile => transfer::sendfile(a, b, c, d),
        nr::__NR_vmsplice => splice::vmsplice(a, b, c, d),
        nr::__NR_getrandom => transfer::getrandom(a, b, c),

        nr::__NR_openat => open::openat(a, b, c, d),
        nr::__NR_close => open::close(a),
        nr::__NR_close_range => open::close_range(a, b, c),
        nr::__NR_pipe2 => open::pipe2(a, b),

        nr::__NR_fstat => stat::fstat(a, b),
        nr::__NR_newfstatat => stat::newfstatat(a, b, c, d),
        nr::__NR_statx => stat::statx(a, b, c, e),
        nr::__NR_faccessat => stat::faccessat(a, b, c, 0),
        nr::__NR_faccessat2 => stat::faccessat(a, b, c, d),
        nr::__NR_readlinkat => stat::readlinkat(a, b, c, d),
        nr::__NR_statfs => system::statfs(a, b),
        nr::__NR_fstatfs => system::fstatfs(a, b),
        nr::__NR_getdents64 => listing::getdents64(a, b, c),

        nr::__NR_getcwd => names::getcwd(a, b),
        nr::__NR_chdir => names::chdir(a),
        nr::__NR_fchdir => names::fchdir(a),
        nr::__NR_mkdirat => names::mkdirat(a, b, c),
        nr::__NR_mknodat => names::mknodat(a, b, c),
        nr::__NR_unlinkat => names::unlinkat(a, b, c),
        nr::__NR_renameat => names::renameat2(a, b, c, d, 0),
        nr::__NR_renameat2 => names::renameat2(a, b, c, d, e),
        nr::__NR_linkat => names::linkat(a, b, c, d, e),
        nr::__NR_symlinkat => names::symlinkat(a, b, c),

        nr::__NR_truncate => attributes::truncate(a, b),
        nr::__NR_ftruncate => attributes::ftruncate(a, b),
        nr::__NR_fallocate => attributes::fallocate(a, b, c, d),
        nr::__NR_fchmodat => attributes::fchmodat(a, b, c, 0),
        nr::__NR_fchmodat2 => attributes::fchmodat(a, b, c, d),
        nr::__NR_fchmod => attributes::fchmod(a, b),
        nr::__NR_fchownat => attributes::fchownat(a, b, c, d, e),
        nr::__NR_fchown => attributes::fchown(a, b, c),
        nr::__NR_utimensat => attributes::utimensat(a, b, c, d),
        nr::__NR_umask => attributes::umask(a),

        nr::__NR_dup => descriptor::dup(a),
        nr::__NR_dup3 => descriptor::dup3(a, b, c),
        nr::__NR_fcntl => control::fcntl(a, b, c),
        nr::__NR_flock => lock::flock(a, b),
        nr::__NR_ioctl => control::ioctl(a, b, c),
        nr::__NR_fsync | nr::__NR_fdatasync | nr::__NR_syncfs => descriptor::sync(a),
        nr::__NR_sync => Ok(0),
        nr::__NR_fadvise64 => descriptor::advise(a, d),

        nr::__NR_ppoll => poll::ppoll(a, b, c, d, e),
        nr::__NR_pselect6 => poll::pselect6(a, b, c, d, e, f),
        nr::__NR_epoll_create1 => event::epoll_create1(a),
        nr::__NR_epoll_ctl => event::epoll_ctl(a, b, c, d),
        nr::__NR_epoll_pwait => event::epoll_pwait(a, b, c, d, e, f),
        nr::__NR_memfd_create => memory::memfd_create(a, b),
        nr::__NR_userfaultfd => userfault::userfaultfd(a),
        nr::__NR_eventfd2 => event::eventfd2(a, b),

        nr::__NR_socket | nr::__NR_socketpair => socket::create(a, b),
        nr::__NR_bind
        | nr::__NR_connect
        | nr::__NR_listen
        | nr::__NR_accept
        | nr::__NR_accept4
        | nr::__NR_getsockname
        | nr::__NR_getpeername
        | nr::__NR_sendto
        | nr::__NR_recvfrom
        | nr::__NR_sendmsg
        | nr::__NR_recvmsg
        | nr::__NR_sendmmsg
        | nr::__NR_recvmmsg
        | nr::__NR_setsockopt
        | nr::__NR_getsockopt
        | nr::__NR_shutdown => socket::none(a),

        // Known, and refused: programs then fall back to `read` and `write`.
        nr::__NR_copy_file_range | nr::__NR_splice | nr::__NR_tee => Err(crate::errno::EINVAL),
        number => {
            legacy::call(number, [a, b, c, d, e, f]).unwrap_or_else(|| unknown::remember(number))
        }
    }
}
