//! Threads that are started and joined together.

use std::cell::RefCell;
use std::thread::{self, Scope, ScopedJoinHandle};

use super::process::Process;
use super::thread::{Stop, Thread};

/// The size of a thread's stack on the host; there may be thousands, and none recurses.
const STACK: usize = 256 << 10;

/// Threads that another thread has started.
pub struct Team<'scope, 'env: 'scope> {
    process: &'env Process,
    scope: &'scope Scope<'scope, 'env>,
    members: RefCell<Vec<ScopedJoinHandle<'scope, ()>>>,
}

impl<'scope, 'env> Team<'scope, 'env> {
    /// Starts a thread on CPU `number` modulo the number of CPUs.
    pub fn start(
        &self,
        number: usize,
        body: impl FnOnce(&Thread<'_>) -> Result<(), Stop> + Send + 'scope,
    ) -> Result<(), std::io::Error> {
        let process = self.process;
        let run = move || process.run_thread(number, body);
        let builder = thread::Builder::new().stack_size(STACK);
        let member = builder.spawn_scoped(self.scope, run)?;
        self.members.borrow_mut().push(member);
        Ok(())
    }
}

impl Thread<'_> {
    /// Runs `lead` with an empty team, and then waits, off the CPU, for all the
    /// threads that it has started.
    pub fn team<'env, R>(&'env self, lead: impl for<'scope> FnOnce(&Team<'scope, 'env>) -> R) -> R {
        thread::scope(|scope| {
            let team = Team {
                process: self.process(),
                scope,
                members: RefCell::default(),
            };
            let result = lead(&team);
            let members = team.members.take();
            // The scope propagates a thread's panic.
            self.away(|| members.into_iter().for_each(|member| drop(member.join())));
            result
        })
    }
}
