//! System calls: dispatch from a number to the function that implements it.
//!
//! One module per family. A call gets its arguments as the registers hold them and returns an [`Answer`]. It
//! may sleep, and never panics, whatever the arguments. `syscall_slow` handles the calls that need all
//! registers of the caller (`slow_way`).

pub mod capability;
pub mod file;
pub mod identity;
pub mod membarrier;
pub mod memory;
pub mod numa;
pub mod pidfd;
pub mod poll;
pub mod priority;
pub mod process;
pub mod process_vm;
pub mod remap;
pub mod resource;
pub mod restart;
pub mod signal;
pub mod thread;
pub mod time;
pub mod timer;
pub mod unknown;
pub mod user;

use linux_raw_sys::general as nr;

use crate::arch::frame::FastFrame;
use crate::arch::{TrapFrame, legacy};
use crate::errno::{Answer, ENOSYS, EPERM, to_register};
use crate::exec::execve;
use crate::process::{current as current_process, end};
use crate::ptrace::{self, call as stops};
use crate::swap::call as swap;
use crate::{futex, sched};

/// The result for the entry code, in two registers.
#[repr(C)]
pub struct Returned {
    value: u64,
    /// Not 0: save all registers and call [`syscall_slow`] with it.
    way: u64,
}

const FAST: u64 = 0;
/// There is work to do before user mode.
const WORK: u64 = 1;
const CLONE: u64 = 2;
const CLONE3: u64 = 3;
const FORK: u64 = 4;
const VFORK: u64 = 5;
const EXECVE: u64 = 6;
const SIGNAL_RETURN: u64 = 7;
/// The thread stops at system calls.
const TRACED: u64 = 8;

/// The slow path of a system call that needs all registers.
#[inline]
fn slow_way(number: u32) -> Option<u64> {
    match number {
        nr::__NR_clone => Some(CLONE),
        nr::__NR_clone3 => Some(CLONE3),
        nr::__NR_execve => Some(EXECVE),
        nr::__NR_rt_sigreturn => Some(SIGNAL_RETURN),
        _ if Some(number) == legacy::FORK => Some(FORK),
        _ if Some(number) == legacy::VFORK => Some(VFORK),
        _ => None,
    }
}

/// The fast path of system calls, called by the entry code.
pub extern "C" fn syscall(frame: &mut FastFrame) -> Returned {
    let number = frame.call_number();
    crate::memory::count(crate::memory::Counter::Syscalls, 1);
    let thread = sched::current();
    let way = match thread.stops_at_calls() {
        true => Some(TRACED),
        false => slow_way(number),
    };
    if let Some(way) = way {
        return Returned {
            value: frame.result(),
            way,
        };
    }
    let value = to_register(call(number, frame.arguments()));
    let way = if thread.has_work() { WORK } else { FAST };
    Returned { value, way }
}

/// The slow path, for system calls that need all registers. `frame` is the thread's; no reference to it is
/// held where a tracer or a new program may change it.
pub extern "C" fn syscall_slow(frame: *mut TrapFrame, way: u64) {
    match way {
        TRACED => traced(frame),
        way => take(frame, way),
    }
    sched::leave(frame);
}

/// Runs a system call of a thread that stops before and after it. The tracer may choose another call, or
/// none.
fn traced(frame: *mut TrapFrame) {
    let thread = sched::current();
    // SAFETY: The thread runs, so its frame is its own; this borrow ends before the thread stops.
    let registers = || unsafe { &mut (*frame).fast };
    registers().set_no_result(to_register(Err(ENOSYS)));
    if stops::begins(thread) && registers().is_call() {
        let f = *registers();
        let number = f.call_number();
        match slow_way(number) {
            Some(way) => {
                take(frame, way);
                if way == EXECVE {
                    // Still the same call for the tracer, now in another program.
                    registers().set_call(number);
                }
            }
            None => {
                let result = call(number, f.arguments());
                registers().set_result(to_register(result));
            }
        }
    }
    stops::ended(thread, frame);
}

/// Runs a system call that needs all registers.
fn take(frame: *mut TrapFrame, way: u64) {
    // SAFETY: The thread runs, so its frame is its own. Copied, because the thread may stop as the parent of
    // a new process, and `execve` overwrites the frame.
    let before = unsafe { *frame };
    let result = match way {
        CLONE => thread::clone(&before),
        CLONE3 => thread::clone3(&before),
        FORK => thread::fork(&before),
        VFORK => thread::vfork(&before),
        EXECVE => {
            let [path, arguments, environment, ..] = before.fast.arguments();
            match execve::execve(path, arguments, environment) {
                Err(error) => Err(error),
                // The frame is the new program's already.
                Ok(_) => return,
            }
        }
        // SAFETY: As above; it does not stop.
        SIGNAL_RETURN => return signal::rt_sigreturn(unsafe { &mut *frame }),
        _ => return,
    };
    // SAFETY: As above.
    unsafe { (*frame).fast.set_result(to_register(result)) };
}

#[allow(clippy::too_many_lines, reason = "a table")]
fn call(number: u32, [a, b, c, d, e, f]: [u64; 6]) -> Answer {
    match number {
        nr::__NR_mmap => memory::mmap(a, b, c, d, e, f),
        nr::__NR_munmap => memory::munmap(a, b),
        nr::__NR_mprotect => memory::mprotect(a, b, c),
        nr::__NR_mremap => memory::mremap(a, b, c, d, e),
        nr::__NR_remap_file_pages => remap::remap_file_pages(a, b, c, d, e),
        nr::__NR_msync => memory::msync(a, b, c),
        nr::__NR_mincore => memory::mincore(a, b, c),
        nr::__NR_swapon => swap::swapon(a, b),
        nr::__NR_swapoff => swap::swapoff(a),
        nr::__NR_madvise => memory::madvise(a, b, c),
        nr::__NR_mlock => memory::mlock(a, b),
        nr::__NR_mlock2 => memory::mlock2(a, b, c),
        nr::__NR_munlock => memory::munlock(a, b),
        nr::__NR_mlockall => memory::mlockall(a),
        nr::__NR_munlockall => memory::munlockall(),
        nr::__NR_brk => memory::brk(a),
        nr::__NR_mseal => memory::mseal(a, b, c),
        nr::__NR_process_madvise => memory::process_madvise(a, b, c, d, e),
        nr::__NR_process_vm_readv | nr::__NR_process_vm_writev => {
            let [here, there] =
                [(b, c), (d, e)].map(|(at, count)| process_vm::Vector { at, count });
            match number {
                nr::__NR_process_vm_readv => process_vm::process_vm_readv(a, &here, &there, f),
                _ => process_vm::process_vm_writev(a, &here, &there, f),
            }
        }
        nr::__NR_get_mempolicy => numa::get_mempolicy(a, b, c, d, e),
        nr::__NR_set_mempolicy => numa::set_mempolicy(a, b, c),
        nr::__NR_mbind => numa::mbind(a, b, c, d, e, f),
        nr::__NR_migrate_pages => numa::migrate_pages(a, b, c, d),
        nr::__NR_move_pages => numa::move_pages(a, b, c, d, e, f),
        nr::__NR_membarrier => membarrier::membarrier(a, b),
        nr::__NR_futex => futex::futex(a, b, c, d, e, f),

        nr::__NR_rt_sigaction => signal::rt_sigaction(a, b, c, d),
        nr::__NR_rt_sigprocmask => signal::rt_sigprocmask(a, b, c, d),
        nr::__NR_rt_sigpending => signal::rt_sigpending(a, b),
        nr::__NR_rt_sigsuspend => signal::rt_sigsuspend(a, b),
        nr::__NR_rt_sigtimedwait => signal::rt_sigtimedwait(a, b, c, d),
        nr::__NR_sigaltstack => signal::sigaltstack(a, b),
        nr::__NR_kill => signal::kill(a, b),
        nr::__NR_tkill => signal::tkill(a, b),
        nr::__NR_rt_sigqueueinfo => signal::rt_sigqueueinfo(a, b, c),
        nr::__NR_rt_tgsigqueueinfo => signal::rt_tgsigqueueinfo(a, b, c, d),
        nr::__NR_tgkill => signal::tgkill(a, b, c),

        nr::__NR_exit => end::exit_alone(a as i32),
        nr::__NR_exit_group => {
            current_process().exit(a as i32);
            end::exit_thread(sched::current())
        }
        nr::__NR_set_tid_address => thread::set_tid_address(a),
        nr::__NR_get_robust_list => thread::get_robust_list(a, b, c),
        nr::__NR_set_robust_list => thread::set_robust_list(a, b),
        nr::__NR_gettid => Ok(u64::from(sched::current().id())),
        nr::__NR_prctl => thread::prctl(a, [b, c, d, e]),
        nr::__NR_sched_yield => {
            sched::yield_now();
            Ok(0)
        }
        nr::__NR_sched_getaffinity => thread::sched_getaffinity(a, b, c),
        nr::__NR_sched_setaffinity => thread::sched_setaffinity(a, b, c),
        nr::__NR_getcpu => thread::getcpu(a, b),

        nr::__NR_nanosleep => time::nanosleep(a, b),
        nr::__NR_clock_nanosleep => time::clock_nanosleep(a, b, c, d),
        nr::__NR_restart_syscall => restart::restart_syscall(),
        nr::__NR_clock_gettime => time::clock_gettime(a, b),
        nr::__NR_clock_getres => time::clock_getres(a, b),
        nr::__NR_gettimeofday => time::gettimeofday(a, b),
        nr::__NR_times => time::times(a),

        nr::__NR_getpid => process::getpid(),
        nr::__NR_getppid => process::getppid(),
        nr::__NR_getpgid => process::getpgid(a),
        nr::__NR_getsid => process::getsid(a),
        nr::__NR_setpgid => process::setpgid(a, b),
        nr::__NR_setsid => process::setsid(),
        nr::__NR_ptrace => ptrace::ptrace(a, b, c, d),
        nr::__NR_pidfd_open => pidfd::pidfd_open(a, b),
        nr::__NR_wait4 => process::wait4(a, b, c, d),
        nr::__NR_waitid => process::waitid(a, b, c, d, e),
        nr::__NR_sched_getscheduler => priority::sched_getscheduler(a),
        nr::__NR_sched_setscheduler => priority::sched_setscheduler(a, b, c),
        nr::__NR_sched_getparam => priority::sched_getparam(a, b),
        nr::__NR_sched_setparam => priority::sched_setparam(a, b),
        nr::__NR_sched_get_priority_max => priority::sched_get_priority(a, true),
        nr::__NR_sched_get_priority_min => priority::sched_get_priority(a, false),
        nr::__NR_sched_rr_get_interval => priority::sched_rr_get_interval(a, b),
        nr::__NR_getpriority => priority::getpriority(a, b),
        nr::__NR_setpriority => priority::setpriority(a, b),

        nr::__NR_setuid | nr::__NR_setgid => user::set(a),
        nr::__NR_setreuid | nr::__NR_setregid => user::set_several(&[a, b]),
        nr::__NR_setresuid | nr::__NR_setresgid => user::set_several(&[a, b, c]),
        nr::__NR_setfsuid | nr::__NR_setfsgid => user::set_file_id(),
        nr::__NR_getresuid | nr::__NR_getresgid => user::get_several([a, b, c]),
        nr::__NR_getgroups => user::getgroups(),
        nr::__NR_setgroups => user::setgroups(a, b),
        nr::__NR_getuid | nr::__NR_geteuid | nr::__NR_getgid | nr::__NR_getegid => Ok(0),
        nr::__NR_setitimer => timer::setitimer(a, b, c),
        nr::__NR_getitimer => timer::getitimer(a, b),
        nr::__NR_timer_create => timer::timer_create(a, b, c),
        nr::__NR_timer_settime => timer::timer_settime(a, b, c, d),
        nr::__NR_timer_gettime => timer::timer_gettime(a, b),
        nr::__NR_timer_getoverrun => timer::timer_getoverrun(a),
        nr::__NR_timer_delete => timer::timer_delete(a),

        nr::__NR_capget => capability::capget(a, b),
        nr::__NR_capset => capability::capset(a, b),
        // There is no terminal to hang up.
        nr::__NR_vhangup => Ok(0),
        nr::__NR_personality => Ok(0),
        nr::__NR_settimeofday | nr::__NR_clock_settime => Err(EPERM),
        nr::__NR_uname => identity::uname(a),
        nr::__NR_sysinfo => identity::sysinfo(a),
        nr::__NR_prlimit64 => resource::prlimit64(a, b, c, d),
        nr::__NR_getrlimit => resource::getrlimit(a, b),
        nr::__NR_setrlimit => resource::setrlimit(a, b),
        nr::__NR_getrusage => resource::getrusage(a, b),

        // Known, and refused: programs work without it.
        nr::__NR_rseq => Err(ENOSYS),
        number => file::call(number, [a, b, c, d, e, f]),
    }
}
