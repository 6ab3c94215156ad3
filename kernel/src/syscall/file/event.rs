//! Event counters and epoll.

use linux_raw_sys::general as linux;

use crate::arch::{time, uaccess};
use crate::errno::{Answer, EBADF, EINVAL, Errno};
use crate::files::description::{Description, Object, check};
use crate::files::descriptors;
use crate::files::epoll::{Control, DISARMED, EVENT_DATA, EVENT_SIZE, Wanted};
use crate::files::event::Event;
use crate::syscall::poll;

pub fn eventfd2(value: u64, flags: u64) -> Answer {
    let flags = flags as u32;
    if flags & !(linux::EFD_SEMAPHORE | linux::EFD_CLOEXEC | linux::EFD_NONBLOCK) != 0 {
        return Err(EINVAL);
    }
    let event = Event::new(value as u32, flags & linux::EFD_SEMAPHORE != 0)?;
    let status = linux::O_RDWR | flags & linux::O_NONBLOCK;
    let description = Description::new(Object::Event(event), status, None)?;
    descriptors::current().add(description, 0, flags & linux::EFD_CLOEXEC != 0)
}

pub fn epoll_create(size: u64) -> Answer {
    if size as i32 <= 0 {
        return Err(EINVAL);
    }
    epoll_create1(0)
}

pub fn epoll_create1(flags: u64) -> Answer {
    if flags as u32 & !linux::EPOLL_CLOEXEC != 0 {
        return Err(EINVAL);
    }
    let control = Object::Epoll(Control::new()?);
    let description = Description::new(control, linux::O_RDWR, None)?;
    descriptors::current().add(description, 0, flags as u32 != 0)
}

fn control(description: &Description) -> Result<&Control, Errno> {
    match &description.object {
        Object::Epoll(control) => Ok(control),
        _ => Err(EINVAL),
    }
}

pub fn epoll_ctl(epoll: u64, operation: u64, fd: u64, event: u64) -> Answer {
    let operation = operation as u32;
    let wanted = if operation == linux::EPOLL_CTL_DEL {
        Wanted { events: 0, data: 0 }
    } else {
        Wanted {
            events: uaccess::read::<u32>(event)? & !DISARMED,
            data: uaccess::read(event.wrapping_add(EVENT_DATA))?,
        }
    };
    let table = descriptors::current();
    let epoll = table.get(epoll)?;
    let target = table.get(fd)?;
    if matches!(target.object, Object::Path(_)) {
        return Err(EBADF);
    }
    let control = control(&epoll)?;
    let number = fd as u32;
    let done = match operation {
        linux::EPOLL_CTL_ADD => control.add(number, &target, wanted),
        linux::EPOLL_CTL_MOD => control.change(number, &target, wanted),
        linux::EPOLL_CTL_DEL => control.remove(number, &target),
        _ => Err(EINVAL),
    };
    done.map(|()| 0)
}

fn wait(epoll: u64, to: u64, most: u64, deadline: Option<u64>) -> Answer {
    const MOST: u64 = i32::MAX as u64 / EVENT_SIZE;
    if most as i32 <= 0 || most > MOST {
        return Err(EINVAL);
    }
    check(to, most * EVENT_SIZE)?;
    let description = descriptors::current().get(epoll)?;
    control(&description)?.wait(to, most, deadline)
}

/// The deadline that many milliseconds from now; none if negative.
fn deadline(milliseconds: u64) -> Option<u64> {
    let wait = u64::try_from(milliseconds as i32).ok()?;
    Some(time::now().saturating_add(wait * 1_000_000))
}

pub fn epoll_wait(epoll: u64, to: u64, most: u64, milliseconds: u64) -> Answer {
    wait(epoll, to, most, deadline(milliseconds))
}

pub fn epoll_pwait(
    epoll: u64,
    to: u64,
    most: u64,
    milliseconds: u64,
    mask: u64,
    size: u64,
) -> Answer {
    let deadline = deadline(milliseconds);
    poll::with_mask(mask, size, || wait(epoll, to, most, deadline))
}
