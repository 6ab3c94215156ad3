//! Verification of the RSS counters ([`crate::table::rss`]) by a walk of the tables.

use faultless_paging::Pages;

use crate::base::machine::Machine;
use crate::space::AddressSpace;
use crate::table::rss::{RssDelta, RssKind};
use crate::verify::Violation;

impl<M: Machine> AddressSpace<M> {
    /// Compares the counters with what `tables` tables, without the root, hold. Called inside a section.
    pub(crate) fn verify_rss(&self, tables: u64) -> Result<(), Violation> {
        let mut found = RssDelta::default();
        (0..tables).for_each(|_| found.add(Some(RssKind::Table)));
        self.tables()
            .for_each_page(Pages::of_bytes(0..self.layout().end), &mut |value, _| {
                if self.tables().swap_of(value).is_some() {
                    found.add(Some(RssKind::Swap));
                } else if Self::FORMAT.has_page(value) {
                    found.add(self.tables().counted(value).map(RssKind::of));
                }
            });
        let counted = self.tables().rss.sum();
        match counted == found {
            true => Ok(()),
            false => Err(Violation {
                rule: "what is in memory was not counted right",
                address: 0,
                value: counted.resident(),
            }),
        }
    }
}
