//! A counted reference to a value on the kernel heap, and its weak form. Its allocation can fail, unlike that
//! of `Arc`.

use alloc::alloc::{Layout, alloc, dealloc};
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use crate::errno::{ENOMEM, Errno};

/// One of the references to a value; the last one drops it.
pub struct Shared<T>(NonNull<Counted<T>>);

/// A reference that does not keep the value, but can find out whether it still exists.
pub struct Weak<T>(NonNull<Counted<T>>);

struct Counted<T> {
    /// References. They are copies of descriptors and of calls in progress, too few to overflow the count.
    strong: AtomicU32,
    /// Weak references, and one for all strong ones together. The last one frees the memory.
    weak: AtomicU32,
    /// Dropped with the last strong reference.
    value: ManuallyDrop<T>,
}

// SAFETY: As for `Arc`: a holder of a reference can access the value and, if it is the last, drop it.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}
// SAFETY: As above; a weak reference can become a strong one.
unsafe impl<T: Send + Sync> Send for Weak<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for Weak<T> {}

impl<T> Shared<T> {
    /// The first reference to a value.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(value: T) -> Result<Self, Errno> {
        // SAFETY: The counts make the size larger than 0.
        let room = unsafe { alloc(Layout::new::<Counted<T>>()) };
        let room = NonNull::new(room.cast::<Counted<T>>()).ok_or(ENOMEM)?;
        let counted = Counted {
            strong: AtomicU32::new(1),
            weak: AtomicU32::new(1),
            value: ManuallyDrop::new(value),
        };
        // SAFETY: Just allocated for this.
        unsafe { room.write(counted) };
        Ok(Self(room))
    }

    /// A weak reference.
    pub fn downgrade(&self) -> Weak<T> {
        // Relaxed: as for `clone`.
        self.counted().weak.fetch_add(1, Ordering::Relaxed);
        Weak(self.0)
    }

    /// The number of references now.
    pub fn references(&self) -> u32 {
        self.counted().strong.load(Ordering::Relaxed)
    }

    /// Whether both refer to one value.
    pub fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Converts a reference to an address, which keeps the value until [`Shared::from_raw`].
    pub fn into_raw(this: Self) -> *const () {
        ManuallyDrop::new(this).0.as_ptr().cast()
    }

    /// Converts an address back to the reference.
    ///
    /// # Safety
    /// It came from [`Shared::into_raw`], and this is the only time that it is made one again.
    pub unsafe fn from_raw(raw: *const ()) -> Self {
        // SAFETY: The caller's promise: it was a reference, so not null.
        Self(unsafe { NonNull::new_unchecked(raw.cast_mut().cast()) })
    }

    /// The value behind an address from [`Shared::into_raw`].
    ///
    /// # Safety
    /// The reference behind the address outlives the result.
    pub unsafe fn borrow_raw<'a>(raw: *const ()) -> &'a T {
        // SAFETY: The caller's promise.
        unsafe { &(*raw.cast::<Counted<T>>()).value }
    }

    /// Whether a weak reference refers to the same value.
    pub fn is_of(&self, other: &Weak<T>) -> bool {
        self.0 == other.0
    }

    fn counted(&self) -> &Counted<T> {
        // SAFETY: It lives as long as there are references, and this is one.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Weak<T> {
    /// A strong reference, if the value is still there.
    pub fn upgrade(&self) -> Option<Shared<T>> {
        // SAFETY: The memory lives as long as there are weak references, and this is one.
        let strong = unsafe { &self.0.as_ref().strong };
        let mut count = strong.load(Ordering::Relaxed);
        while count != 0 {
            // Acquire: pairs with the release of a drop of another reference.
            match strong.compare_exchange_weak(
                count,
                count + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(Shared(self.0)),
                Err(now) => count = now,
            }
        }
        None
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
        // Relaxed: the channel that hands the reference to its new owner provides the ordering.
        self.counted().strong.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Release: pairs with the fence of the last drop, which sees that all uses are over.
        if self.counted().strong.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: The last reference, so nothing else accesses the value, now or later.
            unsafe { ManuallyDrop::drop(&mut self.0.as_mut().value) };
            drop(Weak(self.0));
        }
    }
}

impl<T> Drop for Weak<T> {
    fn drop(&mut self) {
        // SAFETY: The memory is there as long as this reference.
        let weak = unsafe { &self.0.as_ref().weak };
        // As above.
        if weak.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: Allocated by `new` with this layout; the value is dropped already.
            unsafe { dealloc(self.0.as_ptr().cast(), Layout::new::<Counted<T>>()) };
        }
    }
}
