//! Shootdowns as arrows: pairs their two ends.
//!
//! The ends arrive separately, in either order. They match by the CPU that answers and the shootdown's number
//! there.

use std::collections::HashMap;

use faultless_trace::{Event, Kind};

use super::tracks::Track;

/// Limit of ends without their other end; beyond it all are dropped: the other ends were lost or not wanted.
const WAITING: usize = 1 << 16;

/// One end of an arrow: the part of a track on which it may lie.
#[derive(Clone, Copy)]
pub struct End {
    pub from: u64,
    pub until: u64,
    pub track: Track,
}

/// Ends by the CPU that answers and the shootdown's number there.
type Ends = HashMap<(u64, u64), End>;

/// Ends that are not paired yet.
#[derive(Default)]
pub struct Arrows {
    sent: Ends,
    received: Ends,
    number: u64,
}

impl Arrows {
    /// Returns a new arrow's number.
    pub fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Returns the arrows that an event completes, as (from, to). `here` is the event's own end.
    pub fn end(&mut self, event: &Event, cpu: u32, here: End) -> Vec<(End, End)> {
        let mut whole = Vec::new();
        match event.kind {
            Kind::ShootdownSent => {
                let key = (event.address, event.value);
                match self.received.remove(&key) {
                    Some(there) => whole.push((here, there)),
                    None => remember(&mut self.sent, key, here),
                }
            }
            Kind::ShootdownReceived => {
                // Few, unless events in between were lost.
                let last = event.value;
                let first = event.address.saturating_add(1).max(last.saturating_sub(64));
                for number in first..=last {
                    let key = (u64::from(cpu), number);
                    match self.sent.remove(&key) {
                        Some(there) => whole.push((there, here)),
                        None => remember(&mut self.received, key, here),
                    }
                }
            }
            _ => {}
        }
        whole
    }
}

fn remember(ends: &mut Ends, key: (u64, u64), end: End) {
    if ends.len() >= WAITING {
        ends.clear();
    }
    ends.insert(key, end);
}
