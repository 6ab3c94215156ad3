//! Advice that becomes an attribute of mappings and affects no entry ([`crate::ops::attributes`]): how they
//! will be read, and what `fork` and a core dump do with them. Seals are set in the same way.

use faultless_paging::Pages;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::lock::RangeWriteGuard;
use crate::ops::madvise::{advice, allow};
use crate::space::AddressSpace;
use crate::tree::mapping::{Attributes, Flags, Huge, Reading};

/// Returns the flags after advice.
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
        advice::HUGEPAGE | advice::NOHUGEPAGE if flags.huge == Huge::Pooled => {}
        advice::HUGEPAGE => flags.huge = Huge::Wanted,
        advice::NOHUGEPAGE => flags.huge = Huge::Unwanted,
        // A shared or droppable mapping is never merged, which is no error.
        advice::MERGEABLE => flags.mergeable = !flags.shared && !flags.droppable,
        advice::UNMERGEABLE => flags.mergeable = false,
        _ => {}
    }
    flags
}

impl<M: Machine> AddressSpace<M> {
    /// Changes the flags of what is mapped of `pages`. Fails with `ENOMEM` if not all was mapped, and with
    /// `EAGAIN` when memory is short or there are too many mappings. After `EAGAIN`, or at a mapping that does
    /// not allow the advice, what came before stays changed.
    pub(crate) fn change_flags(&self, pages: Pages, what: i32) -> Result<(), Errno> {
        self.check_pool(pages)?;
        let lock = self.maps.lock_range(pages);
        let change = |from: &Attributes| {
            allow(from, what)?;
            Ok(advised(from.flags, what))
        };
        if what == advice::HUGEPAGE {
            self.register_for_scan();
        }
        match self.relabel(&lock, pages, Errno::EAGAIN, change)? {
            true => Ok(()),
            false => Err(Errno::ENOMEM),
        }
    }

    /// Gives each mapping of `pages` the flags that `change` returns. Returns whether all of `pages` is mapped.
    /// `short` is the error when memory is short.
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
                // A zap is still in progress here.
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
