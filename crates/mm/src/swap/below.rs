//! The machine, as `faultless-swap` needs it.

use core::ptr::NonNull;

use faultless_paging::{Frame, PhysicalMemory};
use faultless_swap::SwapMachine;
use faultless_sync::atomic::AtomicU32;
use faultless_sync::{Cpu, Wait};

use crate::base::machine::Machine;

/// The machine under the slots.
pub(crate) struct Below<M: Machine>(pub(super) &'static M);

impl<M: Machine> PhysicalMemory for Below<M> {
    fn pointer(&self, frame: Frame) -> NonNull<u8> {
        self.0.pointer(frame)
    }
    fn zero(&self, frame: Frame) {
        self.0.zero(frame);
    }
}

impl<M: Machine> Wait for Below<M> {
    fn relax(&self, turn: u32) {
        self.0.relax(turn);
    }
    fn poll(&self) {
        self.0.poll();
    }
    fn park(&self, word: &AtomicU32, expected: u32) {
        self.0.park(word, expected);
    }
    fn wake(&self, word: &AtomicU32, count: u32) {
        self.0.wake(word, count);
    }
}

impl<M: Machine> SwapMachine for Below<M> {
    type Frames = M::Frames;
    fn frames(&self) -> &Self::Frames {
        self.0.frames()
    }
    fn cpu(&self) -> Cpu {
        self.0.cpu()
    }
}
