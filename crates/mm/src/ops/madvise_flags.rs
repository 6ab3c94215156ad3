//! Advice that becomes an attribute of mappings: how they will be read, and what
//! `fork` and a core dump do with them.
//!
//! Nothing of it concerns entries, so a mapping's slots go from live to live: a
//! fault in between finds another word when it validates, and tries again.

use faultless_paging::Pages;

use super::advice;
use crate::errno::Errno;
use crate::machine::Machine;
use crate::mapping::{Attributes, Flags, Reading};
use crate::space::AddressSpace;

/// The flags after advice.
fn advised(flags: Flags, what: i32) -> Flags {
    let mut flags = flags;
    match what {
        advice::NORMAL => flags.reading = Reading::Normal,
        advice::RANDOM => flags.reading = Reading::Random,
        advice::SEQUENTIAL => flags.reading = Reading::Sequential,
        advice::DONTFORK => flags.dont_fork = true,
        advice::DOFORK => flags.dont_fork = false,
        advice::WIPEONFORK => flags.wipe_on_fork = true,
        advice::KEEPONFORK => flags.wipe_on_fork = false,
        advice::DONTDUMP => flags.dont_dump = true,
        advice::DODUMP => flags.dont_dump = false,
        _ => {}
    }
    flags
}

impl<M: Machine> AddressSpace<M> {
    /// Changes what is mapped of `pages`; `ENOMEM` if not all was, `EAGAIN` when memory
    /// is short, `EINVAL` where the advice is not for what is mapped, and then what came
    /// before stays changed.
    pub(super) fn change_flags(&self, pages: Pages, what: i32) -> Result<(), Errno> {
        let lock = self.lock_range(pages);
        let mut at = pages.start;
        let mut holes = false;
        while let Some(run) = self.run_in(at, pages.end) {
            // SAFETY: the write hold keeps mappings from being retired.
            let Some(mapping) = (unsafe { run.word.mapping() }) else {
                // With the write hold nothing else is in a slot.
                break;
            };
            holes |= run.pages.start != at;
            let from = *mapping.attributes();
            if what == advice::WIPEONFORK && from.backed.is_some() {
                return Err(Errno::EINVAL);
            }
            let to = Attributes {
                flags: advised(from.flags, what),
                ..from
            };
            if to != from {
                let mut edit = lock.cut(run.pages).map_err(|_| Errno::EAGAIN)?;
                let word = self.word_for(run.pages, to).map_err(|_| Errno::EAGAIN)?;
                self.assign(&mut edit, run.pages, word);
            }
            at = run.pages.end;
        }
        if holes || at < pages.end {
            Err(Errno::ENOMEM)
        } else {
            Ok(())
        }
    }
}
