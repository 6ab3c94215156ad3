//! Twins of tests of Linux's KVM: the same names, options, and lines.
//!
//! * A vCPU is a thread of the process. Its program is a loop over its pages, as in the tests; it does not leave the guest, so
//!   there is no time for entries and exits.
//! * The tests' vCPUs spin while they wait. These sleep, because a CPU may have several threads.
//! * `-m` names the only mode there is; there are no nested guests (`-n`), and vCPU `n` runs on CPU `n` modulo their number
//!   (`-c`).

pub mod access_tracking_perf_test;
pub mod dirty_log_perf_test;
mod stress;
