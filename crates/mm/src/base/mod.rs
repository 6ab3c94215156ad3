//! What every room uses and what uses no room: error numbers, the machine, policies, lists.

pub(crate) mod errno;
pub(crate) mod list;
pub(crate) mod machine;
pub(crate) mod policy;
