//! Whole operations of guests against those of their hosts, in random interleavings.
#![cfg(shuttle)]

#[path = "../../../mm/tests/model/mod.rs"]
mod model;
#[path = "../model/vcpu.rs"]
mod vcpu;

mod any;
