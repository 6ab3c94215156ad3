//! Clears the accessed bit of an entry, so that the page counts as unused until it is used again.
//!
//! * Clearing it removes no permission, so that the entry is not claimed.
//! * An entry with a clear bit and no owner ([`faultless_paging::holders`]) names no CPU: whatever unmaps or lowers
//!   it later flushes all CPUs that run the space. So no flush is needed for other operations to stay right (rule R8).
//! * A use sets the bit again only when no TLB of its CPU holds the entry. A caller that needs every later use
//!   counted flushes what was cleared; one that only ages pages may leave that out.
//! * The owner is cleared with the bit: its uses leave the bit clear, and another CPU may have loaded the entry
//!   before.
//!
//! *Writes*: the entry.
//!
//! *Models*: loom `table/holders.rs`.

use faultless_paging::{Entry, Value};
use faultless_sync::{Mutant, mutant};

use crate::base::machine::Machine;
use crate::table::Tables;

impl<M: Machine> Tables<M> {
    /// Makes the page of an entry count as unused. Returns what the entry held, for a flush; `None` if the page
    /// counted as unused, or there is none. A claim is a use in progress, and is left alone.
    pub(crate) fn clear_accessed(&self, entry: &Entry) -> Option<Value> {
        let format = Self::FORMAT;
        loop {
            let value = entry.load();
            if !format.is_present(value) && !format.is_hidden(value) {
                return None;
            }
            if !format.is_used(value) || format.is_claimed(value) {
                return None;
            }
            // By compare-and-swap: hardware may set bits at any moment (rule R8).
            let unused = match mutant(Mutant::OwnerNotTakenAway) {
                true => value & !format.accessed,
                false => format.unused(value),
            };
            if entry.replace(value, unused).is_ok() {
                return Some(value);
            }
        }
    }
}
