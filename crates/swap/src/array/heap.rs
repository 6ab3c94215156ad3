//! The array in models: on the heap, because loom's atomics have to be constructed.

use std::boxed::Box;

use faultless_frames::NoMemory;
use faultless_paging::Frame;

use super::Zeroed;
use crate::machine::SwapMachine;

/// The array.
pub(crate) struct FrameArray<T>(Box<[T]>);

impl<T: Zeroed> FrameArray<T> {
    pub(crate) fn new<M: SwapMachine>(_machine: &M, length: usize) -> Result<Self, NoMemory> {
        Ok(Self((0..length).map(|_| T::default()).collect()))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get<M: SwapMachine>(&self, _machine: &M, index: usize) -> Option<&T> {
        self.0.get(index)
    }

    pub(crate) fn for_each_frame<M: SwapMachine>(&self, _: &M, _: &mut dyn FnMut(Frame)) {}

    /// # Safety
    /// Nothing is needed.
    pub(crate) unsafe fn free<M: SwapMachine>(&self, _machine: &M) {}
}
