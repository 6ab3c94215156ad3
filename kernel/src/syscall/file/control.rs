//! `fcntl` and `ioctl`.

use super::{lock, memory, userfault};
use linux_raw_sys::{general as linux, ioctl};

use crate::arch::uaccess;
use crate::errno::{Answer, EBADF, EINVAL, ENOTTY};
use crate::files::description::{CHANGEABLE, Description, Object};
use crate::files::descriptors;
use crate::files::device::Device;
use crate::kvm;

pub fn fcntl(fd: u64, command: u64, argument: u64) -> Answer {
    let table = descriptors::current();
    let description = table.get(fd)?;
    let command = command as u32;
    // The only commands allowed on a descriptor opened with `O_PATH`.
    let by_name = [
        linux::F_DUPFD,
        linux::F_DUPFD_CLOEXEC,
        linux::F_GETFD,
        linux::F_SETFD,
        linux::F_GETFL,
    ];
    if matches!(description.object, Object::Path(_)) && !by_name.contains(&command) {
        return Err(EBADF);
    }
    match command {
        linux::F_DUPFD | linux::F_DUPFD_CLOEXEC => {
            let lowest = u64::from(argument as u32);
            if lowest >= table.limit() {
                return Err(EINVAL);
            }
            table.add(description, lowest, command == linux::F_DUPFD_CLOEXEC)
        }
        linux::F_GETFD => Ok(u64::from(table.closes_on_exec(fd)?)),
        linux::F_SETFD => {
            let closes = argument as u32 & linux::FD_CLOEXEC != 0;
            table.set_closes_on_exec(fd, closes).map(|()| 0)
        }
        linux::F_GETFL => Ok(u64::from(description.flags())),
        linux::F_SETFL => {
            description.set_flags(CHANGEABLE, argument as u32);
            Ok(0)
        }
        linux::F_GETLK | linux::F_OFD_GETLK => lock::get(command, &description, argument),
        linux::F_SETLK | linux::F_SETLKW | linux::F_OFD_SETLK | linux::F_OFD_SETLKW => {
            lock::set(command, fd, &description, argument)
        }
        linux::F_ADD_SEALS => memory::add_seals(&description, argument),
        linux::F_GET_SEALS => memory::seals(&description),
        linux::F_GETOWN | linux::F_GETSIG => Ok(0),
        linux::F_SETOWN | linux::F_SETSIG => Ok(0),
        linux::F_GETPIPE_SZ => match &description.object {
            Object::Pipe(end) => Ok(end.capacity()),
            _ => Err(EBADF),
        },
        linux::F_SETPIPE_SZ => match &description.object {
            Object::Pipe(end) => end.set_capacity(u64::from(argument as u32)),
            _ => Err(EBADF),
        },
        _ => Err(EINVAL),
    }
}

pub fn ioctl(fd: u64, request: u64, argument: u64) -> Answer {
    let table = descriptors::current();
    let description = table.get(fd)?;
    if matches!(description.object, Object::Path(_)) {
        return Err(EBADF);
    }
    match request as u32 {
        ioctl::FIOCLEX => table.set_closes_on_exec(fd, true).map(|()| 0),
        ioctl::FIONCLEX => table.set_closes_on_exec(fd, false).map(|()| 0),
        ioctl::FIONBIO => {
            let on: u32 = uaccess::read(argument)?;
            let flag = if on == 0 { 0 } else { linux::O_NONBLOCK };
            description.set_flags(linux::O_NONBLOCK, flag);
            Ok(0)
        }
        ioctl::FIONREAD => {
            let there = readable(&description)?;
            uaccess::write(argument, &(there.min(i32::MAX as u64) as u32))?;
            Ok(0)
        }
        request => match &description.object {
            Object::Faults(faults) => userfault::ioctl(faults, request, argument),
            Object::Device(Device::Userfault, _) => userfault::device(request, argument),
            Object::Guest(handle) => handle.ioctl(request, argument),
            Object::Device(Device::Kvm, _) => kvm::device::ioctl(request, argument),
            // Nothing is a terminal.
            _ => Err(ENOTTY),
        },
    }
}

/// Bytes that can be read without waiting.
fn readable(description: &Description) -> Answer {
    match &description.object {
        Object::Pipe(end) => Ok(end.length()),
        Object::File(_) => {
            let size = description.file()?.1.content.size();
            let position = description.seek(0, linux::SEEK_CUR)?;
            Ok(size.saturating_sub(position))
        }
        _ => Err(ENOTTY),
    }
}
