//! Allocation of mappings: each leads to its space and holds its object.

use core::ptr::NonNull;

use faultless_frames::NoMemory;

use crate::base::machine::Machine;
use crate::base::memory::Kind;
use crate::base::notes::Note;
use crate::space::AddressSpace;
use crate::tree::mapping::{Attributes, Mapping};

impl<M: Machine> AddressSpace<M> {
    /// Allocates a mapping that no slot leads to yet. It holds its object, and is in the object's list.
    pub(crate) fn allocate_mapping(
        &self,
        attributes: Attributes,
    ) -> Result<NonNull<Mapping>, NoMemory> {
        let memory = self.memory();
        let place = memory.allocate(Kind::Mapping)?.cast::<Mapping>();
        // SAFETY: fresh memory of a mapping's size and alignment.
        unsafe { place.write(Mapping::new(attributes)) };
        attributes.handler.hold();
        if let Some(backed) = &attributes.backed {
            backed.object().hold();
            self.maps.note(Note::OBJECTS);
            // SAFETY: made above.
            memory.link(unsafe { place.as_ref() }, backed, self.expose());
        }
        Ok(place)
    }
}
