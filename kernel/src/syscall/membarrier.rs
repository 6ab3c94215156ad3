//! `membarrier`: every thread passes a full barrier, and only the caller pays.
//!
//! CPUs are notified as for a flush. A CPU in user mode is interrupted; a CPU in the kernel passes a barrier
//! before it uses user memory again ([`shootdown::barrier`]), and so does one that enters the address space.
//!
//! Expedited barriers require registration of the address space, as on Linux, although nothing here depends
//! on it. Restartable sequences and their barriers are not supported.

use core::sync::atomic::Ordering;

use linux_raw_sys::general::membarrier_cmd as cmd;

use crate::arch::{percpu, shootdown};
use crate::errno::{Answer, EINVAL, EPERM, Errno};
use crate::memory::Cpu;
use crate::process::space;
use crate::process::space::runs;

const GLOBAL: u32 = cmd::MEMBARRIER_CMD_GLOBAL as u32;
const GLOBAL_EXPEDITED: u32 = cmd::MEMBARRIER_CMD_GLOBAL_EXPEDITED as u32;
const REGISTER_GLOBAL: u32 = cmd::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED as u32;
const PRIVATE: u32 = cmd::MEMBARRIER_CMD_PRIVATE_EXPEDITED as u32;
const REGISTER_PRIVATE: u32 = cmd::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED as u32;
const SYNC_CORE: u32 = cmd::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE as u32;
const REGISTER_SYNC_CORE: u32 = cmd::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE as u32;
const REGISTRATIONS: u32 = cmd::MEMBARRIER_CMD_GET_REGISTRATIONS as u32;

/// The commands that `QUERY` reports.
const ALL: u32 = GLOBAL
    | GLOBAL_EXPEDITED
    | REGISTER_GLOBAL
    | PRIVATE
    | REGISTER_PRIVATE
    | SYNC_CORE
    | REGISTER_SYNC_CORE
    | REGISTRATIONS;

pub fn membarrier(command: u64, flags: u64) -> Answer {
    // Only the barriers of restartable sequences take a flag.
    if flags as u32 != 0 {
        return Err(EINVAL);
    }
    match command as u32 {
        0 => return Ok(u64::from(ALL)),
        REGISTRATIONS => return Ok(u64::from(registrations())),
        GLOBAL | GLOBAL_EXPEDITED => shootdown::barrier(percpus(), false),
        REGISTER_GLOBAL | REGISTER_PRIVATE | REGISTER_SYNC_CORE => register(command as u32),
        PRIVATE => {
            wants(REGISTER_PRIVATE)?;
            // A CPU that takes the space from here on passes a barrier before it goes back to user mode.
            let all = space().cpus().iter().map(|cpu: Cpu| cpu.0);
            shootdown::barrier(all.filter(|&cpu| runs(cpu, space())), false);
        }
        SYNC_CORE => {
            wants(REGISTER_SYNC_CORE)?;
            // A CPU in the kernel might return to user mode without a serialising instruction.
            shootdown::barrier(percpus(), true);
        }
        _ => return Err(EINVAL),
    }
    Ok(0)
}

fn percpus() -> impl Iterator<Item = u32> {
    0..percpu::count()
}

fn register(what: u32) {
    space().barriers.fetch_or(what, Ordering::Relaxed);
}

/// As on Linux, registration for the serialising barrier is reported as both.
fn registrations() -> u32 {
    let registered = space().barriers.load(Ordering::Relaxed);
    match registered & REGISTER_SYNC_CORE {
        0 => registered,
        _ => registered | REGISTER_PRIVATE,
    }
}

fn wants(what: u32) -> Result<(), Errno> {
    match space().barriers.load(Ordering::Relaxed) & what {
        0 => Err(EPERM),
        _ => Ok(()),
    }
}
