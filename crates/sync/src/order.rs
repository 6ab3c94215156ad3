//! A lock-order checker, active in models of whole operations (`--cfg shuttle`) and empty elsewhere.
//!
//! A lock's class is its kind, and the source location where it was created. Each thread records the locks
//! that it holds. An acquisition that may wait adds an edge from the class of each held lock to the class of
//! the new one.
//!
//! * An edge that closes a cycle is reported immediately, with both locations: some thread has used the
//!   opposite order. The two threads need not have run at the same time.
//! * A try-lock adds no edge.
//! * A thread that parks holds no spin lock.

#[cfg(shuttle)]
pub use checked::{Class, Held, check_park};
#[cfg(not(shuttle))]
pub use unchecked::{Class, Held, check_park};

/// How the holder of a lock may wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The holder never parks. It waits only by spinning.
    Spin,
    /// The holder may park.
    Parking,
}

#[cfg(not(shuttle))]
mod unchecked {
    use super::Kind;

    #[derive(Clone, Copy, Debug)]
    pub struct Class;

    #[derive(Debug, Default)]
    pub struct Held;

    impl Held {
        /// Returns the record of no lock.
        #[inline(always)]
        pub const fn none() -> Self {
            Held
        }
    }

    impl Class {
        #[inline(always)]
        pub const fn new(_kind: Kind) -> Self {
            Class
        }

        /// Checks the order before a wait for the lock.
        #[inline(always)]
        pub fn check(self) {}

        /// Records that the lock is held.
        #[inline(always)]
        pub fn hold(self) -> Held {
            Held
        }
    }

    /// Checks that the caller may park.
    #[inline(always)]
    pub fn check_park() {}
}

#[cfg(shuttle)]
mod checked {
    use core::cell::RefCell;
    use core::panic::Location;
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::{Mutex, PoisonError};
    use std::vec::Vec;

    use super::Kind;

    /// For each class, the classes that were waited for while a lock of that class was held, in all executions.
    static EDGES: Mutex<BTreeMap<Class, BTreeSet<Class>>> = Mutex::new(BTreeMap::new());

    shuttle::thread_local! {
        static HELD: RefCell<Vec<Class>> = const { RefCell::new(Vec::new()) };
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Class {
        place: &'static Location<'static>,
        kind: Kind,
    }

    /// The record of a lock that is held.
    #[derive(Debug, Default)]
    pub struct Held(Option<Class>);

    impl Held {
        /// Returns the record of no lock.
        pub const fn none() -> Self {
            Held(None)
        }
    }

    impl Class {
        #[track_caller]
        pub fn new(kind: Kind) -> Self {
            let place = Location::caller();
            Self { place, kind }
        }

        /// Checks the order before a wait for the lock.
        pub fn check(self) {
            let held = HELD.with(|held| held.borrow().clone());
            let mut edges = EDGES.lock().unwrap_or_else(PoisonError::into_inner);
            for other in held {
                if !edges.entry(other).or_default().insert(self) {
                    continue;
                }
                if leads(&edges, self, other) {
                    drop(edges);
                    panic!(
                        "the order of locks: {} is waited for with {} held, and the other way round",
                        self.place, other.place
                    );
                }
            }
        }

        /// Records that the lock is held.
        pub fn hold(self) -> Held {
            HELD.with(|held| held.borrow_mut().push(self));
            Held(Some(self))
        }
    }

    /// Whether a path leads from one class to another.
    fn leads(edges: &BTreeMap<Class, BTreeSet<Class>>, from: Class, to: Class) -> bool {
        let mut seen = BTreeSet::new();
        let mut next = Vec::from([from]);
        while let Some(at) = next.pop() {
            if at == to {
                return true;
            }
            if seen.insert(at) {
                next.extend(edges.get(&at).into_iter().flatten());
            }
        }
        false
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let Some(class) = self.0 else { return };
            // A thread that ends has nothing left to check.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(at) = held.iter().rposition(|other| *other == class) {
                    held.remove(at);
                }
            });
        }
    }

    /// Checks that the caller may park.
    pub fn check_park() {
        let held = HELD.with(|held| held.borrow().clone());
        let spin = held.iter().find(|class| class.kind == Kind::Spin);
        if let Some(class) = spin {
            panic!("a thread parks with the spin lock of {} held", class.place);
        }
    }
}
