//! Where an open object was found: its name in `/proc`.

use super::directory::Name;
use super::node::Node;
use super::place;
use super::proc::Text;
use crate::errno::Errno;

/// Where an object was found.
pub enum Origin {
    /// By a name in a directory.
    Named(Node, Name),
    /// Nowhere: memory made by `memfd_create`.
    Memory(Name),
}

impl Origin {
    /// Writes its path, marked if the name now leads to something else. `is` compares a node with the object.
    ///
    /// # Errors
    /// `ENOENT` if the directory was removed; `ENOMEM`.
    pub fn write(&self, text: &mut Text, is: impl FnOnce(&Node) -> bool) -> Result<(), Errno> {
        let is_there = match self {
            Self::Named(directory, name) => {
                let above = place::path_of(directory)?;
                text.bytes(&above)?;
                if above.last() != Some(&b'/') {
                    text.bytes(b"/")?;
                }
                text.bytes(name)?;
                directory.lookup(name)?.is_some_and(|there| is(&there))
            }
            Self::Memory(name) => {
                text.bytes(b"/memfd:")?;
                text.bytes(name)?;
                false
            }
        };
        if is_there {
            Ok(())
        } else {
            text.bytes(b" (deleted)")
        }
    }
}
