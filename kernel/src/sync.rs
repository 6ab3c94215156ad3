//! The kernel's spin lock.
//!
//! Kernel code runs with interrupts off, so a CPU that spins would never answer a TLB shootdown by its
//! interrupt; `arch::relax` answers it instead. Rules for holders:
//! - Never sleep.
//! - Never touch user memory except by the no-fault accessors.
//! - Never call into the memory core, because its waits may hand the CPU to another thread, or take interrupts.
//!   Frames for the kernel itself, and so the heap, are an exception (`memory::machine`).

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::arch;

/// The raw lock; use [`SpinLock`].
pub struct RawSpin(AtomicBool);

// SAFETY: The swap lets one holder in at a time; acquire and release order what it protects.
unsafe impl lock_api::RawMutex for RawSpin {
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "how lock_api wants it"
    )]
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        while !self.try_lock() {
            while self.0.load(Ordering::Relaxed) {
                arch::relax();
            }
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        !self.0.swap(true, Ordering::Acquire)
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A value behind a spin lock.
pub type SpinLock<T> = lock_api::Mutex<RawSpin, T>;

/// A value that is set once at boot, before any other CPU reads it.
pub struct Once<T> {
    set: AtomicBool,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: Written before `set` is, shared only afterwards.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    pub const fn new() -> Self {
        Self {
            set: AtomicBool::new(false),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Sets the value; boot CPU only.
    ///
    /// # Panics
    /// The second time.
    pub fn set(&self, value: T) {
        assert!(!self.set.load(Ordering::Relaxed), "set twice");
        // SAFETY: No reader uses the value before `set` is true, and only one CPU runs at boot.
        unsafe { (*self.value.get()).write(value) };
        self.set.store(true, Ordering::Release);
    }

    /// The value, if it is set.
    #[inline]
    pub fn try_get(&self) -> Option<&T> {
        // SAFETY: Set, so written, and never written again.
        self.set
            .load(Ordering::Acquire)
            .then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// The value.
    ///
    /// # Panics
    /// Before it is set.
    #[inline]
    pub fn get(&self) -> &T {
        self.try_get().expect("set at boot")
    }
}
