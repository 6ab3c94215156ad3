//! Records which cache lines a piece of code writes (`--cfg record` only).
//!
//! Every write through the facade adds its line to a map of the writing thread. Work that is done once per
//! batch (refilling a cache, advancing the epoch) is wrapped in [`amortised`] in the code, and reported
//! separately.

use core::sync::atomic as real;
use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::atomic::Ordering;

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// The number of writes to a line, by kind of work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Writes {
    /// Writes by work of every operation.
    pub direct: u64,
    /// Writes by work that is shared by a batch of operations.
    pub amortised: u64,
}

#[derive(Default)]
struct Recorder {
    on: bool,
    depth: u32,
    lines: BTreeMap<usize, Writes>,
}

thread_local! {
    static RECORDER: RefCell<Recorder> = RefCell::default();
}

/// Records a write to the line of `address`.
pub fn write(address: *const ()) {
    RECORDER.with_borrow_mut(|r| {
        if r.on {
            let writes = r.lines.entry(address as usize / LINE).or_default();
            if r.depth > 0 {
                writes.amortised += 1;
            } else {
                writes.direct += 1;
            }
        }
    });
}

/// Returns the lines that `work` writes on this thread, by line number.
pub fn lines(work: impl FnOnce()) -> BTreeMap<usize, Writes> {
    RECORDER.with_borrow_mut(|r| {
        *r = Recorder {
            on: true,
            ..Recorder::default()
        }
    });
    work();
    RECORDER.with_borrow_mut(|r| core::mem::take(r).lines)
}

/// Runs work that is shared by a batch of operations.
pub fn amortised<T>(work: impl FnOnce() -> T) -> T {
    RECORDER.with_borrow_mut(|r| r.depth += 1);
    let result = work();
    RECORDER.with_borrow_mut(|r| r.depth -= 1);
    result
}

macro_rules! recorded {
    ($name:ident, $real:ident, $value:ty) => {
        /// The atomic of the same name, with its writes recorded.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(real::$real);

        #[allow(missing_docs)]
        impl $name {
            pub const fn new(value: $value) -> Self {
                Self(real::$real::new(value))
            }
            fn note(&self) {
                write(core::ptr::from_ref(self).cast());
            }
            pub fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }
            pub fn store(&self, value: $value, order: Ordering) {
                self.note();
                self.0.store(value, order);
            }
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.note();
                self.0.swap(value, order)
            }
            pub fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                ok: Ordering,
                fail: Ordering,
            ) -> Result<$value, $value> {
                // A compare-and-swap that fails acquires the line exclusively all the same.
                self.note();
                self.0.compare_exchange(from, to, ok, fail)
            }
            pub fn compare_exchange_weak(
                &self,
                from: $value,
                to: $value,
                ok: Ordering,
                fail: Ordering,
            ) -> Result<$value, $value> {
                self.note();
                self.0.compare_exchange_weak(from, to, ok, fail)
            }
            pub fn fetch_update(
                &self,
                ok: Ordering,
                fail: Ordering,
                next: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                self.note();
                self.0.fetch_update(ok, fail, next)
            }
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.note();
                self.0.fetch_add(value, order)
            }
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.note();
                self.0.fetch_sub(value, order)
            }
            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.note();
                self.0.fetch_and(value, order)
            }
            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.note();
                self.0.fetch_or(value, order)
            }
            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                self.note();
                self.0.fetch_max(value, order)
            }
        }
    };
}

recorded!(AtomicU32, AtomicU32, u32);
recorded!(AtomicU64, AtomicU64, u64);

/// The pointer atomic, with its writes recorded.
#[derive(Debug)]
#[repr(transparent)]
pub struct AtomicPtr<T>(real::AtomicPtr<T>);

#[allow(missing_docs)]
impl<T> AtomicPtr<T> {
    pub const fn new(value: *mut T) -> Self {
        Self(real::AtomicPtr::new(value))
    }
    fn note(&self) {
        write(core::ptr::from_ref(self).cast());
    }
    pub fn load(&self, order: Ordering) -> *mut T {
        self.0.load(order)
    }
    pub fn store(&self, value: *mut T, order: Ordering) {
        self.note();
        self.0.store(value, order);
    }
    pub fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
        self.note();
        self.0.swap(value, order)
    }
    pub fn compare_exchange(
        &self,
        from: *mut T,
        to: *mut T,
        ok: Ordering,
        fail: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.note();
        self.0.compare_exchange(from, to, ok, fail)
    }
}
