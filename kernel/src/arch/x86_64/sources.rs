//! The interrupts that there are: their names, and how one is sent to another CPU.

use super::interrupts::Kind;
use super::{apic, idt};

/// Interrupts another CPU. Only the kinds that tell a CPU something are sent.
#[inline]
pub fn send(cpu: u32, kind: Kind) {
    let vector = match kind {
        Kind::Flush => idt::FLUSH,
        _ => idt::RESCHEDULE,
    };
    apic::interrupt(cpu, vector);
}

impl Kind {
    /// The name in `/proc/interrupts` on Linux.
    pub fn short_name(self) -> &'static str {
        match self {
            Self::Serial => "4",
            Self::Timer => "LOC",
            Self::Reschedule => "RES",
            Self::Flush => "TLB",
        }
    }

    /// The description in `/proc/interrupts` on Linux.
    pub fn name(self) -> &'static str {
        match self {
            Self::Serial => "IO-APIC   4-edge      ttyS0",
            Self::Timer => "Local timer interrupts",
            Self::Reschedule => "Rescheduling interrupts",
            Self::Flush => "TLB shootdowns",
        }
    }
}
