//! A list of all address spaces, for the verifier; kept only if the run is verified.

use alloc::vec::Vec;
use core::ptr;

use crate::errno::{ENOMEM, Errno};
use crate::memory::Space;
use crate::process::UserSpace;
use crate::sync::SpinLock;

struct List(Vec<*const UserSpace>);

// SAFETY: A space is removed before it is freed, under the lock that readers hold.
unsafe impl Send for List {}

/// Indexed by the number of the space.
static SPACES: SpinLock<List> = SpinLock::new(List(Vec::new()));

/// Adds a space.
///
/// # Errors
/// `ENOMEM`.
pub fn add(space: &UserSpace) -> Result<(), Errno> {
    if !super::is_wanted() {
        return Ok(());
    }
    let number = space.number();
    let mut spaces = SPACES.lock();
    let missing = (number + 1).saturating_sub(spaces.0.len());
    spaces.0.try_reserve(missing).map_err(|_| ENOMEM)?;
    let length = spaces.0.len() + missing;
    spaces.0.resize(length, ptr::null());
    spaces.0[number] = space;
    Ok(())
}

/// Removes a space that is about to be freed.
pub fn remove(space: &UserSpace) {
    if let Some(place) = SPACES.lock().0.get_mut(space.number()) {
        *place = ptr::null();
    }
}

/// Calls `f` with the number of spaces and with all of them; none can be freed meanwhile.
pub fn with_all<R>(f: impl FnOnce(usize, &mut dyn Iterator<Item = &Space>) -> R) -> R {
    let spaces = SPACES.lock();
    let all = || {
        let places = spaces.0.iter();
        // SAFETY: Spaces in the list are not freed, and the lock is held.
        places.filter_map(|&space| unsafe { space.as_ref() })
    };
    f(all().count(), &mut all().map(|space| &**space))
}
