//! Whole operations of guests against those of their hosts, in random interleavings.
#![cfg(shuttle)]

#[path = "../../../mm/tests/model/mod.rs"]
mod model;
#[allow(dead_code, reason = "shared with the loom models")]
#[path = "../model/vcpu.rs"]
mod vcpu;

mod any;
