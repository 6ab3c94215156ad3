//! Runs random programs on several systems in parallel, and compares the results.

mod campaign;
mod guest;

pub use campaign::{Campaign, Found};
pub use guest::GuestSide;
