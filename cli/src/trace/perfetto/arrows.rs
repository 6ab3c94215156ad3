//! Shootdowns as arrows: the two ends are told apart, in either order, and belong together by the
//! CPU that answers and the shootdown's number there.

use std::collections::HashMap;

use faultless_trace::{Event, Kind};

use super::tracks::Track;

/// Shootdowns that wait for their other end; more are given up, for it was lost or not wanted.
const WAITING: usize = 1 << 16;

/// One end of an arrow: where it may stand on a track.
#[derive(Clone, Copy)]
pub struct End {
    pub from: u64,
    pub until: u64,
    pub track: Track,
}

/// By CPU and number there.
type Ends = HashMap<(u64, u64), End>;

/// Ends until they meet.
#[derive(Default)]
pub struct Arrows {
    sent: Ends,
    received: Ends,
    number: u64,
}

impl Arrows {
    /// What the next arrow is called.
    pub fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// The arrows that an event completes, whose end is `here`, from and to.
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
                // Never many, unless what was lost lies between.
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
