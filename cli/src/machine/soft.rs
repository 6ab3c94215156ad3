//! The soft machine: host threads with software TLBs, and built-in workloads.

use anyhow::{Result, bail};

use super::{Machine, Outcome, Request};
use crate::plan::Need;
use crate::size::Size;

/// The least and the most memory that it is made with.
const MEMORY: (Size, Size) = (Size::mebi(16), Size::mebi(64 << 10));
/// The most CPUs that the memory core is built for.
const MOST_CPUS: u32 = 64;

/// The machine.
pub struct Soft;

impl Machine for Soft {
    fn check(&self, request: &Request) -> Result<Vec<Need>> {
        super::check_size(request, MOST_CPUS, MEMORY)?;
        bail!("the soft machine is not there yet")
    }

    fn run(&self, _request: &Request) -> Result<Outcome> {
        bail!("the soft machine is not there yet")
    }
}
