//! The order of locks, checked in models of whole operations (`--cfg shuttle`); nothing elsewhere.
//!
//! A lock's class is its kind, and the place in the source where it was made. Each thread knows what it holds;
//! each time one waits for a lock while it holds another, that is an edge from class to class.
//! An edge that closes a ring is an order that some other thread has taken the other way round,
//! whether the two ever met or not: reported at once, with both places. A lock that is only tried
//! for makes no edge. Who parks may hold no spin lock.

#[cfg(shuttle)]
pub use checked::{Class, Held, check_park};
#[cfg(not(shuttle))]
pub use unchecked::{Class, Held, check_park};

/// What a lock is, to whoever else holds it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Its holder does not wait for anything but other spin locks.
    Spin,
    /// Its holder may wait.
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
        /// Nothing is had.
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

        /// The lock will be waited for.
        #[inline(always)]
        pub fn check(self) {}

        /// The lock is had.
        #[inline(always)]
        pub fn hold(self) -> Held {
            Held
        }
    }

    /// The caller is about to park.
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

    /// For each class: those that were waited for by who held one of it. Of all executions.
    static EDGES: Mutex<BTreeMap<Class, BTreeSet<Class>>> = Mutex::new(BTreeMap::new());

    shuttle::thread_local! {
        static HELD: RefCell<Vec<Class>> = const { RefCell::new(Vec::new()) };
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Class {
        place: &'static Location<'static>,
        kind: Kind,
    }

    /// A lock that is had.
    #[derive(Debug, Default)]
    pub struct Held(Option<Class>);

    impl Held {
        /// Nothing is had.
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

        /// The lock will be waited for.
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

        /// The lock is had.
        pub fn hold(self) -> Held {
            HELD.with(|held| held.borrow_mut().push(self));
            Held(Some(self))
        }
    }

    /// Whether there is a way from one class to another.
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

    /// The caller is about to park.
    pub fn check_park() {
        let held = HELD.with(|held| held.borrow().clone());
        let spin = held.iter().find(|class| class.kind == Kind::Spin);
        if let Some(class) = spin {
            panic!("somebody parks with the spin lock of {} held", class.place);
        }
    }
}
