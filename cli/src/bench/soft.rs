//! Figures of the memory core and the soft machine.

use anyhow::{Result, bail};

use super::Samples;

macro_rules! not_there_yet {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $($(#[$doc])* pub fn $name() -> Result<Samples> { bail!("this figure cannot be taken yet") })*
    };
}

not_there_yet! {
    /// A fault beyond the limit, in one mapping.
    fault_over_limit,
    /// A fault beyond the limit, among 100,000 mappings.
    fault_over_limit_100k,
    /// The lookup among 100,000 mappings.
    find_100k,
    /// One thread, speculative against classic.
    speculative_vs_classic_1t,
    /// Two threads in one mapping against two spaces, classic.
    one_mapping_vs_two_spaces_classic,
    /// The same, vma-lock.
    one_mapping_vs_two_spaces_vma_lock,
    /// The same, speculative.
    one_mapping_vs_two_spaces_speculative,
}
