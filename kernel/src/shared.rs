//! A counted reference to a value on the kernel heap whose allocation can fail, which `Arc`'s
//! cannot.

use alloc::alloc::{Layout, alloc};
use alloc::boxed::Box;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use crate::errno::{ENOMEM, Errno};

/// One of the references to a value; the last one drops it.
pub struct Shared<T>(NonNull<Counted<T>>);

struct Counted<T> {
    /// References. They are copies of descriptors and calls under way, too few to overflow it.
    count: AtomicU32,
    value: T,
}

// SAFETY: As for `Arc`: whoever has a reference can reach and, being the last, drop the value.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// The first reference to a value.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(value: T) -> Result<Self, Errno> {
        let count = AtomicU32::new(1);
        // SAFETY: The count makes the size larger than 0.
        let room = unsafe { alloc(Layout::new::<Counted<T>>()) };
        let room = NonNull::new(room.cast::<Counted<T>>()).ok_or(ENOMEM)?;
        // SAFETY: Just allocated for this.
        unsafe { room.write(Counted { count, value }) };
        Ok(Self(room))
    }

    fn counted(&self) -> &Counted<T> {
        // SAFETY: It lives as long as there are references, and this is one.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Shared<T> {
    /// The number of references now.
    pub fn references(&self) -> u32 {
        self.counted().count.load(Ordering::Relaxed)
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        // Relaxed: a reference is handed over by what the new owner gets it through.
        self.counted().count.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Release: pairs with the fence of whoever drops the last one, which sees all uses over.
        if self.counted().count.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: Allocated by `new` with a box's layout, and nobody else can reach it.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}
