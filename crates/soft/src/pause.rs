//! Taking up a CPU and leaving it.
//!
//! A CPU that a thread has left knows no translations, is in no set, and owes
//! nobody an answer, so that another thread may take it up.

use crate::cpu::SoftCpu;

impl SoftCpu<'_> {
    /// Leaves the CPU, runs `away` on a thread that is no CPU, and takes the CPU
    /// up again. Meanwhile another thread may run it; it must have left it when
    /// `away` returns.
    ///
    /// This is how more programs than CPUs take turns. `away` makes no access
    /// through this CPU.
    pub fn pause<R>(&self, away: impl FnOnce() -> R) -> R {
        self.leave();
        let result = away();
        self.join();
        result
    }

    /// Makes the calling thread the CPU, in the address space.
    pub(crate) fn join(&self) {
        self.memory.machine().take(self.cpu);
        self.memory.online(self.cpu);
        self.space.cpus().insert(self.cpu);
        self.state().space.set(self.space.id().id);
    }

    /// Undoes [`SoftCpu::join`].
    pub(crate) fn leave(&self) {
        let state = self.state();
        state.tlb.0.flush_all();
        state.space.set(0);
        self.space.cpus().remove(self.cpu);
        self.memory.offline(self.cpu);
        self.memory.machine().leave(self.cpu);
    }
}
