//! The soft machine under a swap device.

use faultless_mm::Machine;
use faultless_swap::SwapMachine;
use faultless_sync::Cpu;

use crate::machine::Soft;

impl SwapMachine for Soft {
    type Frames = <Soft as Machine>::Frames;

    fn frames(&self) -> &Self::Frames {
        Machine::frames(self)
    }

    fn cpu(&self) -> Cpu {
        Machine::cpu(self)
    }
}
