//! The counters of a run, under the names that users know.

use faultless_trace::Counter;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// The events that give up a speculative try: with `spf`, they add up to `faults`.
pub const FALLBACKS: [Counter; 5] = [
    Counter::SpfPteLock,
    Counter::SpfVmaChanged,
    Counter::SpfVmaNoanon,
    Counter::SpfVmaNotsup,
    Counter::SpfPmdChanged,
];

/// A value for every counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters(Vec<(String, u64)>);

impl Default for Counters {
    /// Every counter at 0.
    fn default() -> Self {
        Counters(
            Counter::ALL
                .iter()
                .map(|counter| (counter.name().to_owned(), 0))
                .collect(),
        )
    }
}

impl Counters {
    /// Sets one counter; a name that is not known here is added at the end.
    pub fn set(&mut self, name: &str, value: u64) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// The value of one counter.
    pub fn get(&self, counter: Counter) -> u64 {
        let found = self.0.iter().find(|(name, _)| name == counter.name());
        found.map_or(0, |&(_, value)| value)
    }

    /// The value of a counter that only some kernels have.
    pub fn named(&self, name: &str) -> Option<u64> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|&(_, value)| value)
    }

    /// The share of faults that were resolved speculatively; `None` without faults.
    pub fn share_speculative(&self) -> Option<f64> {
        let faults = self.get(Counter::Faults);
        (faults > 0).then(|| self.get(Counter::Spf) as f64 / faults as f64)
    }
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::{Counter, Counters};

    #[test]
    fn every_counter_is_present_from_the_start() {
        let text = serde_json::to_string(&Counters::default()).unwrap();
        for counter in Counter::ALL {
            assert!(
                text.contains(&format!("\"{}\":0", counter.name())),
                "{}",
                counter.name()
            );
        }
    }

    #[test]
    fn the_share_is_of_all_faults() {
        let mut counters = Counters::default();
        assert_eq!(counters.share_speculative(), None);
        counters.set("faults", 200);
        counters.set("spf", 199);
        assert_eq!(counters.share_speculative(), Some(0.995));
    }
}
