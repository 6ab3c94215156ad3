//! What a mapping refuses, and why.
//!
//! Loads are allowed wherever stores or instruction fetches are, as page tables mostly have it. Memory
//! that may only be executed is refused to loads by machines that can tell; on x86-64 by a protection
//! key, whose rights a program may change for itself, so that the machine is asked each time.

use faultless_paging::{Access, Protection};

use crate::base::machine::Machine;
use crate::fault::SegvCode;
use crate::space::AddressSpace;

impl<M: Machine> AddressSpace<M> {
    /// Why a mapping that allows this refuses an access, if it does.
    #[inline]
    pub(crate) fn check_access(&self, protection: Protection, access: Access) -> Option<SegvCode> {
        let is_allowed = match access {
            Access::Read => protection.read || protection.write,
            Access::Write => protection.write,
            Access::Execute => protection.execute,
        };
        if is_allowed {
            None
        } else {
            self.check_access_slow(protection, access)
        }
    }

    /// The same for what no machine allows, and for loads from memory that may only be executed.
    #[cold]
    fn check_access_slow(&self, protection: Protection, access: Access) -> Option<SegvCode> {
        if protection.is_execute_only() && self.machine().refuses_data(access) {
            Some(SegvCode::KeyErr)
        } else if protection.allows(access) {
            None
        } else {
            Some(SegvCode::AccErr)
        }
    }
}
