//! `userfaultfd`, and the requests on its descriptors. The order of checks is Linux's.

use linux_raw_sys::{general as linux, ioctl};

use crate::arch::uaccess;
use crate::errno::{Answer, EAGAIN, EFAULT, EINVAL, ENOMEM, Errno};
use crate::files::descriptors;
use crate::files::userfault::{FEATURES, Faults};
use crate::memory::machine::Kernel;
use crate::memory::{PAGE_SIZE, PhysicalMemory, userfault};
use faultless_mm::{Filled, Pages};

/// `USERFAULTFD_IOC_NEW`, of `/dev/userfaultfd`.
const NEW: u32 = linux::UFFDIO << 8;
/// Requests that `linux-raw-sys` does not number.
const MOVE: u32 = 0xc028_aa05;
const POISON: u32 = 0xc020_aa08;

/// `UFFDIO_*_MODE_*`.
const DONT_WAKE: u64 = 1;
const COPY_PROTECTED: u64 = 2;
const SKIP_HOLES: u64 = 2;
const PROTECT: u64 = 1;
const PROTECT_DONT_WAKE: u64 = 2;

pub fn userfaultfd(flags: u64) -> Answer {
    let flags = flags as u32;
    let known = linux::O_CLOEXEC | linux::O_NONBLOCK | linux::UFFD_USER_MODE_ONLY;
    if flags & !known != 0 {
        return Err(EINVAL);
    }
    let description = Faults::new(flags)?.describe(flags)?;
    descriptors::current().add(description, 0, flags & linux::O_CLOEXEC != 0)
}

/// A request on `/dev/userfaultfd`.
pub fn device(request: u32, argument: u64) -> Answer {
    match request {
        NEW => userfaultfd(argument),
        _ => Err(EINVAL),
    }
}

/// A request on a userfaultfd.
pub fn ioctl(of: &Faults, request: u32, at: u64) -> Answer {
    if request == ioctl::UFFDIO_API {
        return agree(of, at);
    }
    if !of.is_initialised() {
        return Err(EINVAL);
    }
    match request {
        ioctl::UFFDIO_REGISTER => register(of, at),
        ioctl::UFFDIO_UNREGISTER => {
            let pages = range(of, uaccess::read(at)?)?;
            let space = of.space().map_err(|_| ENOMEM)?;
            space.unregister(&of.core, pages).map(|()| 0)
        }
        ioctl::UFFDIO_WAKE => {
            of.core.wake(range(of, uaccess::read(at)?)?);
            Ok(0)
        }
        ioctl::UFFDIO_COPY => copy(of, at),
        ioctl::UFFDIO_ZEROPAGE => zero(of, at),
        ioctl::UFFDIO_WRITEPROTECT => protect(of, at),
        POISON => poison(of, at),
        ioctl::UFFDIO_CONTINUE => proceed(of, at),
        MOVE => moves(of, at),
        _ => Err(EINVAL),
    }
}

fn agree(of: &Faults, at: u64) -> Answer {
    let [api, wanted, _]: [u64; 3] = uaccess::read(at)?;
    let agreed = match api == u64::from(linux::UFFD_API) {
        true => of.agree(wanted),
        false => Err(EINVAL),
    };
    let ioctls = [
        linux::_UFFDIO_REGISTER,
        linux::_UFFDIO_UNREGISTER,
        linux::_UFFDIO_API,
    ];
    let answer = match agreed {
        Ok(()) => [api, FEATURES, bits(&ioctls)],
        Err(_) => [0; 3],
    };
    uaccess::write(at, &answer)?;
    agreed.map(|()| 0)
}

fn bits(numbers: &[u32]) -> u64 {
    numbers.iter().fold(0, |all, number| all | 1 << number)
}

/// The pages of a range, which may be of a space that is gone: then the caller's limits apply.
fn range(of: &Faults, [start, length]: [u64; 2]) -> Result<Pages, Errno> {
    match of.space() {
        Ok(space) => space.userfault_range(start, length),
        Err(_) => crate::process::space().userfault_range(start, length),
    }
}

fn register(of: &Faults, at: u64) -> Answer {
    let [start, length, mode]: [u64; 3] = uaccess::read(at)?;
    if mode == 0 || mode & !userfault::MODES != 0 {
        return Err(EINVAL);
    }
    let pages = range(of, [start, length])?;
    let space = of.space().map_err(|_| ENOMEM)?;
    space.register(&of.core, pages, mode)?;
    let mut ioctls = bits(&[
        linux::_UFFDIO_WAKE,
        linux::_UFFDIO_COPY,
        linux::_UFFDIO_ZEROPAGE,
        linux::_UFFDIO_MOVE,
        linux::_UFFDIO_WRITEPROTECT,
        linux::_UFFDIO_CONTINUE,
        linux::_UFFDIO_POISON,
    ]);
    if mode & userfault::WRITE_PROTECT == 0 {
        ioctls &= !bits(&[linux::_UFFDIO_WRITEPROTECT]);
    }
    if mode & userfault::MINOR == 0 {
        ioctls &= !bits(&[linux::_UFFDIO_CONTINUE]);
    }
    uaccess::write(at + 24, &ioctls)?;
    Ok(0)
}

/// Writes how many bytes were filled, or the error, to `to`, and wakes what waits for them.
fn filled(of: &Faults, pages: Pages, filled: Filled, to: u64, wakes: bool) -> Answer {
    let bytes = filled.pages * PAGE_SIZE;
    let told = match (bytes, filled.error) {
        (0, Some(Errno(number))) => -i64::from(number),
        _ => bytes.cast_signed(),
    };
    uaccess::write(to, &told)?;
    match filled.error {
        Some(error) if bytes == 0 => return Err(error),
        _ => {}
    }
    if wakes {
        of.core
            .wake(Pages::new(pages.start, pages.start + filled.pages));
    }
    match filled.error {
        None => Ok(0),
        Some(_) => Err(EAGAIN),
    }
}

/// # Errors
/// `EAGAIN` beside a change that waits for its event to be read.
fn check_unchanging(of: &Faults) -> Result<(), Errno> {
    match of.core.is_changing() {
        true => Err(EAGAIN),
        false => Ok(()),
    }
}

fn copy(of: &Faults, at: u64) -> Answer {
    check_unchanging(of)?;
    let [to, from, length, mode]: [u64; 4] = uaccess::read(at)?;
    // The source need not be aligned.
    if !uaccess::range_ok(from, length) {
        return Err(EINVAL);
    }
    let pages = range(of, [to, length])?;
    if mode & !(DONT_WAKE | COPY_PROTECTED) != 0 {
        return Err(EINVAL);
    }
    let space = of.space()?;
    let protected = mode & COPY_PROTECTED != 0;
    let done = space.userfault_copy(&of.core, pages, protected, &mut |page, frame| {
        let to = Kernel.pointer(frame).as_ptr();
        // SAFETY: A frame that the core has allocated for this, and that nothing shows yet.
        unsafe { uaccess::read_to(from + page * PAGE_SIZE, to, PAGE_SIZE as usize) }
            .map_err(|_| EFAULT)
    });
    filled(of, pages, done, at + 32, mode & DONT_WAKE == 0)
}

fn zero(of: &Faults, at: u64) -> Answer {
    check_unchanging(of)?;
    let [start, length, mode]: [u64; 3] = uaccess::read(at)?;
    let pages = range(of, [start, length])?;
    if mode & !DONT_WAKE != 0 {
        return Err(EINVAL);
    }
    let done = of.space()?.userfault_zero(&of.core, pages);
    filled(of, pages, done, at + 24, mode & DONT_WAKE == 0)
}

fn poison(of: &Faults, at: u64) -> Answer {
    check_unchanging(of)?;
    let [start, length, mode]: [u64; 3] = uaccess::read(at)?;
    let pages = range(of, [start, length])?;
    if mode & !DONT_WAKE != 0 {
        return Err(EINVAL);
    }
    let done = of.space()?.userfault_poison(&of.core, pages);
    filled(of, pages, done, at + 24, mode & DONT_WAKE == 0)
}

fn proceed(of: &Faults, at: u64) -> Answer {
    check_unchanging(of)?;
    let [start, length, mode]: [u64; 3] = uaccess::read(at)?;
    let pages = range(of, [start, length])?;
    if mode & !(DONT_WAKE | COPY_PROTECTED) != 0 {
        return Err(EINVAL);
    }
    let protected = mode & COPY_PROTECTED != 0;
    let done = of.space()?.userfault_continue(&of.core, pages, protected);
    filled(of, pages, done, at + 24, mode & DONT_WAKE == 0)
}

fn moves(of: &Faults, at: u64) -> Answer {
    check_unchanging(of)?;
    let [to, from, length, mode]: [u64; 4] = uaccess::read(at)?;
    // Only within the caller's memory.
    let is_own = of
        .space()
        .is_ok_and(|space| core::ptr::eq(&raw const *space, crate::process::space()));
    if !is_own {
        return Err(EINVAL);
    }
    let pages = range(of, [to, length])?;
    let source = range(of, [from, length])?;
    if mode & !(DONT_WAKE | SKIP_HOLES) != 0 {
        return Err(EINVAL);
    }
    let skips = mode & SKIP_HOLES != 0;
    let done = of
        .space()?
        .userfault_move(&of.core, pages, source.start, skips);
    filled(of, pages, done, at + 32, mode & DONT_WAKE == 0)
}

fn protect(of: &Faults, at: u64) -> Answer {
    check_unchanging(of)?;
    let [start, length, mode]: [u64; 3] = uaccess::read(at)?;
    let pages = range(of, [start, length])?;
    let (protects, wakes) = (mode & PROTECT != 0, mode & PROTECT_DONT_WAKE == 0);
    if mode & !(PROTECT | PROTECT_DONT_WAKE) != 0 || protects && !wakes {
        return Err(EINVAL);
    }
    of.space()?.userfault_protect(&of.core, pages, protects)?;
    if !protects && wakes {
        of.core.wake(pages);
    }
    Ok(0)
}
