//! The interrupts that there are: their numbers and names, and how one is sent to another CPU.

use super::gic;
use super::interrupts::Kind;

/// Software-generated interrupts.
pub const RESCHEDULE: u32 = 0;
pub const FLUSH: u32 = 1;
/// The virtual timer, a private interrupt.
pub const TIMER: u32 = 27;

/// Interrupts another CPU. Only the kinds that tell a CPU something are sent.
#[inline]
pub fn send(cpu: u32, kind: Kind) {
    let number = match kind {
        Kind::Flush => FLUSH,
        _ => RESCHEDULE,
    };
    gic::send(cpu, number);
}

impl Kind {
    /// The name in `/proc/interrupts` on Linux.
    pub fn short_name(self) -> &'static str {
        match self {
            Self::Serial => "13",
            Self::Timer => "11",
            Self::Reschedule => "IPI0",
            Self::Flush => "IPI1",
        }
    }

    /// The description in `/proc/interrupts` on Linux.
    pub fn name(self) -> &'static str {
        match self {
            Self::Serial => "GICv3  33 Level     uart-pl011",
            Self::Timer => "GICv3  27 Level     arch_timer",
            Self::Reschedule => "Rescheduling interrupts",
            Self::Flush => "Function call interrupts",
        }
    }
}
