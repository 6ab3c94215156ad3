//! `set_mempolicy` and `get_mempolicy`: a thread's policy, which its children inherit.

use faultless_mm::{PAGE_SIZE, Taken};

use super::nodes::{self, Nodes};
use crate::arch::uaccess;
use crate::errno::{Answer, EFAULT, EINVAL, Errno};
use crate::process::space;
use crate::sched;

const DEFAULT: u32 = 0;
const PREFERRED: u32 = 1;
const BIND: u32 = 2;
const INTERLEAVE: u32 = 3;
const LOCAL: u32 = 4;
const PREFERRED_MANY: u32 = 5;
const WEIGHTED_INTERLEAVE: u32 = 6;

/// Flags of a mode: what the nodes of the set mean when the allowed nodes change, and balancing.
const STATIC: u32 = 1 << 15;
const RELATIVE: u32 = 1 << 14;
const BALANCING: u32 = 1 << 13;

/// Flags of `get_mempolicy`.
const NODE: u64 = 1;
const ADDRESS: u64 = 2;
const ALLOWED: u64 = 4;

/// A policy, as it is returned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    mode: u32,
    flags: u32,
    nodes: u64,
}

/// A mode and its flags, before the nodes are known.
#[derive(Clone, Copy)]
pub struct Mode {
    mode: u32,
    flags: u32,
}

impl Mode {
    /// # Errors
    /// `EINVAL`: there is no such mode, or its flags exclude each other.
    pub fn new(number: u64) -> Result<Self, Errno> {
        let all = STATIC | RELATIVE | BALANCING;
        let (mode, flags) = (number as u32 & !all, number as u32 & all);
        let balances = matches!(mode, BIND | PREFERRED_MANY);
        if mode > WEIGHTED_INTERLEAVE
            || flags & STATIC != 0 && flags & RELATIVE != 0
            || flags & BALANCING != 0 && !balances
        {
            return Err(EINVAL);
        }
        Ok(Self { mode, flags })
    }
}

impl Policy {
    pub const DEFAULT: Self = Self {
        mode: DEFAULT,
        flags: 0,
        nodes: 0,
    };

    /// # Errors
    /// `EINVAL`: the mode needs nodes, or allows none, or has none that exists.
    pub fn new(Mode { mode, flags }: Mode, nodes: Nodes) -> Result<Self, Errno> {
        let keeps_nodes = flags & (STATIC | RELATIVE) != 0;
        match mode {
            DEFAULT if nodes.is_empty() => return Ok(Self::DEFAULT),
            // Without nodes, preferring is the same as `LOCAL`, and shown as that.
            PREFERRED | LOCAL if nodes.is_empty() && !keeps_nodes => {
                return Ok(Self {
                    mode: LOCAL,
                    flags,
                    nodes: 0,
                });
            }
            DEFAULT | LOCAL => return Err(EINVAL),
            _ => {}
        }
        // Relative nodes are counted around the nodes that exist.
        let allowed = match flags & RELATIVE {
            0 => nodes.has_own(),
            _ => !nodes.is_empty(),
        };
        if !allowed {
            return Err(EINVAL);
        }
        let nodes = if keeps_nodes { nodes.first } else { 1 };
        Ok(Self { mode, flags, nodes })
    }

    pub fn is_default(self) -> bool {
        self.mode == DEFAULT
    }

    /// Whether it names no nodes.
    pub fn is_local(self) -> bool {
        self.mode == LOCAL
    }
}

pub fn set_mempolicy(mode: u64, at: u64, count: u64) -> Answer {
    let mode = Mode::new(mode)?;
    let policy = Policy::new(mode, Nodes::read(at, count)?)?;
    sched::current().memory_policy.set(policy);
    Ok(0)
}

pub fn get_mempolicy(to: u64, at: u64, count: u64, address: u64, flags: u64) -> Answer {
    if at != 0 && count == 0 {
        return Err(EINVAL);
    }
    let (value, nodes) = look(address, flags)?;
    if to != 0 {
        uaccess::write(to, &value)?;
    }
    if at != 0 {
        nodes::write(nodes, at, count)?;
    }
    Ok(0)
}

/// The number and the nodes that `get_mempolicy` returns.
fn look(address: u64, flags: u64) -> Result<(u32, u64), Errno> {
    if flags & !(NODE | ADDRESS | ALLOWED) != 0 {
        return Err(EINVAL);
    }
    if flags & ALLOWED != 0 {
        return if flags == ALLOWED {
            Ok((0, 1))
        } else {
            Err(EINVAL)
        };
    }
    let policy = if flags & ADDRESS == 0 {
        if address != 0 {
            return Err(EINVAL);
        }
        sched::current().memory_policy.get()
    } else {
        space().lookup(address).ok_or(EFAULT)?;
        // Policies of ranges are not kept.
        Policy::DEFAULT
    };
    let value = match flags & (NODE | ADDRESS) {
        0 | ADDRESS => policy.mode | policy.flags,
        // The next node of the round.
        NODE if matches!(policy.mode, INTERLEAVE | WEIGHTED_INTERLEAVE) => 0,
        NODE => return Err(EINVAL),
        _ => {
            // As on Linux, the page is brought in to see where it is.
            let page = address & !(PAGE_SIZE - 1);
            drop(space().pin(page, Taken::ToRead).map_err(|_| EFAULT)?);
            0
        }
    };
    Ok((value, policy.nodes))
}
