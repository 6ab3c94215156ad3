//! Virtual machines: memory slots over the process's memory, and vCPUs, each run by a thread of the process.

use std::sync::Arc;

use faultless_soft::{Exit, Soft, SoftSpace, SoftVcpu};
use faultless_tdp::{OwnedGuest, Slot};

use super::thread::{Stop, Thread};

/// A virtual machine.
pub struct Vm(OwnedGuest<Soft, Arc<SoftSpace>>);

impl Vm {
    /// Makes one without memory, as the process's options say, runs `work` with it, and ends it. All threads that run its vCPUs
    /// have ended when `work` returns.
    pub fn with<R>(
        thread: &Thread<'_>,
        work: impl FnOnce(&Self) -> Result<R, Stop>,
    ) -> Result<R, Stop> {
        let process = thread.process();
        let guest = OwnedGuest::new(process.space().clone(), 0, process.guests());
        let vm = Self(guest.map_err(|_| process.out_of_memory())?);
        let result = work(&vm);
        vm.0.destroy();
        result
    }

    /// Makes or changes a memory slot.
    pub fn set_slot(&self, thread: &Thread<'_>, number: u32, slot: &Slot) -> Result<(), Stop> {
        thread.look_up()?;
        thread.or_die("KVM_SET_USER_MEMORY_REGION", self.0.set_slot(number, slot))
    }

    /// Gets a slot's dirty log, 64 pages in a word. With `clears`, the pages are clean from then on.
    pub fn get_dirty_log(
        &self,
        thread: &Thread<'_>,
        number: u32,
        clears: bool,
        to: &mut Vec<u64>,
    ) -> Result<(), Stop> {
        thread.look_up()?;
        to.clear();
        let result = self.0.get_dirty_log(number, clears, &mut |word| {
            to.push(word);
            Ok(())
        });
        thread.or_die("KVM_GET_DIRTY_LOG", result)
    }

    /// Clears pages in the log of a slot, which has so many.
    pub fn clear_dirty_log(
        &self,
        thread: &Thread<'_>,
        number: u32,
        pages: u64,
        log: &[u64],
    ) -> Result<(), Stop> {
        thread.look_up()?;
        let mut words = log.iter().copied();
        let mut wanted = || Ok(words.next().unwrap_or(0));
        let result = self.0.clear_dirty_log(number, 0, pages, &mut wanted);
        thread.or_die("KVM_CLEAR_DIRTY_LOG", result)
    }

    /// A vCPU that the thread runs.
    pub fn vcpu<'a>(&'a self, thread: &'a Thread<'a>) -> Vcpu<'a> {
        Vcpu {
            thread,
            vcpu: SoftVcpu::new(thread.cpu(), &self.0),
        }
    }
}

/// A vCPU, run by a thread. An access that leaves the guest ends the process: there are no devices.
pub struct Vcpu<'a> {
    thread: &'a Thread<'a>,
    vcpu: SoftVcpu<'a>,
}

impl Vcpu<'_> {
    /// Loads a word.
    #[inline]
    pub fn load(&self, address: u64) -> Result<u64, Stop> {
        self.thread.look_up()?;
        self.vcpu.load(address).map_err(|exit| self.failed(exit))
    }

    /// Stores a word.
    #[inline]
    pub fn store(&self, address: u64, value: u64) -> Result<(), Stop> {
        self.thread.look_up()?;
        let stored = self.vcpu.store(address, value);
        stored.map_err(|exit| self.failed(exit))
    }

    #[cold]
    fn failed(&self, exit: Exit) -> Stop {
        match exit {
            Exit::Host(faultless_mm::Outcome::OutOfMemory) => self.thread.process().out_of_memory(),
            exit => self.thread.die(format_args!("KVM_RUN: {exit:?}")),
        }
    }
}
