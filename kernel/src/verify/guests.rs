//! A list of all guests, for the verifier; kept only if the run is verified.

use alloc::vec::Vec;

use crate::errno::{ENOMEM, Errno};
use crate::kvm::memory::Guest;
use crate::sync::SpinLock;

struct List(Vec<*const Guest>);

// SAFETY: A guest is removed before it is freed, under the lock that readers hold.
unsafe impl Send for List {}

static GUESTS: SpinLock<List> = SpinLock::new(List(Vec::new()));

/// Adds a guest, which stays where it is.
///
/// # Errors
/// `ENOMEM`.
pub fn add(guest: &Guest) -> Result<(), Errno> {
    if super::is_wanted() {
        let mut guests = GUESTS.lock();
        guests.0.try_reserve(1).map_err(|_| ENOMEM)?;
        guests.0.push(guest);
    }
    Ok(())
}

/// Removes a guest that is about to be freed.
pub fn remove(guest: &Guest) {
    if super::is_wanted() {
        GUESTS
            .lock()
            .0
            .retain(|&other| !core::ptr::eq(other, guest));
    }
}

/// Calls `f` with each guest, until one fails; none can be freed meanwhile.
///
/// # Errors
/// Those of `f`.
pub fn for_each<E>(mut f: impl FnMut(&Guest) -> Result<(), E>) -> Result<(), E> {
    let guests = GUESTS.lock();
    guests.0.iter().try_for_each(|&guest| {
        // SAFETY: Guests in the list are not freed, and the lock is held.
        f(unsafe { &*guest })
    })
}
