//! How long faults and operations took in a run, under the names that users know.

use faultless_trace::{How, Kind, Latency, Measure};
use serde::ser::{Serialize, SerializeMap as _, SerializeStruct as _, Serializer};

/// Everything that was measured at least once, by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies(Vec<(String, Latency)>);

/// The name of what is measured: that of its event, and of a fault, how it ended.
pub fn name(measure: Measure) -> String {
    match measure {
        Measure::Fault(how) => format!("{}:{}", Kind::Fault.name(), how.name()),
        Measure::Operation(kind) => kind.name().to_owned(),
    }
}

/// The names of all that can be measured; all faults together come first.
pub fn names() -> Vec<String> {
    let mut names = vec![Kind::Fault.name().to_owned()];
    let measured = |measure: &Measure| *measure != Measure::Fault(How::Unknown);
    names.extend(Measure::all().filter(measured).map(name));
    names
}

impl Latencies {
    /// The latencies in `measured` that were measured at least once, and those of all faults together.
    pub fn new(measured: impl IntoIterator<Item = (Measure, Latency)>) -> Self {
        let mut all = Latency::default();
        let mut each = Vec::new();
        for (measure, latency) in measured {
            if latency.count() == 0 {
                continue;
            }
            if let Measure::Fault(_) = measure {
                all.merge(&latency);
            }
            each.push((name(measure), latency));
        }
        if all.count() > 0 {
            each.insert(0, (Kind::Fault.name().to_owned(), all));
        }
        Latencies(each)
    }

    /// Latencies that have their names already.
    pub fn named(measured: impl IntoIterator<Item = (String, Latency)>) -> Self {
        Latencies(measured.into_iter().collect())
    }

    /// All of them, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Latency)> {
        self.0
            .iter()
            .map(|(name, latency)| (name.as_str(), latency))
    }

    /// The latencies of that name, if there are any.
    pub fn get(&self, name: &str) -> Option<&Latency> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, latency)| latency)
    }
}

impl Serialize for Latencies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, latency) in &self.0 {
            map.serialize_entry(name, &Shown(latency))?;
        }
        map.end()
    }
}

struct Shown<'l>(&'l Latency);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Shown(latency) = self;
        let ranges: Vec<_> = latency.ranges().collect();
        let mut fields = serializer.serialize_struct("Latency", 7)?;
        fields.serialize_field("count", &latency.count())?;
        fields.serialize_field("mean", &mean(latency))?;
        fields.serialize_field("p50", &latency.percentile(0.5))?;
        fields.serialize_field("p90", &latency.percentile(0.9))?;
        fields.serialize_field("p99", &latency.percentile(0.99))?;
        fields.serialize_field("max", &latency.max)?;
        fields.serialize_field("histogram", &ranges)?;
        fields.end()
    }
}

fn mean(latency: &Latency) -> f64 {
    latency.total as f64 / latency.count().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::{How, Kind, Latencies, Latency, Measure, names};

    fn of(bucket: usize, count: u64) -> Latency {
        let mut latency = Latency::default();
        latency.add(bucket, count);
        latency.max = bucket as u64;
        latency.total = bucket as u64 * count;
        latency
    }

    #[test]
    fn faults_are_added_up_and_what_never_happened_is_left_out() {
        let latencies = Latencies::new([
            (Measure::Fault(How::Reuse), of(3, 2)),
            (Measure::Fault(How::ZeroPage), of(5, 1)),
            (Measure::Fault(How::Copy), of(0, 0)),
            (Measure::Operation(Kind::Mmap), of(9, 4)),
        ]);
        let text = serde_json::to_value(&latencies).unwrap();
        let keys: Vec<_> = text.as_object().unwrap().keys().collect();
        assert_eq!(
            keys,
            ["faults", "faults:reuse", "faults:zero_page", "mm:mmap"]
        );
        assert_eq!(text["faults"]["count"], 3);
        assert_eq!(text["faults"]["max"], 5);
        assert_eq!(text["mm:mmap"]["histogram"], serde_json::json!([[9, 9, 4]]));
        assert!(latencies.get("faults:copy").is_none());
    }

    #[test]
    fn every_name_is_there_once() {
        let names = names();
        for name in &names {
            assert_eq!(
                names.iter().filter(|other| *other == name).count(),
                1,
                "{name}"
            );
        }
        assert!(names.contains(&"faults:first_touch".to_owned()));
    }
}
