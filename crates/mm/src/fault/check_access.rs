//! Whether a mapping allows an access, and the error code if not.
//!
//! A load is allowed wherever stores or instruction fetches are, as in most page tables. Execute-only memory
//! refuses loads on machines that can express that. On x86-64 that takes a protection key. A program may
//! change the rights of the key itself, so the machine is asked each time.

use faultless_paging::{Access, Protection};

use crate::base::machine::Machine;
use crate::fault::SegvCode;
use crate::space::AddressSpace;

impl<M: Machine> AddressSpace<M> {
    /// Returns why a mapping with this protection refuses an access, if it does.
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

    /// As [`AddressSpace::check_access`], for what no machine allows and for loads from execute-only memory.
    #[cold]
    fn check_access_slow(&self, protection: Protection, access: Access) -> Option<SegvCode> {
        if protection.is_execute_only() && self.machine().refuses_data(access) {
            match M::EXECUTE_ONLY_BY_KEY {
                true => Some(SegvCode::KeyErr),
                false => Some(SegvCode::AccErr),
            }
        } else if protection.allows(access) {
            None
        } else {
            Some(SegvCode::AccErr)
        }
    }
}
