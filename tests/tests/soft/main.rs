//! Tests of the memory core on the soft machine, in one program: separate programs would each be linked with the
//! core, and each run would wait for the slowest test of every program.

// By the rooms of `crates/mm/src`.
mod base {
    mod events;
    mod exhaustion;
    mod injection;
    mod soft_basics;
}
mod tree {
    mod tree_many;
    mod tree_model;
}
mod table {
    mod count_flushes;
    mod count_gathers;
    mod count_holders;
}
mod object {
    mod devices;
    mod injection_devices;
    mod injection_stores;
    mod pager_errors;
    mod slow_pager;
    mod stores;
    mod stores_edges;
    mod stores_stress;
}
mod lock {
    mod contention;
    mod limits;
    mod shards;
    mod shards_around;
}
mod space {
    mod rss;
    mod soft_dirty;
    mod soft_dirty_stress;
}
mod rmap {
    mod idle;
    mod migrate;
}
mod reclaim {
    mod lazily_freed;
    pub(crate) mod overcommit;
    mod shared;
    pub(crate) mod swap;
    mod swap_stress;
}
mod fault {
    mod counts;
    mod execute_only;
    mod fallbacks;
    mod guards;
    mod huge;
    mod huge_over_tables;
    mod huge_shared;
    mod injection_mapped;
    mod injection_pins;
    mod khugepaged;
    mod pins;
    mod policies;
    mod pool;
    mod rmw;
    mod userfault;
    mod userfault_objects;
    mod userfault_protect;
    mod userfault_reclaim;
}
mod probe {
    mod injection_probes;
    mod probes;
}
mod ops {
    mod access;
    mod advice;
    mod fork;
    mod fork_injection;
    mod fork_moves;
    mod fork_stress;
    mod maps_beside_changes;
    mod mlock;
    mod mmap_flags;
    mod mremap;
    mod seals;
    mod stress;
    mod usage;
}
mod verify {
    mod verify_machine;
}
// `crates/tdp`.
mod guests {
    mod events;
    mod faults;
    mod huge;
    mod reclaim;
    mod rings;
    mod stress;
}
