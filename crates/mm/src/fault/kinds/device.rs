//! Faults on pages of a device ([`crate::Device`]): frames without a count.
//!
//! The frame follows from the index, so there is nothing to prepare. After the claim the device's size is
//! read once more (step 7). A revocation sets the size to 0, fences, and then looks at the entries. Either
//! the fault sees that and withdraws, or the revocation finds the published entry and zaps it.
//!
//! *Writes*: the entry.

use faultless_paging::Access;
use faultless_sync::{Mutant, mutant};
use faultless_trace::How;

use crate::base::machine::Machine;
use crate::fault::state::FaultState;
use crate::fault::trace::TraceSink;
use crate::fault::{Outcome, PteRef};
use crate::object::ObjectInner;
use crate::space::AddressSpace;
use crate::table::retry::Retry;
use crate::tree::mapping::Attributes;

impl<M: Machine> AddressSpace<M> {
    /// Resolves an access to an empty entry of a mapping of a device.
    pub(crate) fn map_device_page<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        access: Access,
        attributes: &Attributes,
        (cache, index): (&ObjectInner, u64),
        prepared: &mut FaultState<M, N>,
    ) -> Result<Outcome, Retry> {
        let frame = cache.device_frame(index).filter(|_| cache.has(index));
        let Some(frame) = frame else {
            return Ok(Outcome::Bus);
        };
        // Where stores have to be noticed, a read does not let them through.
        let stores = access == Access::Write || self.is_new(attributes);
        let protection = attributes.protection;
        self.tables().transact(at, || {
            // Partner of the claim's barrier: the fence of a truncation, between the store of the size and
            // its look at the entries.
            if !cache.has(index) && !mutant(Mutant::SizeNotValidated) {
                return Err(Retry::PageChanged);
            }
            let write = stores && protection.write;
            let caching = cache.caching();
            let leaf = Self::FORMAT.device_leaf(frame, write, protection, caching);
            Ok(self.allowed::<N>(leaf, at))
        })?;
        prepared.trail.ends(How::File);
        Ok(Outcome::Resolved)
    }
}
