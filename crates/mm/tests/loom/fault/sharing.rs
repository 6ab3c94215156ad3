//! Loom model (d), at the level of the descriptor: two spaces share a page.
//!
//! One space reads the page for the last time, to copy it, and unmaps it. The other writes it in place once
//! its mapping is the only one, or unmaps it as well.
//!
//! Loom watches the page's content as a cell. A write, or a use of the freed frame, that is not ordered after
//! the last read by the other space is a causality violation. Models of whole operations cannot show this,
//! because a mutex hides their page contents.

use crate::model::explore;
use faultless_mm::{Descriptor, Sharing};
use faultless_sync::{Mutant, with_flaw};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// A page that spaces 1 and 2 map.
struct Page {
    descriptor: Descriptor,
    content: UnsafeCell<u32>,
}

// SAFETY: the model checks which thread may use the content.
unsafe impl Sync for Page {}
// SAFETY: as above.
unsafe impl Send for Page {}

impl Page {
    fn shared() -> Arc<Self> {
        let page = Self {
            descriptor: Descriptor::new(),
            content: UnsafeCell::new(0),
        };
        page.descriptor.set_anonymous(1, 0);
        assert_eq!(page.descriptor.share(1), Sharing::Shared);
        Arc::new(page)
    }

    fn write(&self) {
        // SAFETY: loom checks it.
        self.content.with_mut(|content| unsafe { *content += 1 });
    }

    /// Copies the page, as a fault does that has claimed its entry, and unmaps it. The last mapping to go
    /// lets the frame be reused, which is modelled by a write.
    fn copy_and_leave(&self) {
        // SAFETY: loom checks it.
        self.content.with(|content| unsafe { *content });
        if self.descriptor.unmap() {
            self.write();
        }
    }

    /// Writes in place if space `owner` has the only mapping, else to a copy.
    fn store(&self, owner: u64) {
        if self.descriptor.take_over(owner, 0) {
            self.write();
        } else {
            self.copy_and_leave();
        }
    }
}

/// Runs one operation of each space against the other: two writes, or two exits.
fn both(one: fn(&Page), other: fn(&Page)) {
    explore(None, move || {
        let page = Page::shared();
        let thread = {
            let page = page.clone();
            thread::spawn(move || other(&page))
        };
        one(&page);
        thread.join().unwrap();
        // The last space with a mapping wrote the page in place or freed it, once.
        // SAFETY: no other thread is left.
        assert_eq!(page.content.with(|content| unsafe { *content }), 1);
    });
}

#[test]
fn a_sole_mapping_writes_after_other_reads() {
    both(|page| page.store(1), |page| page.store(2));
}

#[test]
fn the_last_unmap_frees_after_other_reads() {
    both(Page::copy_and_leave, Page::copy_and_leave);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_count_relaxed() {
    with_flaw(Mutant::CountRelaxed, || {
        both(|page| page.store(1), |page| page.store(2));
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_count_relaxed_by_the_last() {
    with_flaw(Mutant::CountRelaxed, || {
        both(Page::copy_and_leave, Page::copy_and_leave);
    });
}
