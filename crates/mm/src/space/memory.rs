//! The constructor of a machine's memory core, for ports.

use faultless_sync::reclaim::Participant;

use crate::base::machine::Machine;
use crate::base::memory::{Memory, PerCpu, Shape};
use crate::base::userfault::UserfaultInner;
use crate::object::mappings::mapping_shape;
use crate::object::probe::Body;
use crate::object::{Node, ObjectInner};
use crate::tree::{node_shape, split_shape};

impl<M: Machine> Memory<M> {
    /// Makes the memory core of `machine`, for as many CPUs as `cpus` and `participants` have entries. A CPU
    /// must be [`Memory::online`] before it calls anything else.
    pub fn new(machine: M, cpus: &'static [PerCpu], participants: &'static [Participant]) -> Self {
        let shapes = [
            node_shape(),
            mapping_shape(),
            // Tables are frames.
            Shape::plain(size_of::<u64>()),
            split_shape(),
            Shape::plain(size_of::<ObjectInner>()),
            Shape::plain(size_of::<Node>()),
            Shape::plain(size_of::<Body>()),
            Shape::plain(size_of::<UserfaultInner>()),
        ];
        Self::with_shapes(machine, cpus, participants, shapes)
    }
}
