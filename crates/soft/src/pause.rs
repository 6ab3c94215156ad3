//! Binding a thread to a CPU, and unbinding it.
//!
//! A CPU without a thread holds no translations, is in no CPU set, and has no requests to answer. So another
//! thread can take it.

use crate::cpu::SoftCpu;

impl SoftCpu<'_> {
    /// Leaves the CPU, runs `away` on the thread without a CPU, and takes the CPU again. Another thread may
    /// run the CPU meanwhile; it must have left it when `away` returns.
    ///
    /// So more programs than CPUs can take turns. `away` makes no access through this CPU.
    pub fn pause<R>(&self, away: impl FnOnce() -> R) -> R {
        self.leave();
        let result = away();
        self.join();
        result
    }

    /// Binds the calling thread to the CPU, in the address space.
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
