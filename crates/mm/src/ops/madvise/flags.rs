//! What becomes an attribute of mappings and concerns no entry: how they will be read,
//! what `fork` and a core dump do with them, and that they are sealed
//! ([`crate::ops::attributes`]).

use faultless_paging::Pages;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::lock::RangeWriteGuard;
use crate::ops::madvise::{advice, allow};
use crate::space::AddressSpace;
use crate::tree::mapping::{Attributes, Flags, Huge, Reading};

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
        advice::HUGEPAGE => flags.huge = Huge::Wanted,
        advice::NOHUGEPAGE => flags.huge = Huge::Unwanted,
        // What is shared or may go is merged with nothing, and does not say so.
        advice::MERGEABLE => flags.mergeable = !flags.shared && !flags.droppable,
        advice::UNMERGEABLE => flags.mergeable = false,
        _ => {}
    }
    flags
}

impl<M: Machine> AddressSpace<M> {
    /// Changes what is mapped of `pages`; `ENOMEM` if not all was, `EAGAIN` when memory
    /// is short or mappings are too many, and then what came before stays changed, as before
    /// a mapping that does not allow it.
    pub(crate) fn change_flags(&self, pages: Pages, what: i32) -> Result<(), Errno> {
        let lock = self.maps.lock_range(pages);
        let change = |from: &Attributes| {
            allow(from, what)?;
            Ok(advised(from.flags, what))
        };
        match self.relabel(&lock, pages, Errno::EAGAIN, change)? {
            true => Ok(()),
            false => Err(Errno::ENOMEM),
        }
    }

    /// Gives each mapping of `pages` the flags that `change` says; whether all of `pages`
    /// is mapped. `short` is the error when memory is short.
    pub(crate) fn relabel(
        &self,
        lock: &RangeWriteGuard<'_, M>,
        pages: Pages,
        short: Errno,
        change: impl Fn(&Attributes) -> Result<Flags, Errno>,
    ) -> Result<bool, Errno> {
        let mut at = pages.start;
        let mut holes = false;
        while let Some(run) = self.maps.run_in(at, pages.end) {
            holes |= run.pages.start != at;
            // SAFETY: the range keeps mappings from being retired.
            let Some(mapping) = (unsafe { run.word.mapping() }) else {
                // Somebody's munmap is still at it.
                holes = true;
                at = run.pages.end;
                continue;
            };
            let flags = change(mapping.attributes())?;
            self.change_run(lock, run, |_| flags).map_err(|_| short)?;
            at = run.pages.end;
        }
        Ok(!holes && at >= pages.end)
    }
}
