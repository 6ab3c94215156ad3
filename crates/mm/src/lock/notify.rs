//! The one hook for code that watches the mappings of a space.
//!
//! An edit reports here what it maps and unmaps, after the slots say so and under the same edit. A fork
//! reports what its child begins with. Probes ([`crate::lock::probed`]) are the only listener today. A new
//! listener adds a line to each function, and nothing where mappings change.
//!
//! * Nothing waits here, and nothing fails: the edit lock is held.
//! * Without a listener, an edit pays one test of what it has read anyway.
//!
//! *Writes*: what the listeners write.

use faultless_paging::Pages;

use crate::base::machine::Machine;
use crate::lock::Mappings;
use crate::tree::mapping::Attributes;

/// What an edit has unmapped, as far as listeners need it.
#[derive(Default)]
pub(crate) struct Unmapped {
    had_probes: bool,
}

impl Unmapped {
    /// Adds a mapping, or a part of it.
    #[inline]
    pub(crate) fn see(&mut self, attributes: &Attributes) {
        self.had_probes |= attributes.may_show_probes();
    }
}

impl<M: Machine> Mappings<M> {
    /// Reports that `pages` have become a mapping with these attributes.
    #[inline]
    pub(crate) fn notify_map(&self, pages: Pages, attributes: &Attributes) {
        self.brings_probes(pages, attributes);
    }

    /// Reports what an edit has unmapped.
    #[inline]
    pub(crate) fn notify_unmap(&self, unmapped: &Unmapped) {
        if unmapped.had_probes {
            self.takes_probes();
        }
    }

    /// Reports that this space, which nothing else knows yet, has the mappings of `parent`. All ranges of
    /// `parent` are held.
    pub(crate) fn notify_fork(&self, parent: &Self) {
        self.inherit_probes(parent);
    }
}
