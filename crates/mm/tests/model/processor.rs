//! A CPU as programs see it: loads and stores through a TLB, with faults on a miss.

use faultless_mm::{Access, EntryFormat, Machine as _, Outcome, SegvCode, X86_64};
use faultless_paging::{ENTRIES, Entry, Frame, LEVELS, Page, Table, table};
use faultless_sync::atomic::{Ordering, fence};

use super::machine::{Model, Translation};
use super::world::Space;

/// A CPU that runs an address space.
pub struct Processor<'a> {
    space: &'a Space,
    cpu: u32,
}

/// Where the walk for a page ends.
enum End {
    /// At a table of the lowest level; whether stores are allowed through to its pages.
    Table(Frame, bool),
    /// At an entry that maps a huge page.
    Huge(Frame, bool),
}

impl<'a> Processor<'a> {
    /// CPU `cpu`, run by the calling thread.
    pub fn new(space: &'a Space, cpu: u32) -> Self {
        Self { space, cpu }
    }

    /// The address space.
    pub fn space(&self) -> &'a Space {
        self.space
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.cpu
    }

    fn machine(&self) -> &'static Model {
        self.space.memory().machine()
    }

    /// Loads a page's word.
    ///
    /// # Errors
    /// The SIGSEGV that the load raises.
    pub fn load(&self, address: u64) -> Result<u64, SegvCode> {
        self.load_file(address).map_err(segv)
    }

    /// Stores a page's word.
    ///
    /// # Errors
    /// The SIGSEGV that the store raises.
    pub fn store(&self, address: u64, word: u64) -> Result<(), SegvCode> {
        self.store_file(address, word).map_err(segv)
    }

    /// Loads a page's word from a mapping of a memory object.
    ///
    /// # Errors
    /// The outcome of the fault.
    pub fn load_file(&self, address: u64) -> Result<u64, Outcome> {
        let machine = self.machine();
        self.access(address, Access::Read, |t| machine.word(t.frame))
    }

    /// Stores a page's word to a mapping of a memory object.
    ///
    /// # Errors
    /// The outcome of the fault.
    pub fn store_file(&self, address: u64, word: u64) -> Result<(), Outcome> {
        let machine = self.machine();
        self.access(address, Access::Write, |t| machine.set_word(t.frame, word))
    }

    /// Sets bits of a page's word in one indivisible step.
    ///
    /// # Errors
    /// The SIGSEGV that the access raises.
    pub fn set_bits(&self, address: u64, bits: u64) -> Result<(), SegvCode> {
        self.set_bits_file(address, bits).map_err(segv)
    }

    /// Like `set_bits`, in a mapping of a memory object.
    ///
    /// # Errors
    /// The outcome of the fault.
    pub fn set_bits_file(&self, address: u64, bits: u64) -> Result<(), Outcome> {
        let machine = self.machine();
        self.access(address, Access::Write, |t| {
            machine.set_word(t.frame, machine.word(t.frame) | bits);
        })
    }

    fn access<R>(
        &self,
        address: u64,
        access: Access,
        act: impl Fn(Translation) -> R,
    ) -> Result<R, Outcome> {
        let page = Page::containing(address);
        loop {
            self.machine().step();
            if let Some(result) = self.hit(page, access, &act) {
                return Ok(result);
            }
            if let Some(result) = self.load_translation(page, access, &act) {
                return Ok(result);
            }
            match self.space.fault(address, access) {
                Outcome::Resolved => {}
                error => return Err(error),
            }
        }
    }

    /// Loads a page's translation, though the TLB may have one, as hardware may at any moment.
    #[cfg(loom)]
    pub fn speculate(&self, address: u64) {
        self.machine().step();
        self.load_translation(Page::containing(address), Access::Read, &|_| {});
    }

    /// Walks the tables, keeps the translation, and performs the access, in one step after the walk.
    fn load_translation<R>(
        &self,
        page: Page,
        access: Access,
        act: &impl Fn(Translation) -> R,
    ) -> Option<R> {
        self.machine().tlb(self.cpu).lock().unwrap().walks = true;
        // Every later flush waits for the walk.
        fence(Ordering::SeqCst);
        let found = self.walk(page, access);
        let mut tlb = self.machine().tlb(self.cpu).lock().unwrap();
        tlb.walks = false;
        let (translation, is_huge) = found?;
        let first = page.0 & !(ENTRIES as u64 - 1);
        let span = first..first + ENTRIES as u64;
        let holds_other = match is_huge {
            true => tlb.entries.keys().any(|page| span.contains(page)),
            false => tlb.huge.contains_key(&first),
        };
        assert!(
            !holds_other || !self.machine().breaks_before_make(),
            "a TLB holds a huge page and a page of it"
        );
        match is_huge {
            true => tlb.huge.insert(first, translation),
            false => tlb.entries.insert(page.0, translation),
        };
        Some(act(match is_huge {
            true => translation.part(page.0),
            false => translation,
        }))
    }

    /// Performs an access that the TLB allows, in one step.
    fn hit<R>(&self, page: Page, access: Access, act: impl Fn(Translation) -> R) -> Option<R> {
        let tlb = self.machine().tlb(self.cpu).lock().unwrap();
        let huge = tlb.huge.get(&(page.0 & !(ENTRIES as u64 - 1)));
        // Hardware may use either. The huge one is the older.
        let of_huge = huge.map(|huge| huge.part(page.0));
        let mut both = of_huge.into_iter().chain(tlb.entries.get(&page.0).copied());
        let translation = both.find(|found| access != Access::Write || found.write)?;
        Some(act(translation))
    }

    /// A page's table of the lowest level, or the table with the entry of its huge page.
    fn table(&self, page: Page) -> Option<End> {
        let tlb = || self.machine().tlb(self.cpu).lock().unwrap();
        let place = |level| (level, page.0 & !(table::span(level + 1) - 1));
        let mut levels = 0..LEVELS - 1;
        let cached = levels.find_map(|level| Some((level, *tlb().tables.get(&place(level))?)));
        let (mut level, (mut frame, mut write)) =
            cached.unwrap_or((LEVELS - 1, (self.space.id().root, true)));
        while level > 0 {
            // SAFETY: as in `walk`; the root lives as long as the space.
            let table = unsafe { Table::at(&self.machine().hardware(), frame) };
            let entry = table.entry(page.0, level);
            if X86_64::FORMAT.is_huge(entry.load()) {
                return Some(End::Huge(frame, write));
            }
            let value = self.load_entry(entry);
            if !X86_64::FORMAT.is_present(value) {
                return None;
            }
            if X86_64::FORMAT.is_huge(value) {
                return Some(End::Huge(frame, write));
            }
            level -= 1;
            frame = X86_64::FORMAT.frame(value);
            write &= !X86_64::FORMAT.is_frozen(value);
            tlb().tables.insert(place(level), (frame, write));
        }
        Some(End::Table(frame, write))
    }

    /// The value of an entry that leads to a table, after the walk has marked it.
    fn load_entry(&self, entry: &Entry) -> u64 {
        loop {
            let value = entry.load();
            if !X86_64::FORMAT.is_present(value) {
                return value;
            }
            let loaded = self.machine().loaded(value, self.cpu);
            if loaded == value || entry.replace(value, loaded).is_ok() {
                return loaded;
            }
        }
    }

    /// Drops the walk cache's entries for a page, as a fault does.
    fn forget_tables(&self, page: Page) {
        let mut tlb = self.machine().tlb(self.cpu).lock().unwrap();
        tlb.tables
            .retain(|&(level, first), _| first != page.0 & !(table::span(level + 1) - 1));
    }

    /// Walks the tables as hardware does on a TLB miss. Returns the translation, and whether it is that of a huge page.
    fn walk(&self, page: Page, access: Access) -> Option<(Translation, bool)> {
        let format = X86_64::FORMAT;
        let (table, may_write, level) = match self.table(page)? {
            End::Table(table, may_write) => (table, may_write, 0),
            End::Huge(table, may_write) => (table, may_write, 1),
        };
        // SAFETY: tables are freed after a flush, which waits for this walk.
        let entry = unsafe { Table::at(&self.machine().hardware(), table) }.entry(page.0, level);
        loop {
            let value = entry.load();
            if level != 0 && format.is_present(value) && !format.is_huge(value) {
                // The huge page was split: walk again.
                return self.walk(page, access);
            }
            if !format.permits(value, access) || (access == Access::Write && !may_write) {
                self.forget_tables(page);
                return None;
            }
            let dirty = if access == Access::Write {
                format.dirty
            } else {
                0
            };
            let used = self.machine().loaded(value, self.cpu) | dirty;
            if used == value || entry.replace(value, used).is_ok() {
                let translation = Translation {
                    frame: format.frame(value),
                    write: may_write && format.is_writable(value) && used & format.dirty != 0,
                };
                return Some((translation, level != 0));
            }
        }
    }
}

fn segv(outcome: Outcome) -> SegvCode {
    match outcome {
        Outcome::Segv(code) => code,
        Outcome::OutOfMemory => panic!("a model has memory enough"),
        outcome => panic!("no store ends here: {outcome:?}"),
    }
}
