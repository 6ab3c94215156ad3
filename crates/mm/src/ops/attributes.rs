//! Changing attributes of which none concerns entries: advice, locks.
//!
//! A mapping's slots go from live to live: a fault in between finds another word when it
//! validates, and tries again.

use crate::errno::Errno;
use crate::machine::Machine;
use crate::mapping::{Attributes, Flags};
use crate::range::RangeLock;
use crate::space::AddressSpace;
use crate::tree::Run;

impl<M: Machine> AddressSpace<M> {
    /// Changes the flags of a run, or of the part of one.
    ///
    /// # Errors
    /// `ENOMEM`: memory, or too many mappings. Nothing has changed.
    pub(super) fn change_run(
        &self,
        lock: &RangeLock<'_, M>,
        run: Run,
        change: impl FnOnce(Flags) -> Flags,
    ) -> Result<(), Errno> {
        // SAFETY: the range keeps mappings from being retired.
        let Some(mapping) = (unsafe { run.word.mapping() }) else {
            return Err(Errno::ENOMEM);
        };
        let from = *mapping.attributes();
        let to = Attributes {
            flags: change(from.flags),
            ..from
        };
        if to == from {
            return Ok(());
        }
        let mut edit = lock.edit();
        self.check_split(&edit, run.pages, Some(&to))?;
        edit.cut(run.pages)?;
        let word = self.word_for(&edit, run.pages, to)?;
        let word = match run.word.is_replacing() {
            true => word.replacing(),
            false => word,
        };
        self.assign(&mut edit, run.pages, word);
        Ok(())
    }
}
