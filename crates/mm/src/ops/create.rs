//! Creates an empty address space.

use faultless_frames::NoMemory;

use crate::base::layout::Layout;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::base::policy::Policy;
use crate::rmap::anon::enter_list;
use crate::space::OwnedSpace;

impl<M: Machine> OwnedSpace<M> {
    /// Returns an empty address space, which the caller owns.
    ///
    /// # Errors
    /// [`NoMemory`] when there is no frame for it or for its root.
    pub fn new(
        memory: &'static Memory<M>,
        policy: Policy,
        layout: Layout,
    ) -> Result<Self, NoMemory> {
        let space = Self::unlisted(memory, policy, layout)?;
        enter_list(&space);
        Ok(space)
    }
}
