//! Comparisons: the same program in our kernel and in Linux, in the same emulator, with the same
//! processor, memory and initramfs.
//!
//! With one CPU the guest's clock counts instructions, exactly and repeatably, so that one run of each is
//! enough. With more it shows the host's time, which is noisy: runs alternate, the host allocates the guest's
//! memory beforehand, and the ratio is taken pair by pair.

mod modules;
mod peer;
mod result;
mod series;
mod side;
mod suite;
mod take;

pub use peer::Peer;
pub use result::{CompareResult, Counts, Metric};
pub use series::Series;
pub use side::Conditions;
pub use suite::{Job, MEMORY, SUITE};
pub use take::take;
