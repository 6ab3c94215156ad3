//! What every room uses, and what uses no room: the machine, its memory, error numbers, policies, lists.

pub(crate) mod departing;
pub(crate) mod errno;
pub(crate) mod frame_list;
pub(crate) mod huge;
pub(crate) mod isolated;
pub(crate) mod layout;
pub(crate) mod list;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod notes;
pub(crate) mod places;
pub(crate) mod policy;
pub mod rmw;
pub(crate) mod trace;
pub(crate) mod userfault;
