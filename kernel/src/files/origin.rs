//! Where something that is open was found: what `/proc` calls it.

use super::directory::Name;
use super::node::Node;
use super::place;
use super::proc::Text;
use crate::errno::Errno;

/// Where it was found.
pub enum Origin {
    /// By a name in a directory.
    Named(Node, Name),
    /// Nowhere: memory that `memfd_create` made.
    Memory(Name),
}

impl Origin {
    /// Its path, marked if what has the name there now is not what was found; `is` knows that.
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
