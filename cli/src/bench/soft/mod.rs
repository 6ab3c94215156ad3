//! Figures of the memory core, taken on the soft machine at the host's speed.
//!
//! * `limit`: a fault against the least it could cost, zeroing timed on both sides.
//! * `find`: the lookup alone.
//! * `change`: unmapping, protecting, mapping.
//! * `host`: the cost of a cold load on this host.
//! * `policies`: one policy against another, and one mapping against two spaces.
//! * `reclaim`: what reclaim delays.
//! * `unmapping`: what a large `munmap` delays.
//! * `flush`: the cost of a TLB flush, by pages and as a whole.
//! * `churn`: mapping and unmapping a few pages, in one thread and in two.
//! * `scaling`: the same with a thread on each CPU.
//! * `guests`: faults of guests.
//! * `huge`: what the making and splitting of huge pages delays.

mod change;
mod churn;
mod find;
mod flush;
mod guests;
mod host;
mod huge;
mod limit;
mod policies;
mod reclaim;
mod scaling;
mod unmapping;

use std::time::Duration;

use anyhow::{Context as _, Result};
use faultless_mm::{AddressSpace, Policy, flags};
use faultless_soft::{Options, Soft, SoftCpu, SoftMemory, SoftSpace};
use rustix::time::{ClockId, clock_gettime};

pub use change::{mmap_1gib_vs_1mib, protect_100k, unmap_100k};
pub use churn::{mmap_anywhere, mmap_churn_one_vs_two_spaces, mmap_fixed, munmap_1, munmap_16};
pub use find::find_100k;
pub use flush::{page as flush_page, pass as flush_pass, refill as flush_refill};
pub use guests::{
    fast_page_fault_off_vs_on, idle_full_vs_fast, one_vm_vs_two_fast, one_vm_vs_two_map,
};
pub use host::load_4m;
pub use huge::{collapse_stall_p99_fault, collapse_stall_p99_fault_idle};
pub use limit::{fault_over_limit, fault_over_limit_100k};
pub use policies::{
    one_mapping_vs_two_spaces_classic, one_mapping_vs_two_spaces_speculative,
    one_mapping_vs_two_spaces_vma_lock, speculative_vs_classic_1t,
};
pub use reclaim::reclaim_stall_p99_fault;
pub use scaling::{churn_all_cpus_classic, churn_all_cpus_speculative, churn_all_cpus_vma_lock};
pub use unmapping::{
    disjoint_waits, exclusive_8gb, exclusive_80gb, exclusive_80gb_downgraded, exclusive_80gb_held,
    exclusive_80mb, exclusive_800mb, stall_p99_fault, stall_p99_fork, stall_p99_mmap,
    stall_p99_mprotect,
};

const PAGE: u64 = 4096;
const READ_WRITE: u32 = 3;
const ANONYMOUS: u32 = flags::PRIVATE | flags::ANONYMOUS;
/// Where benches map: far from everything else.
const BASE: u64 = 0x10_0000_0000;

/// A machine without a zeroed pool, all its memory touched once, so that the
/// host's own page faults are over.
fn machine(cpus: usize, megabytes: u64) -> Result<&'static SoftMemory> {
    let options = Options {
        cpus,
        memory: megabytes << 20,
        zeroed_pool: false,
        ..Options::default()
    };
    let memory = Soft::start(options).context("no soft machine")?;
    SoftCpu::attend(memory, 0, || {
        let space = Soft::space(memory, Policy::Classic)?;
        let bytes = (megabytes << 20) / 8 * 7;
        map(&space, BASE, bytes)?;
        let last = space.madvise(BASE, bytes, faultless_mm::advice::POPULATE_WRITE);
        space.destroy();
        last.context("the machine is smaller than it says")
    })?;
    Ok(memory)
}

fn space(memory: &'static SoftMemory, policy: Policy) -> Result<SoftSpace> {
    SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).context("no address space")
}

fn map(space: &AddressSpace<Soft>, at: u64, bytes: u64) -> Result<()> {
    space
        .mmap(at, bytes, READ_WRITE, ANONYMOUS | flags::FIXED)
        .map(|_| ())
        .context("the bench cannot map its memory")
}

/// Addresses of `count` pages, `stride` pages apart, in a random order that is
/// always the same.
fn shuffled(count: u64, stride: u64) -> Vec<u64> {
    let mut addresses: Vec<u64> = (0..count).map(|n| BASE + n * stride * PAGE).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for i in (1..addresses.len()).rev() {
        // xorshift64*: good enough to defeat prefetching.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
        addresses.swap(i, (random % (i as u64 + 1)) as usize);
    }
    addresses
}

/// The CPU time of this thread, which excludes other work on the host.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
