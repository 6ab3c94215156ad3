//! The samples of a figure, and their percentiles.

use anyhow::{Result, ensure};
use serde::{Serialize, Serializer};

/// At least one finite number, in the order in which they were taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    all: Vec<f64>,
    parts: Vec<Part>,
}

/// One of the figures that a figure is composed of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// Its value in the figure's unit.
    pub value: f64,
    /// The first of the two compared values.
    pub from: f64,
    /// The second of them.
    pub to: f64,
    /// A remark; empty if there is none.
    pub remark: &'static str,
}

impl Samples {
    /// Takes these samples. Refuses an empty list, and a value that is not a finite number.
    pub fn new(samples: Vec<f64>) -> Result<Self> {
        ensure!(!samples.is_empty(), "no sample was taken");
        ensure!(
            samples.iter().all(|sample| sample.is_finite()),
            "a sample is not a number"
        );
        Ok(Samples {
            all: samples,
            parts: Vec::new(),
        })
    }

    /// The same samples, composed of these parts.
    pub fn with_parts(self, parts: Vec<Part>) -> Self {
        Samples { parts, ..self }
    }

    /// The parts that the figure is composed of, if any.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The median of the samples.
    pub fn median(&self) -> f64 {
        self.percentile(50.0)
    }

    /// The value that `percent` of the samples do not exceed, interpolated between neighbours.
    pub fn percentile(&self, percent: f64) -> f64 {
        let mut sorted = self.all.clone();
        sorted.sort_by(f64::total_cmp);
        let place = percent / 100.0 * (sorted.len() - 1) as f64;
        let (below, above) = (
            sorted[place.floor() as usize],
            sorted[place.ceil() as usize],
        );
        below + (above - below) * place.fract()
    }
}

impl Serialize for Samples {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.all.serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use super::Samples;

    #[test]
    fn percentiles_lie_between_the_samples() {
        let samples = Samples::new(vec![30.0, 10.0, 20.0, 40.0, 50.0]).unwrap();
        assert_eq!(samples.median(), 30.0);
        assert_eq!(samples.percentile(10.0), 14.0);
        assert_eq!(samples.percentile(90.0), 46.0);
    }

    #[test]
    fn one_sample_is_everything() {
        let samples = Samples::new(vec![7.0]).unwrap();
        assert_eq!(
            [samples.percentile(10.0), samples.percentile(90.0)],
            [7.0, 7.0]
        );
    }

    #[test]
    fn nothing_is_no_sample() {
        assert!(Samples::new(vec![]).is_err());
        assert!(Samples::new(vec![1.0, f64::NAN]).is_err());
    }
}
