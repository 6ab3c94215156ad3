//! The one hook for what watches the mappings of a space.
//!
//! An edit says here what it maps and unmaps, after the slots say so and under the same edit; a fork says what
//! its child begins with. Probes ([`crate::lock::probed`]) are what listens today. A new listener adds a line to each
//! function, and nothing where mappings change.
//!
//! * Nothing waits here, and nothing fails: the edit lock is held.
//! * Without a listener an edit pays one test of what it has seen anyway.
//!
//! *Writes*: what the listeners write.

use faultless_paging::Pages;

use crate::base::machine::Machine;
use crate::lock::Mappings;
use crate::tree::mapping::Attributes;

/// What an edit has unmapped, as far as a listener wants to know.
#[derive(Default)]
pub(crate) struct Unmapped {
    had_probes: bool,
}

impl Unmapped {
    /// A mapping, or a part of it.
    #[inline]
    pub(crate) fn see(&mut self, attributes: &Attributes) {
        self.had_probes |= attributes.may_show_probes();
    }
}

impl<M: Machine> Mappings<M> {
    /// `pages` have become a mapping with these attributes.
    #[inline]
    pub(crate) fn notify_map(&self, pages: Pages, attributes: &Attributes) {
        self.brings_probes(pages, attributes);
    }

    /// What is mapped has left these pages.
    #[inline]
    pub(crate) fn notify_unmap(&self, unmapped: &Unmapped) {
        if unmapped.had_probes {
            self.takes_probes();
        }
    }

    /// This space, which nothing else knows yet, has the mappings of `parent`, all of whose ranges are held.
    pub(crate) fn notify_fork(&self, parent: &Self) {
        self.inherit_probes(parent);
    }
}
