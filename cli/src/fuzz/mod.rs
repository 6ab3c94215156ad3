//! Random programs on several systems at once, and what differs.

mod campaign;
mod guest;

pub use campaign::{Campaign, Found};
pub use guest::GuestSide;
