//! System calls that create threads and processes, and calls on per-thread state.

use linux_raw_sys::general as linux;
use linux_raw_sys::prctl;

use crate::arch::{TrapFrame, percpu, uaccess};
use crate::errno::{Answer, E2BIG, EINVAL, ESRCH, Errno};
use crate::futex::{self, Word};
use crate::process::fork::{self, Arguments};
use crate::process::{family, space};
use crate::sched;
use crate::sched::thread::Thread;
use crate::signal::COUNT;

/// `clone`.
pub fn clone(frame: &TrapFrame) -> Answer {
    let [flags, stack, parent_id, child_id, tls] = frame.fast.clone_arguments();
    let arguments = Arguments {
        flags: flags & !u64::from(linux::CSIGNAL),
        stack,
        parent_id,
        child_id,
        tls,
        exit_signal: flags as u32 & linux::CSIGNAL,
    };
    fork::clone(frame, &arguments)
}

/// `clone3`.
pub fn clone3(frame: &TrapFrame) -> Answer {
    let [from, size, ..] = frame.fast.arguments();
    if size < u64::from(linux::CLONE_ARGS_SIZE_VER0) {
        return Err(EINVAL);
    }
    if size > 4096 {
        return Err(E2BIG);
    }
    let mut bytes = [0; linux::CLONE_ARGS_SIZE_VER2 as usize];
    let known = bytes.len().min(size as usize);
    uaccess::read_bytes(from, &mut bytes[..known])?;
    for at in known as u64..size {
        if uaccess::read::<u8>(from.wrapping_add(at))? != 0 {
            return Err(E2BIG);
        }
    }
    let mut words = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
    let mut next = || words.next().unwrap_or(0);
    let (flags, _pidfd, child_id, parent_id) = (next(), next(), next(), next());
    let (exit_signal, stack, stack_size, tls) = (next(), next(), next(), next());
    let (set_tid, set_tid_size) = (next(), next());
    let shares_parent = u64::from(linux::CLONE_PARENT | linux::CLONE_THREAD);
    if flags & u64::from(linux::CSIGNAL) != 0
        || exit_signal != 0 && flags & shares_parent != 0
        || exit_signal > u64::from(COUNT)
        || (stack == 0) != (stack_size == 0)
        || set_tid != 0
        || set_tid_size != 0
    {
        return Err(EINVAL);
    }
    let arguments = Arguments {
        flags,
        stack: stack.wrapping_add(stack_size),
        parent_id,
        child_id,
        tls,
        exit_signal: exit_signal as u32,
    };
    fork::clone(frame, &arguments)
}

/// `fork`.
pub fn fork(frame: &TrapFrame) -> Answer {
    let exit_signal = linux::SIGCHLD;
    fork::clone(
        frame,
        &Arguments {
            exit_signal,
            ..Arguments::default()
        },
    )
}

/// `vfork`.
pub fn vfork(frame: &TrapFrame) -> Answer {
    fork::clone(
        frame,
        &Arguments {
            flags: u64::from(linux::CLONE_VM | linux::CLONE_VFORK),
            exit_signal: linux::SIGCHLD,
            ..Arguments::default()
        },
    )
}

pub fn set_tid_address(address: u64) -> Answer {
    let thread = sched::current();
    thread.clear_child_tid.set(address);
    Ok(u64::from(thread.id()))
}

pub fn set_robust_list(head: u64, length: u64) -> Answer {
    if length != 24 {
        return Err(EINVAL);
    }
    sched::current().robust_list.set(head);
    Ok(0)
}

pub fn get_robust_list(id: u64, head: u64, length: u64) -> Answer {
    let list = with_thread(id, |thread| thread.robust_list.get())?;
    uaccess::write(length, &24u64)?;
    uaccess::write(head, &list)?;
    Ok(0)
}

/// Marks the robust futexes that a thread holds with `FUTEX_OWNER_DIED`.
pub fn release_robust_list(thread: &Thread) {
    let head = thread.robust_list.get();
    if head == 0 {
        return;
    }
    let Ok([first, offset, pending]) = uaccess::read::<[u64; 3]>(head) else {
        return;
    };
    let mut at = first;
    // As on Linux, the walk ends after 2,048 entries, so that a circular list ends it, too.
    for _ in 0..2048 {
        if at & !1 == head {
            break;
        }
        let Ok(next) = uaccess::read::<u64>(at & !1) else {
            return;
        };
        if at != pending {
            leave_behind(thread, (at & !1).wrapping_add(offset));
        }
        at = next;
    }
    if pending != 0 {
        leave_behind(thread, (pending & !1).wrapping_add(offset));
    }
}

fn leave_behind(thread: &Thread, word: u64) {
    let Ok(mut value) = uaccess::read::<u32>(word) else {
        return;
    };
    while value & linux::FUTEX_TID_MASK == thread.id() {
        let new = value & linux::FUTEX_WAITERS | linux::FUTEX_OWNER_DIED;
        match uaccess::compare_exchange_word(word, value, new) {
            Ok(found) if found == value => {
                if value & linux::FUTEX_WAITERS != 0 {
                    futex::wake(Word::anyones(word), 1, u32::MAX);
                }
                return;
            }
            Ok(found) => value = found,
            Err(_) => return,
        }
    }
}

pub fn prctl(operation: u64, [argument, second, third, fourth]: [u64; 4]) -> Answer {
    let rest = [second, third, fourth];
    let thread = sched::current();
    match operation as u32 {
        prctl::PR_SET_NAME => {
            let mut name = [0; 16];
            for (at, byte) in (0..).zip(&mut name[..15]) {
                *byte = uaccess::read(argument.wrapping_add(at))?;
                if *byte == 0 {
                    break;
                }
            }
            thread.name.set(name);
            Ok(0)
        }
        prctl::PR_SET_NO_NEW_PRIVS if argument == 1 && rest == [0; 3] => {
            thread.no_new_privileges.set(true);
            Ok(0)
        }
        prctl::PR_GET_NO_NEW_PRIVS if argument == 0 && rest == [0; 3] => {
            Ok(u64::from(thread.no_new_privileges.get()))
        }
        prctl::PR_SET_THP_DISABLE if rest == [0; 3] => {
            space::current().set_huge_off(argument != 0);
            Ok(0)
        }
        prctl::PR_GET_THP_DISABLE if argument == 0 && rest == [0; 3] => {
            Ok(u64::from(space::current().huge_is_off()))
        }
        prctl::PR_GET_NAME => uaccess::write_bytes(argument, &thread.name.get()).map(|()| 0),
        _ => Err(EINVAL),
    }
}

fn with_thread<R>(id: u64, f: impl FnOnce(&'static Thread) -> R) -> Result<R, Errno> {
    match id as u32 {
        0 => Ok(f(sched::current())),
        id => {
            let process = family::find_thread(id).ok_or(ESRCH)?;
            process.with_thread(id, f).ok_or(ESRCH)
        }
    }
}

pub fn sched_getaffinity(id: u64, size: u64, to: u64) -> Answer {
    if size < 8 || !size.is_multiple_of(8) {
        return Err(EINVAL);
    }
    let present = u64::MAX >> (64 - percpu::count());
    let mask = with_thread(id, |thread| {
        thread.affinity.load(core::sync::atomic::Ordering::Relaxed)
    })?;
    uaccess::write(to, &(mask & present))?;
    Ok(8)
}

pub fn sched_setaffinity(id: u64, size: u64, from: u64) -> Answer {
    let mut bytes = [0; 8];
    let length = (size as usize).min(8);
    uaccess::read_bytes(from, &mut bytes[..length])?;
    let present = u64::MAX >> (64 - percpu::count());
    let mask = u64::from_le_bytes(bytes) & present;
    if mask == 0 {
        return Err(EINVAL);
    }
    with_thread(id, |thread| {
        thread
            .affinity
            .store(mask, core::sync::atomic::Ordering::Relaxed);
        sched::affinity_changed(thread);
    })?;
    Ok(0)
}

pub fn getcpu(cpu: u64, node: u64) -> Answer {
    if cpu != 0 {
        uaccess::write(cpu, &percpu::cpu_number())?;
    }
    if node != 0 {
        uaccess::write(node, &0u32)?;
    }
    Ok(0)
}
