//! Loom model (d), at the level of the descriptor: two spaces share a page. One
//! reads it for the last time, to copy it, and gives it up; the other writes it in
//! place as soon as it finds itself alone, or gives it up as well. The page's
//! content is a cell that loom watches: a write, or the use of the freed frame,
//! that does not come after the other's last look is a causality violation. (In
//! the models of whole operations a page's content is behind a mutex, which hides
//! this.)

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

// SAFETY: who may use the content is what the model checks.
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

    /// Copies the page, as a fault does that has claimed its entry, and gives it
    /// up. Who is the last uses the frame for something else.
    fn copy_and_leave(&self) {
        // SAFETY: loom checks it.
        self.content.with(|content| unsafe { *content });
        if self.descriptor.unmap() {
            self.write();
        }
    }

    /// A write: in place if space `owner` is alone, else to a copy.
    fn store(&self, owner: u64) {
        if self.descriptor.take_over(owner, 0) {
            self.write();
        } else {
            self.copy_and_leave();
        }
    }
}

/// Both spaces write; or one ends while the other writes.
fn both(one: fn(&Page), other: fn(&Page)) {
    explore(None, move || {
        let page = Page::shared();
        let thread = {
            let page = page.clone();
            thread::spawn(move || other(&page))
        };
        one(&page);
        thread.join().unwrap();
        // The last one wrote it in place, or has freed it: once.
        // SAFETY: nobody else is left.
        assert_eq!(page.content.with(|content| unsafe { *content }), 1);
    });
}

#[test]
fn who_is_alone_writes_after_the_others_last_look() {
    both(|page| page.store(1), |page| page.store(2));
}

#[test]
fn who_is_last_frees_after_the_others_last_look() {
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
